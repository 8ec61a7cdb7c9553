r"""KOVA: the extended Kalman filter on the network's parameters (Algorithm S1).

Not a sampler but a filter: it carries a mean and a p x p covariance, and costs O(n p^2) time and
O(p^2) memory an update. It keeps the samplers' contract, with its mean as ``params``, and ignores
the key.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from valuetrack.measurement import Measurement
from valuetrack.samplers.base import Info, Sampler, as_arrays, check_positive, make_info
from valuetrack.types import Array, Params, Tree


class KOVAState(NamedTuple):
    """Mean and covariance of the filtering distribution."""

    params: Params
    updates: Array
    covariance: Array


def kova(
    measurement: Measurement,
    *,
    observation_variance: float,
    learning_rate: float = 1.0,
    initial_variance: float = 1.0,
    process_variance: float = 0.0,
    forgetting: float = 0.0,
) -> Sampler:
    r"""Build the extended Kalman filter.

    .. math::
        \Sigma_{t|t-1} &= \Sigma_{t-1} / (1 - \eta) + w I \\
        K_t &= \Sigma_{t|t-1} J^\top S^{-1}, \qquad S = J \Sigma_{t|t-1} J^\top + \gamma I \\
        \mu_t &= \mu_{t-1} + \tilde\alpha K_t (r_t - h(x_t, \mu_{t-1})) \\
        \Sigma_t &= \Sigma_{t|t-1} - \tilde\alpha K_t S K_t^\top

    Parameters
    ----------
    measurement
        h, with J its Jacobian in the parameters, n x p.
    observation_variance
        :math:`\gamma`; the reference setting is the batch size.
    learning_rate
        :math:`\tilde\alpha`; with 1 and a linear h this is the exact Kalman filter.
    initial_variance
        :math:`\Sigma_0` is this number times the identity.
    process_variance, forgetting
        w, the paper's additive state noise, and :math:`\eta`, the reference setting's inflation
        (1e-4 there). Both are off by default.
    """
    check_positive(
        observation_variance=observation_variance,
        learning_rate=learning_rate,
        initial_variance=initial_variance,
    )
    if not 0 <= forgetting < 1:
        raise ValueError(f"forgetting must lie in [0, 1), not {forgetting}.")
    if not 0 <= process_variance < math.inf:
        raise ValueError(f"process_variance must be zero or positive, not {process_variance}.")

    def init(params: Params) -> KOVAState:
        params = as_arrays(params)
        flat, _ = ravel_pytree(params)
        covariance = initial_variance * jnp.eye(flat.size, dtype=flat.dtype)
        return KOVAState(params, jnp.int32(0), covariance)

    def step(key: Array, state: KOVAState, data: Tree) -> tuple[KOVAState, Info]:
        del key  # a filter draws nothing
        mean, unravel = ravel_pytree(state.params)

        def predict(flat: Array) -> Array:
            return measurement.predict(unravel(flat), data)

        predicted = predict(mean)
        innovation = measurement.observe(state.params, data) - predicted
        J = jax.jacrev(predict)(mean)

        covariance = state.covariance / (1 - forgetting)
        if process_variance:
            covariance = covariance + process_variance * jnp.eye(mean.size, dtype=mean.dtype)
        # J Sigma, n x p; in this order, for a symmetric Sigma, the product is a quarter faster.
        cross = (covariance @ J.T).T
        S = cross @ J.T + observation_variance * jnp.eye(J.shape[0], dtype=J.dtype)
        factor = jnp.linalg.cholesky(S)
        # With S = L L', K (r - h) = U' L^-1 (r - h) and K S K' = U' U for U = L^-1 J Sigma. The
        # product of U with itself keeps the covariance symmetric to the last bit.
        U = jax.scipy.linalg.solve_triangular(factor, cross, lower=True)
        innovation = innovation.astype(factor.dtype)
        whitened = jax.scipy.linalg.solve_triangular(factor, innovation, lower=True)
        mean = mean + learning_rate * (U.T @ whitened)
        covariance = covariance - learning_rate * (U.T @ U)
        params = unravel(mean)
        info = make_info(learning_rate, innovation, params)
        return KOVAState(params, state.updates + 1, covariance), info

    return Sampler(init, step)
