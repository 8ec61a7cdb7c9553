"""The one update that every trainer makes: learn, refresh the target, keep the sample."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from valuetrack import posterior
from valuetrack.learner import Learner, LearnerState
from valuetrack.posterior import Pool
from valuetrack.samplers.base import Info
from valuetrack.types import Array, Batch, Scalar


class Learned(NamedTuple):
    """What updates change, for one seed or, with a leading axis, for many."""

    learner: LearnerState
    pool: Pool | tuple[()]
    """The last parameter samples, weighted by their step sizes; an empty tuple if none are kept."""
    diverged: Array
    """The first update after which something was not finite, or -1."""


def start(learner: Learner, key: Array, pool_size: int) -> Learned:
    """Return a fresh learner with an empty pool."""
    state = learner.init(key)
    pool = posterior.init(state.sampler.params, pool_size) if pool_size else ()
    return Learned(state, pool, jnp.int32(-1))


def update(
    learner: Learner,
    key: Array,
    learned: Learned,
    batch: Batch,
    done: Scalar,
    *,
    thinning: int = 1,
    refresh: bool = True,
) -> tuple[Learned, Info]:
    """Make one update; return what is learned, and what was found before it.

    Parameters
    ----------
    done
        How many updates came before; the same number for all seeds, so that a pool is written by
        one slice under ``vmap``.
    thinning
        The pool keeps one sample per this many updates: the last of them. The newest sample is
        always there, as it has its slot until the next one comes.
    refresh
        Whether to refresh the target network when it is due. Callers that refresh it by a clock
        of their own, as Stable-Baselines3 does, say no.
    """
    state, info = learner.update(key, learned.learner, batch)
    if refresh:
        state = refresh_when_due(learner, state, done)
    pool = learned.pool
    if isinstance(pool, Pool):
        slot = (done // thinning) % pool.size
        pool = posterior.add(pool, state.sampler.params, info.step_size, slot)
    diverged = jnp.where((learned.diverged < 0) & ~info.finite, done + 1, learned.diverged)
    return Learned(state, pool, diverged), info


def refresh_when_due(learner: Learner, state: LearnerState, done: Scalar) -> LearnerState:
    """Refresh the target network after the first update and every ``target_every`` updates."""
    if learner.target_every is None:
        return state
    due = done % learner.target_every == 0
    fresh = learner.refresh_target(state)
    target = jax.tree.map(lambda new, old: jnp.where(due, new, old), fresh.target, state.target)
    return state._replace(target=target)
