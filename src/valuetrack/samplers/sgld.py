r"""SGLD: stochastic gradient Langevin dynamics in the paper's frame (appendix)."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from valuetrack.measurement import Measurement
from valuetrack.priors import Prior
from valuetrack.samplers.base import (
    ChainState,
    Info,
    Sampler,
    as_arrays,
    check_positive,
    gaussian_like,
    make_info,
    scaled_posterior_gradient,
)
from valuetrack.samplers.units import Estimated, Preconditioner, UnitsState, find_units
from valuetrack.schedules import Schedule, inner_decay
from valuetrack.types import Array, Params, Tree


def sgld(
    measurement: Measurement,
    prior: Prior,
    *,
    step_size: float | Schedule | None = None,
    learning_rate: float | Schedule | None = None,
    pseudo_population: float | Schedule,
    observation_sd: float | Estimated,
    preconditioner: Preconditioner | None = None,
    value_scale: Literal[1] | Estimated = 1,
    inner_iterations: int = 5,
    inner_power: float = 0.9,
    likelihood_weight: float = 1.0,
) -> Sampler:
    r"""Build the SGLD sampler.

    .. math:: \theta_k = \theta_{k-1} + \frac{\epsilon_k}{2} \frac{n}{\mathcal N}
              \nabla_\theta \log \pi(\theta_{k-1} \mid z_t) + \tilde w_k, \qquad
              \tilde w_k \sim N\left(0, \frac{n}{\mathcal N} \epsilon_k I\right)

    for :math:`k = 1, \dots, \mathcal K` on one batch, where the likelihood of the batch counts
    :math:`\mathcal N / n` times in :math:`\pi(\theta \mid z_t)`. With a preconditioner, each
    parameter has a step :math:`\epsilon_k P` of its own. The arguments are those of
    :func:`~valuetrack.samplers.lktd.lktd`; ``likelihood_weight`` is a factor on the gradient of
    the log-likelihood.
    """
    check_positive(likelihood_weight=likelihood_weight)
    units = find_units(
        step_size=step_size,
        learning_rate=learning_rate,
        pseudo_population=pseudo_population,
        observation_sd=observation_sd,
        preconditioner=preconditioner,
        value_scale=value_scale,
        square=measurement.square,
    )
    shrink = inner_decay(inner_iterations, inner_power)

    def init(params: Params) -> ChainState:
        params = as_arrays(params)
        return ChainState(params, jnp.int32(0), units.init(params))

    def step(key: Array, state: ChainState, data: Tree) -> tuple[ChainState, Info]:
        known, params = units.look(state.units, state.params, data)
        observed = measurement.observe(params, data)
        batch = units.of_batch(known, state.updates, observed.shape[0])
        prior_now = units.prior(prior, batch)
        ratio = batch.ratio  # n / N
        precision = likelihood_weight / batch.variance

        def iterate(chain: tuple[Params, UnitsState], inputs: tuple[Array, Array]) -> Tree:
            theta, known = chain
            key_k, eps = inputs
            gradient, of_likelihood, residual = scaled_posterior_gradient(
                measurement, prior_now, theta, data, observed,
                count=state.updates, ratio=ratio, precision=precision,
            )  # fmt: skip
            noise = gaussian_like(key_k, theta)
            known, steps = units.steps(known, of_likelihood, batch, eps)

            def move(p: Array, g: Array, w: Array, eps: Array) -> Array:
                return (p + eps / 2 * g + jnp.sqrt(eps * ratio) * w).astype(p.dtype)

            return (jax.tree.map(move, theta, gradient, noise, steps), known), residual

        inputs = (jax.random.split(key, inner_iterations), jnp.asarray(batch.step * shrink))
        (params, known), residuals = jax.lax.scan(iterate, (params, known), inputs)
        info = make_info(batch.weight, residuals[0], residuals[-1], params)
        known = units.learn(known, residuals[0])
        return ChainState(params, state.updates + 1, known), info

    return Sampler(init, step)
