"""The one place where the names of a specification become functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from valuetrack import agents, networks, priors, schedules
from valuetrack.envs.indoor_escape import IndoorEscape, observations, optimal_q
from valuetrack.experiments.spec import (
    SAMPLERS,
    Algorithm,
    ExperimentSpec,
    PresetName,
    RowSpec,
)
from valuetrack.learner import Learner
from valuetrack.networks import Network
from valuetrack.training.compiled_loop import Loop
from valuetrack.training.trainer import Settings
from valuetrack.types import Array

SAMPLING_AGENTS: dict[Algorithm, Callable[..., Learner]] = {
    "lktd": agents.lktd,
    "sgld": agents.sgld,
    "sghmc": agents.sghmc,
}


class Problem(NamedTuple):
    """An environment, and the values that an agent should find in it."""

    env: IndoorEscape
    observations: Array
    truth: npt.NDArray[np.float64]
    legal: npt.NDArray[np.bool_]


def build_problem(spec: ExperimentSpec) -> Problem:
    """Make the environment and solve it for Q*_eps under the final exploration rate."""
    options = spec.environment.model_dump(exclude={"ties"})
    env = IndoorEscape(**options)
    q = optimal_q(
        env,
        epsilon=spec.training.exploration_final,
        discount=spec.training.discount,
        ties=spec.environment.ties,
    )
    return Problem(env, jnp.asarray(observations(env)), np.where(q.legal, q.values, 0.0), q.legal)


def build_loop(spec: ExperimentSpec, row: RowSpec, preset: PresetName, problem: Problem) -> Loop:
    """Make the training loop of one row."""
    training = spec.training
    exploration = schedules.linear(
        training.exploration_initial,
        training.exploration_final,
        int(training.exploration_fraction * training.steps),
    )
    settings = Settings(
        exploration=exploration,
        steps_per_update=training.steps_per_update,
        replay_capacity=training.replay_capacity,
        batch_size=training.batch_size,
        learning_starts=training.learning_starts,
        discount=training.discount,
    )
    agent = build_agent(spec, row, preset, problem.env)
    room = spec.metrics.pool_size // agent.heads
    return Loop(problem.env, agent, settings, problem.observations, room)


def build_agent(
    spec: ExperimentSpec, row: RowSpec, preset: PresetName, env: IndoorEscape
) -> Learner:
    """Make the agent of one row."""
    if row.algorithm in SAMPLERS:
        return _sampling_agent(spec, row, preset, env)
    base, rate = spec.baselines, row.step_size
    common: dict[str, Any] = {"target_every": base.target_every, "double": base.double}
    actions = env.num_actions
    if row.algorithm == "dqn":
        return agents.dqn(_network(spec, env, actions), learning_rate=rate, **common)
    if row.algorithm == "bootdqn":
        return agents.bootdqn(
            _network(spec, env, (base.bootdqn_heads, actions)),
            heads=base.bootdqn_heads,
            learning_rate=rate,
            mask_probability=base.bootdqn_mask_probability,
            head_every=base.bootdqn_head_every,
            max_gradient_norm=base.max_gradient_norm,
            **common,
        )
    if row.algorithm == "qrdqn":
        return agents.qrdqn(
            _network(spec, env, (actions, base.qrdqn_quantiles)),
            learning_rate=rate,
            max_gradient_norm=base.max_gradient_norm,
            **common,
        )
    chosen = spec.presets[preset]
    return agents.kova(
        _network(spec, env, actions),
        learning_rate=rate,
        observation_variance=base.kova_observation_variance,
        initial_variance=base.kova_initial_variance,
        forgetting=chosen.kova_forgetting,
        jacobian=chosen.kova_jacobian,
        **common,
    )


def _sampling_agent(
    spec: ExperimentSpec, row: RowSpec, preset: PresetName, env: IndoorEscape
) -> Learner:
    chosen, sampling = spec.presets[preset], spec.sampling
    prior = priors.gaussian_mixture(
        sampling.prior_wide_sd,
        sampling.prior_narrow_sd,
        sampling.prior_wide_weight,
        chosen.prior_phase_in,
    )
    own: dict[Algorithm, dict[str, Any]] = {
        "lktd": {"alpha": chosen.lktd_alpha, "latent": chosen.lktd_latent},
        "sghmc": {"friction": chosen.sghmc_friction, "momentum": chosen.sghmc_momentum},
    }
    return SAMPLING_AGENTS[row.algorithm](
        _network(spec, env, env.num_actions),
        prior,
        gradient=chosen.gradient,
        step_size=row.step_size,
        pseudo_population=row.pseudo_population,
        observation_sd=sampling.observation_sd,
        inner_iterations=chosen.inner_iterations,
        inner_power=chosen.inner_power,
        likelihood_weight=chosen.likelihood_weight,
        **own.get(row.algorithm, {}),
    )


def _network(spec: ExperimentSpec, env: IndoorEscape, outputs: int | tuple[int, int]) -> Network:
    init = jax.nn.initializers.normal(spec.network.init_sd)
    return networks.mlp(
        env.observation_shape[0],
        outputs,
        spec.network.hidden,
        activation=spec.network.activation,
        weight_init=init,
        bias_init=init,
    )
