r"""SGHMC: stochastic gradient Hamiltonian Monte Carlo in the paper's frame (appendix).

Three forms of one algorithm, told apart by when the velocity is forgotten.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp

from valuetrack.measurement import Measurement
from valuetrack.priors import Prior
from valuetrack.samplers.base import (
    Info,
    Sampler,
    as_arrays,
    check_choice,
    check_positive,
    gaussian_like,
    make_info,
    scaled_posterior_gradient,
)
from valuetrack.samplers.units import Estimated, Preconditioner, UnitsState, find_units
from valuetrack.schedules import Schedule, inner_decay
from valuetrack.types import Array, Params, Tree

Momentum = Literal["carried", "restarted", "none"]
"""When the velocity is forgotten, see :func:`sghmc`."""


class SGHMCState(NamedTuple):
    """The current sample, and the velocity it moves with."""

    params: Params
    updates: Array
    velocity: Params
    units: Tree = ()


def sghmc(
    measurement: Measurement,
    prior: Prior,
    *,
    step_size: float | Schedule | None = None,
    learning_rate: float | Schedule | None = None,
    pseudo_population: float | Schedule,
    observation_sd: float | Estimated,
    preconditioner: Preconditioner | None = None,
    value_scale: Literal[1] | Estimated = 1,
    friction: float = 0.1,
    momentum: Momentum = "carried",
    inner_iterations: int = 5,
    inner_power: float = 0.9,
    likelihood_weight: float = 1.0,
) -> Sampler:
    r"""Build the SGHMC sampler.

    .. math::
        v_k &= (1 - a)\, v_{k-1} + \frac{\epsilon_k}{2} \frac{n}{\mathcal N}
               \nabla_\theta \log \pi(\theta_{k-1} \mid z_t) + \tilde w_k, &
        \tilde w_k &\sim N\left(0, a \frac{n}{\mathcal N} \epsilon_k I\right) \\
        \theta_k &= \theta_{k-1} + v_k

    Parameters
    ----------
    friction
        The paper's momentum coefficient a, in (0, 1].
    momentum
        ``"carried"`` keeps the velocity from one update to the next; the limit of small steps is
        the exact posterior. ``"restarted"`` begins each update with :math:`v = 0`, as the paper's
        pseudo-code does; the limit is then the posterior at the temperature
        :math:`a \sum c_j^2 / \sum c_j` with :math:`c_j = (1 - (1-a)^j)/a, j = 1..\mathcal K`
        (0.31 for :math:`\mathcal K = 5, a = 0.1`). ``"none"`` begins every iteration with
        :math:`v = 0`, takes the full step :math:`\epsilon` and noise of variance
        :math:`2 a \frac{n}{\mathcal N}\epsilon`: the reference form, SGLD at the temperature a.
    measurement, prior, step_size, learning_rate, pseudo_population, observation_sd, \
    preconditioner, value_scale, inner_iterations, inner_power, likelihood_weight
        As in :func:`~valuetrack.samplers.sgld.sgld`.
    """
    check_positive(likelihood_weight=likelihood_weight)
    check_choice("momentum", momentum, get_args(Momentum))
    if not 0 < friction <= 1:
        raise ValueError(f"friction must lie in (0, 1], not {friction}.")
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
    # The reference form takes twice the step, which doubles both drift and noise variance.
    drift = 1.0 if momentum == "none" else 0.5
    keep = 0.0 if momentum == "none" else 1.0 - friction

    def init(params: Params) -> SGHMCState:
        params = as_arrays(params)
        at_rest = jax.tree.map(jnp.zeros_like, params)
        return SGHMCState(params, jnp.int32(0), at_rest, units.init(params))

    def step(key: Array, state: SGHMCState, data: Tree) -> tuple[SGHMCState, Info]:
        known, params = units.look(state.units, state.params, data)
        observed = measurement.observe(params, data)
        batch = units.of_batch(known, state.updates, observed.shape[0])
        prior_now = units.prior(prior, batch)
        ratio = batch.ratio  # n / N
        precision = likelihood_weight / batch.variance
        velocity = state.velocity
        if momentum != "carried":
            velocity = jax.tree.map(jnp.zeros_like, velocity)

        def iterate(chain: tuple[Params, Params, UnitsState], inputs: tuple[Array, Array]) -> Tree:
            theta, velocity, known = chain
            key_k, eps = inputs
            gradient, of_likelihood, residual = scaled_posterior_gradient(
                measurement, prior_now, theta, data, observed,
                count=state.updates, ratio=ratio, precision=precision,
            )  # fmt: skip
            noise = gaussian_like(key_k, theta)
            known, steps = units.steps(known, of_likelihood, batch, eps)

            def accelerate(v: Array, g: Array, w: Array, eps: Array) -> Array:
                noise_sd = jnp.sqrt(2 * drift * friction * eps * ratio)
                return (keep * v + drift * eps * g + noise_sd * w).astype(v.dtype)

            velocity = jax.tree.map(accelerate, velocity, gradient, noise, steps)
            return (jax.tree.map(jnp.add, theta, velocity), velocity, known), residual

        inputs = (jax.random.split(key, inner_iterations), jnp.asarray(batch.step * shrink))
        begin = (params, velocity, known)
        (params, velocity, known), residuals = jax.lax.scan(iterate, begin, inputs)
        info = make_info(batch.weight, residuals[0], residuals[-1], params)
        known = units.learn(known, residuals[0])
        return SGHMCState(params, state.updates + 1, velocity, known), info

    return Sampler(init, step)


def restart_temperature(friction: float, inner_iterations: int) -> float:
    r"""Return the temperature at which ``momentum="restarted"`` samples, for small steps.

    A kick at iteration k still moves the parameters at all later ones, in total by
    :math:`c_j = (1 - (1-a)^j)/a` with :math:`j = \mathcal K - k + 1`. The drift of an update adds
    up these factors, its noise variance their squares, so that the ratio of noise to drift is
    :math:`a \sum_j c_j^2 / \sum_j c_j` times the one that leaves the posterior in place.
    """
    reach = [(1 - (1 - friction) ** j) / friction for j in range(1, inner_iterations + 1)]
    return friction * sum(c * c for c in reach) / sum(reach)
