r"""A sampler to copy: one Langevin step per update.

1. Copy this to ``src/valuetrack/samplers/<name>.py``, and export the builder in
   ``samplers/__init__.py``.
2. Move ``langevin_update`` to ``src/valuetrack/checks/linear_gaussian.py``. Write yours from the
   paper, not from your code: if chains and law disagree, one of them is wrong.
3. Add a line to the battery in ``tests/samplers/zoo.py`` and one to ``CASES`` in
   ``tests/samplers/test_stationary_law.py``.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack.checks.linear_gaussian import AffineMap, LinearGaussian
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
from valuetrack.schedules import Schedule, as_schedule
from valuetrack.types import Array


def langevin(
    measurement: Measurement,
    prior: Prior,
    *,
    step_size: float | Schedule,
    pseudo_population: float,
    observation_sd: float,
) -> Sampler:
    r"""Build the sampler.

    .. math:: \theta_t = \theta_{t-1} + \frac{\epsilon_t}{2} \frac{n}{\mathcal N}
              \nabla_\theta \log \pi(\theta_{t-1} \mid z_t) + w_t, \qquad
              w_t \sim N\left(0, \frac{n}{\mathcal N} \epsilon_t I\right)
    """
    check_sampler_options(
        step_size=step_size,
        pseudo_population=pseudo_population,
        observation_sd=observation_sd,
        likelihood_weight=1.0,
    )
    step_at = as_schedule(step_size)

    def step(key: Array, state: ChainState, data: Any) -> tuple[ChainState, Info]:
        observed = measurement.observe(state.params, data)
        ratio = observed.shape[0] / pseudo_population  # n / N
        eps = step_at(state.updates)
        gradient, _, residual = scaled_posterior_gradient(
            measurement, prior, state.params, data, observed,
            count=state.updates, ratio=ratio, precision=1 / observation_sd**2,
        )  # fmt: skip
        noise = gaussian_like(key, state.params)

        def move(p: Array, g: Array, w: Array) -> Array:
            return (p + eps / 2 * g + jnp.sqrt(eps * ratio) * w).astype(p.dtype)

        params = jax.tree.map(move, state.params, gradient, noise)
        return ChainState(params, state.updates + 1), make_info(eps, residual, params)

    return Sampler(init_chain, step)


def langevin_update(model: LinearGaussian, *, step_size: float) -> AffineMap:
    r"""Return one update on the linear-Gaussian model: x -> A x + b + e with e ~ N(0, Q).

    There :math:`\frac{n}{\mathcal N}\nabla\log\pi(\theta) = -P\theta + H^\top r / \sigma^2`.
    """
    eye = np.eye(model.H.shape[1])
    pull = model.H.T @ model.H / model.observation_sd**2 + model.ratio / model.prior_sd**2 * eye
    push = model.H.T @ model.r / model.observation_sd**2
    half = step_size / 2
    return AffineMap(eye - half * pull, half * push, step_size * model.ratio * eye)
