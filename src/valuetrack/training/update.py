"""The one update that every trainer makes: learn, refresh the target, keep the sample."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from valuetrack.learner import Learner, LearnerState
from valuetrack.training import samples
from valuetrack.types import Array, Params, Transition


class Learned(NamedTuple):
    """What updates change, for one seed or, with a leading axis, for many.

    Attributes
    ----------
    learner
        The learner's state.
    samples
        The last parameter samples, each leaf with a leading axis; an empty tuple if none are kept.
    diverged
        The first update after which something was not finite, or -1.
    """

    learner: LearnerState
    samples: Params
    diverged: Array


def start(learner: Learner, key: Array, pool_size: int) -> Learned:
    """Return a fresh learner with an empty pool."""
    state = learner.init(key)
    return Learned(state, samples.empty(state.sampler.params, pool_size), jnp.int32(-1))


def update(
    learner: Learner,
    key: Array,
    learned: Learned,
    batch: Transition,
    done: Array,
    *,
    thinning: int = 1,
    refresh: bool = True,
) -> tuple[Learned, Array]:
    """Make one update; return what is learned and the mean squared residual before it.

    Parameters
    ----------
    learner, key, learned, batch
        Who learns, from what.
    done
        How many updates came before; the same number for all seeds, so that a pool is written by
        one slice under ``vmap``.
    thinning
        The pool keeps one sample per this many updates.
    refresh
        Whether to refresh the target network when it is due. Whoever refreshes it by a clock of
        their own, as Stable-Baselines3 does, says no.
    """
    state, info = learner.update(key, learned.learner, batch)
    if refresh:
        state = refresh_when_due(learner, state, done)
    kept = samples.keep(learned.samples, state.sampler.params, done, thinning)
    diverged = samples.first_divergence(learned.diverged, info, done)
    return Learned(state, kept, diverged), info.mean_squared_residual


def refresh_when_due(learner: Learner, state: LearnerState, done: Array) -> LearnerState:
    """Refresh the target network after the first update and every ``target_every`` updates."""
    if learner.target_every is None:
        return state
    due = done % learner.target_every == 0
    fresh = learner.refresh_target(state)
    target = jax.tree.map(lambda new, old: jnp.where(due, new, old), fresh.target, state.target)
    return state._replace(target=target)
