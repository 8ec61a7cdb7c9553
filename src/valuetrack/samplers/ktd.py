r"""KTD: the Kalman filter on the network's parameters, by the unscented transform.

Where the extended filter (:mod:`valuetrack.samplers.kova`) replaces h by its tangent at the mean,
this one evaluates h at 2p + 1 parameters around the mean, the sigma points, and differentiates
nothing. It carries the mean and a square root of the covariance, and costs O(n p^2) time and
O(p^2) memory per update, with O(n p) forward passes. It keeps the samplers' contract, with its
mean as ``params``, and ignores the key.

The whole update works on square roots, so single precision is enough: no step subtracts one
covariance from another or factorises one, and the covariance stays positive whatever the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular

from valuetrack.measurement import Measurement
from valuetrack.samplers.base import Info, Sampler, as_arrays, check_positive, make_info
from valuetrack.types import Array, Params

SIGMA_POINTS_AT_ONCE = 128
"""How many pairs of sigma points pass through the network together: this bounds the memory."""


class KTDState(NamedTuple):
    """Mean and covariance of the filtering distribution; the covariance is ``factor @ factor.T``.

    The factor is square but not triangular.
    """

    params: Params
    updates: Array
    factor: Array


class Transform(NamedTuple):
    """What the unscented transform says of h, for n observations and p parameters.

    Attributes
    ----------
    centre, mean : (n,)
        h at the mean of the parameters, and the mean of h.
    slopes : (p, n)
        D, the covariance of whitened parameters and h; for a linear h = J theta, (J L)'.
    bends : (p, n)
        B; the covariance of h is D'D + B'B. Zero for a linear h.
    """

    centre: Array
    mean: Array
    slopes: Array
    bends: Array


def ktd(
    measurement: Measurement,
    *,
    observation_variance: float,
    initial_variance: float = 1.0,
    process_variance: float = 0.0,
    forgetting: float = 0.0,
    alpha: float = 0.1,
    beta: float = 2.0,
    kappa: float = 0.0,
) -> Sampler:
    r"""Build the unscented Kalman filter.

    .. math::
        \Sigma_{t|t-1} &= \Sigma_{t-1} / (1 - \eta) + w I = L L^\top \\
        \theta^{(0)} &= \mu_{t-1}, \qquad
        \theta^{(\pm i)} = \mu_{t-1} \pm c L_i, \qquad c^2 = \alpha^2 (p + \kappa) \\
        K_t &= P_{\theta r} P_{rr}^{-1} \\
        \mu_t &= \mu_{t-1} + K_t (r_t - \hat r_t), \qquad
        \Sigma_t = \Sigma_{t|t-1} - K_t P_{rr} K_t^\top

    with the mean :math:`\hat r_t` and the covariances :math:`P_{rr}` (which includes
    :math:`\sigma^2 I`) and :math:`P_{\theta r}` of the images :math:`h(x_t, \theta^{(j)})` under
    the usual weights; see :func:`unscented`. A batch of n transitions is one n-dimensional
    observation. With a linear h this is the exact Kalman filter.

    Parameters
    ----------
    measurement
        h. It is evaluated at the sigma points, where a gradient held constant is not constant:
        the ``"semi"`` and the ``"full"`` form of a measurement are the same here. What is
        observed is evaluated at the mean.
    observation_variance
        :math:`\sigma^2`.
    initial_variance
        :math:`\Sigma_0` is this number times the identity.
    process_variance, forgetting
        w, the additive noise of the random walk, and :math:`\eta`, which inflates the covariance
        by a factor. Both are off by default. With w > 0 an update costs O(p^3).
    alpha, beta, kappa
        The transform's: how far out the sigma points lie, the weight of the curvature (2 is best
        for a normal law) and a second spread, at its usual 0. The usual ``alpha`` lies between
        1e-4 and 1; below 0.01 the rounding of single precision, divided by its square, shows.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from valuetrack import rng, samplers
    >>> from valuetrack.measurement import Measurement
    >>> line = Measurement(lambda theta, data: data[0] @ theta, lambda theta, data: data[1])
    >>> filter_ = samplers.ktd(line, observation_variance=1.0)
    >>> data = (jnp.eye(2), jnp.array([1.0, 3.0]))
    >>> state, info = filter_.step(rng.key(0), filter_.init(jnp.zeros(2)), data)
    >>> [round(float(number), 3) for number in state.params]
    [0.5, 1.5]

    References
    ----------
    Geist and Pietquin (2010). Kalman temporal differences. JAIR 39.
    https://arxiv.org/abs/1406.3270

    Wan and van der Merwe (2000). The unscented Kalman filter for nonlinear estimation. AS-SPCC.
    https://ieeexplore.ieee.org/document/882463

    Andrews (1968). A square root formulation of the Kalman covariance equations. AIAA Journal 6.
    https://arc.aiaa.org/doi/10.2514/3.4693
    """
    check_positive(
        observation_variance=observation_variance, initial_variance=initial_variance, alpha=alpha
    )
    if not 0 <= forgetting < 1:
        raise ValueError(f"forgetting must lie in [0, 1), not {forgetting}.")
    for name, value in (("process_variance", process_variance), ("beta", beta), ("kappa", kappa)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be zero or positive, not {value}.")

    def init(params: Params) -> KTDState:
        params = as_arrays(params)
        flat, _ = ravel_pytree(params)
        factor = math.sqrt(initial_variance) * jnp.eye(flat.size, dtype=flat.dtype)
        return KTDState(params, jnp.int32(0), factor)

    def step(key: Array, state: KTDState, data: Any) -> tuple[KTDState, Info]:
        del key  # a filter draws nothing
        mean, unravel = ravel_pytree(state.params)

        def predict(flat: Array) -> Array:
            return measurement.predict(unravel(flat), data).astype(mean.dtype)

        observed = measurement.observe(state.params, data).astype(mean.dtype)
        factor = evolve(state.factor, process_variance, forgetting)
        seen = unscented(predict, mean, factor, alpha=alpha, beta=beta, kappa=kappa)
        mean, factor = correct(mean, factor, seen, observed - seen.mean, observation_variance)
        params = unravel(mean)
        info = make_info(1.0, observed - seen.centre, params, factor)
        return KTDState(params, state.updates + 1, factor), info

    return Sampler(init, step)


def evolve(factor: Array, process_variance: float, forgetting: float) -> Array:
    r"""Return a square root of :math:`L L^\top / (1 - \eta) + w I`."""
    factor = factor / math.sqrt(1 - forgetting)
    if not process_variance:
        return factor
    noise = math.sqrt(process_variance) * jnp.eye(len(factor), dtype=factor.dtype)
    return lower_root(factor.T, noise)


def unscented(
    predict: Callable[[Array], Array],
    mean: Array,
    factor: Array,
    *,
    alpha: float,
    beta: float,
    kappa: float,
) -> Transform:
    r"""Send the law N(mean, L L') through h by its sigma points.

    The usual weights are
    :math:`w_0^m = 1 - p/c^2`, :math:`w_0^c = w_0^m + 1 - \alpha^2 + \beta` and
    :math:`w_{\pm i} = 1/(2c^2)`. For a small :math:`\alpha` they are huge and of both signs. Sums
    and differences of the pairs, :math:`m_i = (h_{+i} + h_{-i})/2 - h_0` and
    :math:`D_i = (h_{+i} - h_{-i})/(2c)`, give the same moments without them:

    .. math::
        \hat r = h_0 + \delta, \quad \delta = \frac{1}{c^2} \sum_i m_i, \qquad
        P_{\theta r} = L D, \qquad
        P_{rr} = D^\top D + \frac{1}{c^2} \sum_i m_i m_i^\top + (\beta - \alpha^2)\,
        \delta\delta^\top + \sigma^2 I.

    The two terms in the middle are :math:`B^\top B` with :math:`B_i = (m_i - q\,\delta)/c`, where
    q solves :math:`q^2 p/c^2 - 2q = \beta - \alpha^2`. It does so for all
    :math:`\beta, \kappa \ge 0`.
    """
    p = mean.size
    spread = alpha * math.sqrt(p + kappa)  # c

    def pair(column: Array) -> tuple[Array, Array]:
        return predict(mean + spread * column), predict(mean - spread * column)

    centre = predict(mean)
    above, below = jax.lax.map(pair, factor.T, batch_size=SIGMA_POINTS_AT_ONCE)
    slopes = (above - below) / (2 * spread)
    second = ((above - centre) + (below - centre)) / 2
    shift = jnp.sum(second, axis=0) / spread**2
    share = p / spread**2
    pull = (1 - math.sqrt(max(0.0, 1 + (beta - alpha**2) * share))) / share  # q
    return Transform(centre, centre + shift, slopes, (second - pull * shift) / spread)


def correct(
    mean: Array, factor: Array, seen: Transform, innovation: Array, observation_variance: float
) -> tuple[Array, Array]:
    r"""Return the mean and a square root of the covariance after an observation.

    With :math:`T T^\top = B^\top B + \sigma^2 I` and :math:`S S^\top = D^\top D + T T^\top`,

    .. math:: \mu + L D S^{-\top} S^{-1} (r - \hat r), \qquad
              L - L D S^{-\top} (S + T)^{-1} D^\top,

    which is Andrews' square root: its product with itself is :math:`L (I - D P_{rr}^{-1} D^\top)
    L^\top`. It costs two products of size p x p x n, and never fails: :math:`S + T` is triangular
    with a positive diagonal.
    """
    n = len(innovation)
    noise = math.sqrt(observation_variance) * jnp.eye(n, dtype=mean.dtype)
    T = lower_root(noise, seen.bends)
    S = lower_root(T.T, seen.slopes)
    gain = solve_triangular(S, seen.slopes.T, lower=True)  # S^-1 D', n x p
    moved = factor @ gain.T  # L D S^-T, p x n
    mean = mean + moved @ solve_triangular(S, innovation, lower=True)
    return mean, factor - moved @ solve_triangular(S + T, seen.slopes.T, lower=True)


def lower_root(*blocks: Array) -> Array:
    """Return the lower triangular X with X X' = sum of B'B over the blocks, diagonal >= 0.

    By the QR decomposition of the stacked blocks; the products B'B, which would square their
    condition, are never formed.
    """
    upper = jnp.linalg.qr(jnp.concatenate(blocks), mode="r")
    signs = jnp.where(jnp.diagonal(upper) < 0, -1.0, 1.0).astype(upper.dtype)
    return upper.T * signs
