r"""SGLD: stochastic gradient Langevin dynamics in the paper's frame (appendix)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from valuetrack.measurement import Measurement
from valuetrack.priors import Prior
from valuetrack.samplers.base import (
    ChainState,
    Info,
    Sampler,
    check_sampler_options,
    gaussian_like,
    init_chain,
    make_info,
    scaled_posterior_gradient,
)
from valuetrack.schedules import Schedule, as_schedule, inner_decay
from valuetrack.types import Array, Params, Tree


def sgld(
    measurement: Measurement,
    prior: Prior,
    *,
    step_size: float | Schedule,
    pseudo_population: float,
    observation_sd: float,
    inner_iterations: int = 5,
    inner_power: float = 0.9,
    likelihood_weight: float = 1.0,
) -> Sampler:
    r"""Build the SGLD sampler.

    .. math:: \theta_k = \theta_{k-1} + \frac{\epsilon_k}{2} \frac{n}{\mathcal N}
              \nabla_\theta \log \pi(\theta_{k-1} \mid z_t) + \tilde w_k, \qquad
              \tilde w_k \sim N\left(0, \frac{n}{\mathcal N} \epsilon_k I\right)

    for :math:`k = 1, \dots, \mathcal K` on one batch, where the likelihood of the batch counts
    :math:`\mathcal N / n` times in :math:`\pi(\theta \mid z_t)`. The arguments are those of
    :func:`~valuetrack.samplers.lktd.lktd`; ``likelihood_weight`` is a factor on the gradient of
    the log-likelihood.
    """
    check_sampler_options(step_size, pseudo_population, observation_sd, likelihood_weight)
    step_at = as_schedule(step_size)
    shrink = inner_decay(inner_iterations, inner_power)
    precision = likelihood_weight / observation_sd**2

    def step(key: Array, state: ChainState, data: Tree) -> tuple[ChainState, Info]:
        observed = measurement.observe(state.params, data)
        ratio = observed.shape[0] / pseudo_population  # n / N

        def iterate(theta: Params, inputs: tuple[Array, Array]) -> tuple[Params, Array]:
            gradient, residual = scaled_posterior_gradient(
                measurement, prior, theta, data, observed,
                count=state.updates, ratio=ratio, precision=precision,
            )  # fmt: skip
            key_k, eps = inputs
            noise = gaussian_like(key_k, theta)

            def move(p: Array, g: Array, w: Array) -> Array:
                return (p + eps / 2 * g + jnp.sqrt(eps * ratio) * w).astype(p.dtype)

            return jax.tree.map(move, theta, gradient, noise), residual

        eps_t = step_at(state.updates)
        inputs = (jax.random.split(key, inner_iterations), jnp.asarray(eps_t * shrink))
        params, residuals = jax.lax.scan(iterate, state.params, inputs)
        info = make_info(eps_t, residuals[0], residuals[-1], params)
        return ChainState(params, state.updates + 1), info

    return Sampler(init_chain, step)
