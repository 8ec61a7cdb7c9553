r"""The model on which every sampler's law is known exactly.

With :math:`r = H\theta + \eta`, :math:`\eta \sim N(0, \sigma^2 I)` and
:math:`\theta \sim N(0, \sigma_\theta^2 I)`, one iteration of every sampler is an affine map plus
Gaussian noise. So is one update, and the law it leaves unchanged is a Gaussian whose moments
solve two linear equations, at *any* step size:

.. math:: \theta' = A\theta + b + e, \; e \sim N(0, Q) \quad\Longrightarrow\quad
          m = Am + b, \quad S = ASA^\top + Q.

The matrices are written out here from the paper's equations, in NumPy and double precision, and
share no code with the samplers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag, solve_discrete_lyapunov, sqrtm

from valuetrack.measurement import Measurement
from valuetrack.samplers.lktd import Latent
from valuetrack.samplers.sghmc import Momentum
from valuetrack.types import Floats

Matrix = Floats


class LinearGaussian(NamedTuple):
    r"""A linear regression: n observations ``r`` at inputs ``H``, and how sure we were before.

    ``pseudo_population`` is :math:`\mathcal N`: the likelihood counts :math:`\mathcal N / n` times.
    """

    H: Matrix
    r: Matrix
    observation_sd: float
    prior_sd: float
    pseudo_population: float

    @property
    def ratio(self) -> float:
        """The batch size over the pseudo-population, n / N."""
        return len(self.r) / self.pseudo_population


class Gaussian(NamedTuple):
    """A normal law."""

    mean: Matrix
    covariance: Matrix


class AffineMap(NamedTuple):
    """The random map x -> A x + b + e with e ~ N(0, Q)."""

    A: Matrix
    b: Matrix
    Q: Matrix

    def then(self, later: AffineMap) -> AffineMap:
        """Return the map that does this first and ``later`` after it."""
        return AffineMap(
            later.A @ self.A, later.A @ self.b + later.b, later.A @ self.Q @ later.A.T + later.Q
        )

    def project(self, keep: int) -> AffineMap:
        """Forget all but the first ``keep`` coordinates of the result."""
        return AffineMap(self.A[:keep], self.b[:keep], self.Q[:keep, :keep])


def example(
    n: int = 12, p: int = 3, *, correlation: float = 0.6, prior_sd: float = 1.0,
    pseudo_population: float = 48.0, seed: int = 0,
) -> LinearGaussian:  # fmt: skip
    """Make a model with correlated inputs."""
    rng, observation_sd = np.random.default_rng(seed), 0.5
    covariance = np.full((p, p), correlation) + (1 - correlation) * np.eye(p)
    H = rng.multivariate_normal(np.zeros(p), covariance, size=n)
    r = H @ rng.normal(size=p) + observation_sd * rng.normal(size=n)
    return LinearGaussian(H, r, observation_sd, prior_sd, pseudo_population)


def measurement() -> Measurement:
    """Return h(x; theta) = H theta for data (H, r)."""
    return Measurement(
        predict=lambda theta, data: data[0] @ theta, observe=lambda theta, data: data[1]
    )


def posterior(
    model: LinearGaussian, *, variance: float | None = None, temperature: float = 1.0
) -> Gaussian:
    r"""Return the closed-form posterior.

    .. math:: S^{-1} = \frac{1}{\sigma_\theta^2} I
              + \frac{\mathcal N}{n} \frac{1}{\sigma^2} H^\top H, \qquad
              m = S\, \frac{\mathcal N}{n} \frac{1}{\sigma^2} H^\top r

    ``variance`` replaces :math:`\sigma^2`; a ``temperature`` multiplies the covariance.
    """
    strength = 1.0 / (model.ratio * (variance or model.observation_sd**2))
    p = model.H.shape[1]
    precision = np.eye(p) / model.prior_sd**2 + strength * model.H.T @ model.H
    covariance = np.linalg.inv(precision)
    return Gaussian(covariance @ (strength * model.H.T @ model.r), temperature * covariance)


def stationary(update: AffineMap) -> Gaussian:
    """Return the law that the update leaves unchanged."""
    radius = np.abs(np.linalg.eigvals(update.A)).max()
    if radius >= 1:
        raise ValueError(f"The chain diverges: its spectral radius is {radius:.3g}.")
    mean = np.linalg.solve(np.eye(len(update.b)) - update.A, update.b)
    return Gaussian(mean, np.asarray(solve_discrete_lyapunov(update.A, update.Q)))


def mixing_updates(update: AffineMap, tolerance: float = 1e-4) -> int:
    """Return after how many updates the start is forgotten up to ``tolerance``."""
    radius = np.abs(np.linalg.eigvals(update.A)).max()
    return int(np.ceil(np.log(tolerance) / np.log(radius)))


def wasserstein2(a: Gaussian, b: Gaussian) -> float:
    r"""Return the 2-Wasserstein distance between two normal laws.

    .. math:: W_2^2 = |m_a - m_b|^2
              + \operatorname{tr}\left(S_a + S_b - 2 (S_a^{1/2} S_b S_a^{1/2})^{1/2}\right)
    """
    root = np.real(sqrtm(a.covariance))
    cross = np.real(sqrtm(root @ b.covariance @ root))
    squared = np.sum((a.mean - b.mean) ** 2) + np.trace(a.covariance + b.covariance - 2 * cross)
    return float(np.sqrt(max(squared, 0.0)))


def sgld_update(
    model: LinearGaussian,
    *,
    step_sizes: list[float],
    weight: float = 1.0,
    diagonal: Matrix | None = None,
) -> AffineMap:
    """Return one update of SGLD: an iteration for each of the step sizes.

    ``diagonal`` is a preconditioner's, here and below; the identity by default.
    """
    p = model.H.shape[1]
    P = _diagonal(diagonal, p)
    pull, push = _scaled_gradient(model, weight)
    return _in_turn(
        AffineMap(np.eye(p) - eps / 2 * P @ pull, eps / 2 * P @ push, eps * model.ratio * P)
        for eps in step_sizes
    )


def sghmc_update(
    model: LinearGaussian,
    *,
    step_sizes: list[float],
    friction: float,
    momentum: Momentum,
    weight: float = 1.0,
    diagonal: Matrix | None = None,
) -> AffineMap:
    """Return one update of SGHMC, on (theta, v) if the momentum is carried, else on theta."""
    p = model.H.shape[1]
    P = _diagonal(diagonal, p)
    pull, push = (P @ part for part in _scaled_gradient(model, weight))
    eye, zero = np.eye(p), np.zeros((p, p))
    if momentum == "none":
        noise = 2 * friction * model.ratio
        return _in_turn(AffineMap(eye - e * pull, e * push, noise * e * P) for e in step_sizes)

    def iteration(eps: float) -> AffineMap:
        velocity = np.hstack([-eps / 2 * pull, (1 - friction) * eye])
        position = velocity + np.hstack([eye, zero])
        noise = friction * model.ratio * eps * np.block([[P, P], [P, P]])
        kick = np.concatenate([eps / 2 * push, eps / 2 * push])
        return AffineMap(np.vstack([position, velocity]), kick, noise)

    update = _in_turn(map(iteration, step_sizes))
    if momentum == "carried":
        return update
    at_rest = AffineMap(np.vstack([eye, zero]), np.zeros(2 * p), np.zeros((2 * p, 2 * p)))
    return at_rest.then(update).project(p)


def lktd_update(
    model: LinearGaussian,
    *,
    step_sizes: list[float],
    alpha: float,
    latent: Latent,
    weight: float = 1.0,
    diagonal: Matrix | None = None,
) -> AffineMap:
    """Return one update of LKTD on theta; a preconditioner leaves xi alone."""
    n, p = model.H.shape
    H, variance, ratio = model.H, model.observation_sd**2, model.ratio
    P = _diagonal(diagonal, p)
    precision = weight / (alpha * variance)
    prior_pull = ratio / model.prior_sd**2 * np.eye(p)

    if latent != "restart":
        # theta feels xi - h = alpha (r - H theta) + u, with u drawn anew in every iteration.
        temperature = ratio if latent == "conditional_tempered" else 1.0
        draw = temperature * alpha * (1 - alpha) * variance / weight
        pull = prior_pull + precision * alpha * H.T @ H
        push = precision * alpha * H.T @ model.r
        return _in_turn(
            AffineMap(
                np.eye(p) - eps / 2 * P @ pull,
                eps / 2 * P @ push,
                eps * ratio * P + (eps / 2 * precision) ** 2 * draw * P @ H.T @ H @ P,
            )
            for eps in step_sizes
        )

    def iteration(eps: float) -> AffineMap:
        drift = np.block(
            [
                [-P @ (prior_pull + precision * H.T @ H), precision * P @ H.T],
                [ratio * precision * H, -ratio * precision * np.eye(n)],
            ]
        )
        noise = eps * ratio * block_diag(P, np.eye(n))
        forecast = AffineMap(np.eye(p + n) + eps / 2 * drift, np.zeros(p + n), noise)
        return forecast.then(_kalman_analysis(model, eps, alpha))

    restart = AffineMap(
        np.vstack([np.eye(p), np.zeros((n, p))]),
        np.concatenate([np.zeros(p), model.r]),
        np.zeros((p + n, p + n)),
    )
    return restart.then(_in_turn(map(iteration, step_sizes))).project(p)


def prototype_update(model: LinearGaussian, *, step_size: float) -> AffineMap:
    """Return one update of LKTD's prototype."""
    n, p = model.H.shape
    eps, ratio = step_size, model.ratio
    forecast = AffineMap(
        (1 - eps / 2 * ratio / model.prior_sd**2) * np.eye(p), np.zeros(p), eps * ratio * np.eye(p)
    )
    R = 2 * model.observation_sd**2 * np.eye(n)
    return forecast.then(_analysis(model.H, model.r, eps, R, ratio))


def log_posterior_update(
    model: LinearGaussian, *, step_size: float, temperature: float, friction: float = 1.0
) -> AffineMap:
    r"""Return one update of SGLD or SGHMC from log-densities, on (theta, v); SGLD has friction 1.

    With the posterior's precision :math:`\Lambda` and mean m,

    .. math:: v' = (1 - a) v + \epsilon \Lambda (m - \theta) + e, \quad
              e \sim N(0, 2 a \epsilon \tau I), \qquad \theta' = \theta + v'.
    """
    law, p = posterior(model), model.H.shape[1]
    precision, eye, zero = np.linalg.inv(law.covariance), np.eye(p), np.zeros((p, p))
    velocity = np.hstack([-step_size * precision, (1 - friction) * eye])
    position = velocity + np.hstack([eye, zero])
    noise = 2 * friction * step_size * temperature * np.block([[eye, eye], [eye, eye]])
    kick = step_size * precision @ law.mean
    return AffineMap(np.vstack([position, velocity]), np.concatenate([kick, kick]), noise)


def lktd_effective_variance(
    *, step_sizes: list[float], alpha: float, variance: float, ratio: float, weight: float = 1.0
) -> float:
    r"""Return the observation variance with which a restarted xi makes the likelihood act.

    With theta held still, the share :math:`f_k = E[\xi_k - h] / (r - h)` starts at 1 and obeys

    .. math:: f_k = (1 - g_k)\left(1 - \frac{\epsilon_k}{2}\frac{n}{\mathcal N}
              \frac{1}{\alpha\sigma^2}\right) f_{k-1} + g_k, \qquad
              g_k = \frac{\epsilon_k}{\epsilon_k + 2(1-\alpha)\sigma^2}.

    theta is pulled with :math:`f_{k-1} / (\alpha\sigma^2)`, so that the variance felt over an
    update is :math:`\alpha\sigma^2 / \bar f` with the mean of f weighted by the steps. For few
    small steps it is :math:`\alpha\sigma^2`; for many it is
    :math:`\sigma^2 (\alpha + \frac{n}{\mathcal N}(1-\alpha))`, which is :math:`\sigma^2` only if
    :math:`\mathcal N = n`.
    """
    share, felt = 1.0, 0.0
    for eps in step_sizes:
        felt += eps * share
        gain = eps / (eps + 2 * (1 - alpha) * variance)
        forget = 1 - eps / 2 * ratio * weight / (alpha * variance)
        share = (1 - gain) * forget * share + gain
    return alpha * variance * sum(step_sizes) / (felt * weight)


def _diagonal(diagonal: Matrix | None, p: int) -> Matrix:
    return np.eye(p) if diagonal is None else np.diag(diagonal)


def _scaled_gradient(model: LinearGaussian, weight: float) -> tuple[Matrix, Matrix]:
    """Write n/N times the gradient of the log-posterior as push - pull @ theta."""
    strength = weight / model.observation_sd**2
    prior_pull = model.ratio / model.prior_sd**2 * np.eye(model.H.shape[1])
    return prior_pull + strength * model.H.T @ model.H, strength * model.H.T @ model.r


def _kalman_analysis(model: LinearGaussian, eps: float, alpha: float) -> AffineMap:
    n, p = model.H.shape
    R = 2 * (1 - alpha) * model.observation_sd**2 * np.eye(n)
    observe_latent = np.hstack([np.zeros((n, p)), np.eye(n)])  # H_t = (0, I)
    return _analysis(observe_latent, model.r, eps, R, model.ratio)


def _analysis(H: Matrix, r: Matrix, eps: float, R: Matrix, ratio: float) -> AffineMap:
    """Return x -> x + K (r - H x - v) with the dense gain K = B H' (H B H' + R)^-1."""
    B = eps * np.eye(H.shape[1])
    K = B @ H.T @ np.linalg.inv(H @ B @ H.T + R)
    return AffineMap(np.eye(H.shape[1]) - K @ H, K @ r, K @ (ratio * R) @ K.T)


def _in_turn(maps: Iterable[AffineMap]) -> AffineMap:
    return reduce(AffineMap.then, maps)
