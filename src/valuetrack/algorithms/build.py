"""From an algorithm's name and options to its agent."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from valuetrack import agents, networks, priors, schedules
from valuetrack.algorithms import options as opts
from valuetrack.learner import Learner
from valuetrack.networks import Network
from valuetrack.training.compiled import LoopSettings

MOST_SAMPLES = 1_000
"""How many parameter samples the pool holds at most unless its size is given."""


class Task(NamedTuple):
    """What an agent must know of an environment."""

    shape: tuple[int, ...]
    is_image: bool
    actions: int


def build_network(task: Task, options: opts.Options, outputs: int | tuple[int, int]) -> Network:
    """Make the network: convolutions for images, layers for everything else."""
    if not task.is_image:
        if options.convolutions is not None:
            raise ValueError(
                f"`convolutions` are for images, and an observation of shape {task.shape} is none: "
                "an image has three axes and at least 5 x 5 pixels."
            )
        return networks.mlp(task.shape, outputs, options.hidden, activation=options.activation)
    convolutions = options.convolutions or networks.fitting_convolutions(task.shape)
    return networks.cnn(
        task.shape,
        outputs,
        convolutions=convolutions,
        hidden=options.hidden,
        activation=options.activation,
    )


def build_lktd(task: Task, options: opts.LKTDOptions) -> Learner:
    """Make an LKTD agent."""
    own = {"alpha": options.alpha, "latent": options.latent}
    return _sampling(agents.lktd, task, options, **own)


def build_sgld(task: Task, options: opts.SGLDOptions) -> Learner:
    """Make an SGLD agent."""
    return _sampling(agents.sgld, task, options)


def build_sghmc(task: Task, options: opts.SGHMCOptions) -> Learner:
    """Make an SGHMC agent."""
    own = {"friction": options.friction, "momentum": options.momentum}
    return _sampling(agents.sghmc, task, options, **own)


def build_dqn(task: Task, options: opts.DQNOptions) -> Learner:
    """Make a DQN agent."""
    network = build_network(task, options, task.actions)
    return agents.dqn(
        network,
        **_baseline(options),
        max_gradient_norm=options.max_gradient_norm,
        loss=options.loss,
    )


def build_bootdqn(task: Task, options: opts.BootDQNOptions) -> Learner:
    """Make a bootstrapped DQN agent."""
    return agents.bootdqn(
        build_network(task, options, (options.heads, task.actions)),
        heads=options.heads,
        mask_probability=options.mask_probability,
        head_every=options.head_every,
        max_gradient_norm=options.max_gradient_norm,
        **_baseline(options),
    )


def build_qrdqn(task: Task, options: opts.QRDQNOptions) -> Learner:
    """Make a quantile-regression DQN agent."""
    network = build_network(task, options, (task.actions, options.quantiles))
    norm = options.max_gradient_norm
    return agents.qrdqn(network, **_baseline(options), max_gradient_norm=norm)


def build_kova(task: Task, options: opts.KOVAOptions) -> Learner:
    """Make a KOVA agent, if the covariance of its parameters fits into memory."""
    network = build_network(task, options, task.actions)
    count = networks.parameter_count(jax.eval_shape(network.init, jax.random.key(0)))
    needed, there = 4 * count**2, memory_of_machine()
    if needed > there:
        raise ValueError(
            f"KOVA keeps a covariance of {count:,} x {count:,} parameters, {needed / 1e9:,.0f} GB, "
            f"and this machine has {there / 1e9:,.0f} GB; choose a smaller network with `hidden`."
        )
    return agents.kova(
        network,
        observation_variance=options.observation_variance,
        initial_variance=options.initial_variance,
        process_variance=options.process_variance,
        forgetting=options.forgetting,
        jacobian=options.jacobian,
        **_baseline(options),
    )


def loop_settings(options: opts.Options, agent: Learner, seeds: int) -> LoopSettings:
    """Return how acting and learning take turns."""
    cycle = options.steps_per_update * options.environments
    capacity = options.replay_capacity
    samples, thinning = _pool(options, agent, seeds)
    return LoopSettings(
        exploration=schedules.linear(
            options.exploration_initial, options.exploration_final, options.exploration_steps
        ),
        steps_per_update=options.steps_per_update,
        updates_per_cycle=options.updates_per_cycle,
        environments=options.environments,
        replay_capacity=None if capacity is None else -(-capacity // cycle) * cycle,
        batch_size=options.batch_size,
        learning_starts=options.learning_starts,
        discount=options.discount,
        pool_size=1,
        parameter_samples=samples,
        thinning=thinning,
        overlap=options.overlap,
    )


def _sampling(
    make: Callable[..., Learner], task: Task, options: opts.SamplerOptions, **own: Any
) -> Learner:
    if options.prior_narrow_sd is None:
        prior = priors.gaussian(options.prior_sd)
    else:
        prior = priors.gaussian_mixture(
            options.prior_sd, options.prior_narrow_sd, options.prior_wide_weight
        )
    return make(
        build_network(task, options, task.actions),
        prior,
        form=options.form,
        gradient=options.gradient,
        target_every=options.target_every,
        step_size=options.step_size,
        pseudo_population=options.pseudo_population,
        observation_sd=options.observation_sd,
        inner_iterations=options.inner_iterations,
        inner_power=options.inner_power,
        likelihood_weight=options.likelihood_weight,
        **own,
    )


def _baseline(options: opts.BaselineOptions) -> dict[str, Any]:
    return {
        "learning_rate": options.learning_rate,
        "double": options.double,
        "target_every": options.target_every,
    }


def _pool(options: opts.Options, agent: Learner, seeds: int) -> tuple[int, int]:
    """Return how many parameter samples are kept, and one of how many updates."""
    state = jax.eval_shape(agent.init, jax.random.key(0))
    leaves = jax.tree.leaves(state.sampler.params)
    size = sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)
    fitting = min(MOST_SAMPLES, opts.POOL_BYTES // (size * seeds))
    samples = options.samples or fitting
    return samples, options.thinning or max(1, -(-opts.POOL_SPAN // max(1, samples)))


def memory_of_machine() -> float:
    """Return the bytes of memory of this machine; no limit where it does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
