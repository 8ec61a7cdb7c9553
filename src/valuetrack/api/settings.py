"""From an agent's options to the settings of its trainer."""

from __future__ import annotations

import math
import os

import jax

from valuetrack.api.options import POOL_BYTES, POOL_SPAN, Options
from valuetrack.learner import Learner
from valuetrack.training.trainer import Settings

MOST_SAMPLES = 1_000
"""How many parameter samples the pool holds at most, unless its size is given."""


def settings_of(options: Options, learner: Learner, seeds: int) -> Settings:
    """Return how acting and learning take turns."""
    cycle = options.steps_per_update * options.environments
    capacity = options.replay_capacity
    pool_size, thinning = pool_of(options, learner, seeds)
    return Settings(
        exploration=options.exploration(),
        steps_per_update=options.steps_per_update,
        updates_per_cycle=options.updates_per_cycle,
        environments=options.environments,
        replay_capacity=None if capacity is None else -(-capacity // cycle) * cycle,
        batch_size=options.batch_size,
        learning_starts=options.learning_starts,
        discount=options.discount,
        pool_size=pool_size,
        thinning=thinning,
    )


def pool_of(options: Options, learner: Learner, seeds: int) -> tuple[int, int]:
    """Return how many parameter samples the pool holds, and one per how many updates."""
    state = jax.eval_shape(learner.init, jax.random.key(0))
    leaves = jax.tree.leaves(state.sampler.params)
    size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
    fitting = min(MOST_SAMPLES, POOL_BYTES // (size * seeds))
    samples = options.samples or fitting
    return samples, options.thinning or max(1, -(-POOL_SPAN // max(1, samples)))


def memory_of_machine() -> float:
    """Return the bytes of memory of this machine; no limit where it does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
