r"""How noisy LKTD's drift is beside SGLD's at the same parameters, in closed form.

At fixed :math:`\theta`, with per-transition gradients :math:`J_i` of h and residuals
:math:`\delta_i = r_i - h_i`, the likelihood's part of an update's drift, per unit of
:math:`\frac12\sum_k \epsilon_k`, is

.. math:: D_{\mathrm{SGLD}} = \frac{w}{\sigma^2} \sum_i J_i \delta_i, \qquad
          D_{\mathrm{LKTD}} = \frac{w}{\alpha\sigma^2} \sum_i J_i (f \delta_i + u_i),

the sums over a minibatch of n. f and the variance :math:`\tau` of u are numbers that depend on the
steps and on how xi is treated (:func:`latent_pull`), not on the batch. By the law of total
variance

.. math:: \operatorname{tr} \operatorname{Cov} D_{\mathrm{LKTD}} =
          \left(\frac{f}{\alpha}\right)^2 \operatorname{tr} \operatorname{Cov} D_{\mathrm{SGLD}}
          + \left(\frac{w}{\alpha\sigma^2}\right)^2 n\,\tau\,\mathrm E|J|^2 ,

and :math:`\mathrm E D_{\mathrm{LKTD}} = \frac f\alpha \mathrm E D_{\mathrm{SGLD}}`. At equal
expected step the noise is never less than SGLD's, at any :math:`\alpha`.

Examples
--------
>>> pull = latent_pull([0.01], alpha=0.9, variance=0.25, ratio=0.1)
>>> pull.share, pull.variance  # one iteration: xi is the observation itself
(1.0, 0.0)

References
----------
Shih and Liang (2024). Fast value tracking for deep reinforcement learning. ICLR.
https://openreview.net/forum?id=uZtpwtsxr1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from valuetrack.checks.linear_gaussian import Matrix
from valuetrack.samplers.lktd import Latent


class LatentPull(NamedTuple):
    r"""What pulls :math:`\theta` in an update, :math:`\overline{\xi - h} = f\delta + u`.

    The mean is over iterations, weighted by their steps; ``share`` is f, ``variance`` that of u.
    """

    share: float
    variance: float


class Batches(NamedTuple):
    r"""What minibatches of a data set do, at fixed parameters.

    Attributes
    ----------
    gradient_square
        :math:`\mathrm E|J|^2` over the data.
    scatter
        :math:`\operatorname{tr}\operatorname{Cov}(J\delta)` over the data.
    """

    gradient_square: float
    scatter: float


class Noise(NamedTuple):
    """LKTD's gradient noise over SGLD's, as traces of covariances.

    Attributes
    ----------
    same_step
        At the same step size, at which LKTD's drift is ``drift`` times SGLD's.
    same_drift
        After scaling LKTD's step such that the expected drifts agree.
    drift
        f / alpha.
    """

    same_step: float
    same_drift: float
    drift: float


def latent_pull(
    step_sizes: Sequence[float],
    *,
    alpha: float,
    variance: float,
    ratio: float,
    weight: float = 1.0,
    latent: Latent = "restart",
) -> LatentPull:
    r"""Return f and the variance of u for an update with these steps, theta held still.

    With xi restarted, :math:`\xi_k - h = f_k\delta + u_k` obeys
    :math:`u_k = (1-g)(1-c)u_{k-1} + (1-g)\tilde w - gv`, with the gain g and
    :math:`c = \frac{\epsilon}{2}\frac n{\mathcal N}\frac{w}{\alpha\sigma^2}`.
    """
    total = sum(step_sizes)
    precision, analysis = weight / (alpha * variance), 2 * (1 - alpha) * variance
    if latent != "restart":
        temperature = ratio if latent == "conditional_tempered" else 1.0
        draw = temperature * (1 - alpha) / precision
        return LatentPull(alpha, draw * sum(eps**2 for eps in step_sizes) / total**2)
    share, felt = 1.0, 0.0
    last = cross = summed = 0.0  # Var u, Cov(sum eps u, u), Var(sum eps u)
    for eps in step_sizes:
        felt += eps * share
        summed += 2 * eps * cross + eps**2 * last
        cross += eps * last
        gain = eps / (eps + analysis)
        keep = (1 - gain) * (1 - eps / 2 * ratio * precision)
        share = keep * share + gain
        cross *= keep
        last = keep**2 * last + ((1 - gain) ** 2 * eps + gain**2 * analysis) * ratio
    return LatentPull(felt / total, summed / total**2)


def batches(gradients: Matrix, residuals: Matrix) -> Batches:
    """Describe minibatches drawn with replacement; ``gradients`` has a row per transition."""
    squares = np.einsum("ij,ij->i", gradients, gradients)
    mean = gradients.T @ residuals / len(residuals)
    scatter = float(np.mean(squares * residuals**2) - mean @ mean)
    return Batches(float(squares.mean()), scatter)


def noise_ratio(data: Batches, pull: LatentPull, alpha: float) -> Noise:
    """Return LKTD's gradient noise over SGLD's; sigma, the weight and the batch size cancel."""
    latent = pull.variance * data.gradient_square / data.scatter
    drift = pull.share / alpha
    return Noise(drift**2 + latent / alpha**2, 1 + latent / pull.share**2, drift)
