r"""AKQ: the extended Kalman filter with a diagonal covariance.

The same filter as :mod:`valuetrack.samplers.kova`, but after each update it forgets all
correlations: it carries a mean and p variances, and costs O(n^2 p) time and O(n p) memory per
update. It keeps the samplers' contract, with its mean as ``params``, and ignores the key.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular

from valuetrack.measurement import Measurement
from valuetrack.samplers.base import Info, Sampler, as_arrays, check_positive, make_info
from valuetrack.types import Array, Params


class AKQState(NamedTuple):
    """Mean and variances of the parameters, which the filter holds to be independent.

    ``variances`` has one number per parameter, in the order of ``ravel_pytree``.
    """

    params: Params
    updates: Array
    variances: Array


def akq(
    measurement: Measurement,
    *,
    observation_variance: float,
    initial_variance: float = 1.0,
    process_variance: float = 0.0,
    forgetting: float = 0.0,
) -> Sampler:
    r"""Build the extended Kalman filter with a diagonal covariance.

    .. math::
        V &= \operatorname{diag}(v_{t-1} / (1 - \eta) + w) \\
        K_t &= V J^\top S^{-1}, \qquad S = J V J^\top + \sigma^2 I \\
        \mu_t &= \mu_{t-1} + K_t (r_t - h(x_t, \mu_{t-1})) \\
        v_t &= \operatorname{diag}(V - K_t S K_t^\top)

    A batch of n transitions is one n-dimensional observation, and correlations are dropped after
    it: within a batch they count. With one transition per update, :math:`S` is a number and
    :math:`v_j` becomes :math:`v_j (1 - v_j J_j^2 / S)`. The idea is the paper's, a Kalman filter
    on Q-learning that takes the weights to be independent; the paper has weights of given basis
    functions where this has a network, and the two are not compared line by line.

    Parameters
    ----------
    measurement
        h, with J its Jacobian in the parameters, n x p.
    observation_variance
        :math:`\sigma^2`.
    initial_variance
        :math:`v_0`, of every parameter.
    process_variance, forgetting
        w, the additive noise of the random walk, and :math:`\eta`, which inflates the variances
        by a factor. Both are off by default.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from valuetrack import rng, samplers
    >>> from valuetrack.measurement import Measurement
    >>> line = Measurement(lambda theta, data: data[0] @ theta, lambda theta, data: data[1])
    >>> filter_ = samplers.akq(line, observation_variance=1.0)
    >>> data = (jnp.eye(2), jnp.array([1.0, 3.0]))
    >>> state, info = filter_.step(rng.key(0), filter_.init(jnp.zeros(2)), data)
    >>> [round(float(number), 3) for number in state.variances]
    [0.5, 0.5]

    References
    ----------
    Tripp and Shachter (2013). Approximate Kalman filter Q-learning for continuous state-space
    MDPs. UAI. https://arxiv.org/abs/1309.6868
    """
    check_positive(observation_variance=observation_variance, initial_variance=initial_variance)
    if not 0 <= forgetting < 1:
        raise ValueError(f"forgetting must lie in [0, 1), not {forgetting}.")
    if not 0 <= process_variance < math.inf:
        raise ValueError(f"process_variance must be zero or positive, not {process_variance}.")

    def init(params: Params) -> AKQState:
        params = as_arrays(params)
        flat, _ = ravel_pytree(params)
        return AKQState(params, jnp.int32(0), jnp.full_like(flat, initial_variance))

    def step(key: Array, state: AKQState, data: Any) -> tuple[AKQState, Info]:
        del key  # a filter draws nothing
        mean, unravel = ravel_pytree(state.params)

        def predict(flat: Array) -> Array:
            return measurement.predict(unravel(flat), data).astype(mean.dtype)

        observed = measurement.observe(state.params, data).astype(mean.dtype)
        innovation = observed - predict(mean)
        variances = state.variances / (1 - forgetting) + process_variance
        J = jax.jacrev(predict)(mean)
        move, variances = correct(J, variances, innovation, observation_variance)
        params = unravel(mean + move)
        info = make_info(1.0, innovation, params, variances)
        return AKQState(params, state.updates + 1, variances), info

    return Sampler(init, step)


def correct(
    jacobian: Array, variances: Array, innovation: Array, observation_variance: float
) -> tuple[Array, Array]:
    r"""Return by how much the mean moves, and the variances after the observation.

    With the whitened Jacobian :math:`W = J V^{1/2}`, :math:`S = W W^\top + \sigma^2 I = L L^\top`
    and :math:`U = L^{-1} W`, the move is :math:`V^{1/2} U^\top L^{-1} (r - h)`, and parameter j
    keeps the share :math:`1 - \sum_i U_{ij}^2` of its variance.
    """
    sd = jnp.sqrt(variances)
    W = jacobian * sd
    # sigma^2 I first and W W' behind it in a QR decomposition, whose triangle is L': forming S
    # would lose the small observation variance beside large prior ones in single precision.
    noise = math.sqrt(observation_variance) * jnp.eye(len(W), dtype=W.dtype)
    factor = jnp.linalg.qr(jnp.concatenate([noise, W.T]), mode="r").T
    U = solve_triangular(factor, W, lower=True)
    move = sd * (U.T @ solve_triangular(factor, innovation, lower=True))
    # The share is positive; rounding must not make it zero, for the variance would stay there.
    left = jnp.maximum(1 - jnp.sum(U**2, axis=0), np.finfo(W.dtype).eps)
    return move, variances * left
