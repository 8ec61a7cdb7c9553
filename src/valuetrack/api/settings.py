"""From an agent's options to the settings of its trainer."""

from __future__ import annotations

import math
import os
import warnings

import jax

from valuetrack.api.options import POOL_BYTES, POOL_SPAN, Options
from valuetrack.learner import Learner
from valuetrack.training.trainer import Settings

MOST_SAMPLES = 1_000
LEAST_SAMPLES = 100
"""How many parameter samples the pool of a seed holds at most and at least, unless its size is
given."""
POOL_SHARE = 0.25
"""Which share of the machine's memory the pools of all seeds take at most together."""


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
        n_step=options.n_step,
        half_life=options.replay_half_life,
        **options.priorities(),
        pool_size=pool_size,
        thinning=thinning,
    )


def pool_of(options: Options, learner: Learner, seeds: int) -> tuple[int, int]:
    """Return how many parameter samples the pool of a seed holds, and one per how many updates.

    By default as many as fit into :data:`~valuetrack.api.options.POOL_BYTES`, whatever the number
    of seeds, and enough for intervals, as far as the machine's memory allows.
    """
    size = sample_bytes(learner)
    wanted = min(MOST_SAMPLES, max(POOL_BYTES // size, enough_samples(learner)))
    fitting = min(wanted, POOL_SHARE * memory_of_machine() / (size * seeds))
    samples = options.samples or int(fitting)
    return samples, options.thinning or max(1, -(-POOL_SPAN // max(1, samples)))


def enough_samples(learner: Learner) -> int:
    """Return how many parameter samples make the fewest samples of values, which heads share."""
    return -(-LEAST_SAMPLES // learner.heads)


def sample_bytes(learner: Learner) -> int:
    """Return how much memory one sample of the parameters takes."""
    state = jax.eval_shape(learner.init, jax.random.key(0))
    leaves = jax.tree.leaves(state.sampler.params)
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def warn_of_small_pool(
    options: Options, learner: Learner, settings: Settings, seeds: int, stacklevel: int
) -> None:
    """Say so if memory allows fewer samples than intervals need, and nobody asked for so few."""
    enough = enough_samples(learner)
    if options.samples is not None or settings.pool_size >= enough:
        return
    total = enough * sample_bytes(learner) * seeds
    warnings.warn(
        f"Memory allows {settings.pool_size} parameter samples per seed rather than {enough}, too "
        "few for most intervals of kind='credible'; train fewer seeds or a smaller network, or set "
        f"samples={enough} to let the pools take {total / 1e9:,.1f} GB of this machine's "
        f"{memory_of_machine() / 1e9:,.0f} GB.",
        UserWarning,
        stacklevel=stacklevel + 1,
    )


def memory_of_machine() -> float:
    """Return the bytes of memory of this machine; no limit where it does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
