r"""A guard against values that run away.

With rewards up to :math:`r_{\max}` in size, no policy has values beyond

.. math:: b = \frac{r_{\max}}{1 - \gamma}.

A sampler whose step is too large, or whose target network follows too fast, goes beyond that and
on to infinity. Under the guard,

* targets are cut off at :math:`\pm b`, which no right one exceeds;
* an update that takes values beyond :math:`2b`, and further out than they were by a hundredth, is
  undone;
* the step is halved after five such updates in a row, and after a hundred updates in a row with
  values beyond :math:`2b`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from valuetrack.measurement import Measurement, TargetBatch
from valuetrack.samplers.base import Info, Sampler
from valuetrack.types import Apply, Array, Params, Transition, Tree

MARGIN = 2.0
"""How many times the bound values may reach: samples scatter around the truth."""
GROWTH = 1.01
"""By which factor values beyond that may grow in an update."""
ROWS = 16
"""At how many observations of a batch values are looked at."""
UNDONE, BEYOND = 5, 100
"""How many updates in a row are undone, or leave values beyond, before the step is halved."""
SMALLEST = 2.0**-20
"""What is left of the step at least."""


class GuardState(NamedTuple):
    """What a guard remembers."""

    factor: Array
    """What is left of the step."""
    halvings: Array
    """How often it was halved."""
    undone: Array
    beyond: Array
    """How many updates in a row were undone, and how many have left values beyond the bound."""
    largest_reward: Array
    largest_start: Array
    """The size of the largest reward so far, and of the largest value before the first update."""


class GuardedBatch(NamedTuple):
    """The data of an update, and the bound of its targets."""

    data: Tree
    bound: Array


def guarded(
    make: Callable[[Measurement], Sampler],
    measurement: Measurement,
    apply: Apply,
    discount: float,
) -> Sampler:
    r"""Return a sampler with a guard, for values ``apply(params, observations)``.

    Parameters
    ----------
    make
        From a measurement model to LKTD, SGLD or SGHMC: the state has ``units``, which scale the
        step.
    measurement
        The model. Its data are transitions, or a :class:`~valuetrack.measurement.TargetBatch`.
    apply
        The network, whose outputs are values.
    discount
        gamma. There is no bound for 1, and no guard then.

    Notes
    -----
    Before the first reward that is not zero, nothing is known and nothing is done. Values that the
    network begins with are allowed, however large. As long as values stay within the bound, a
    sampler is the same with a guard as without, up to rounding.
    """
    if discount >= 1:
        return make(measurement)
    sampler = make(_with_bounded_targets(measurement))

    def init(params: Params) -> Tree:
        state = sampler.init(params)
        one, none, zero = jnp.float32(1), jnp.int32(0), jnp.float32(0)
        guard = GuardState(one, none, none, none, zero, zero)
        return state._replace(units=state.units._replace(guard=guard))

    def step(key: Array, state: Tree, data: Tree) -> tuple[Tree, Info]:
        batch: Transition = data.transitions if isinstance(data, TargetBatch) else data
        guard: GuardState = state.units.guard

        def largest(params: Params) -> Array:
            return jnp.max(jnp.abs(apply(params, batch.observation[:ROWS])))

        reward = jnp.maximum(guard.largest_reward, jnp.max(jnp.abs(batch.reward)))
        bound = jnp.where(reward == 0, jnp.inf, reward / (1 - discount))
        after, info = sampler.step(key, state, GuardedBatch(data, bound))
        before, now = largest(state.params), largest(after.params)
        start = jnp.where(state.updates == 0, before, guard.largest_start)
        most = MARGIN * jnp.maximum(bound, start)
        is_fine = now <= jnp.maximum(most, GROWTH * before)  # false of a NaN, too
        kept = jax.tree.map(
            lambda new, old: jnp.where(is_fine, new, old), after, _held(state, after)
        )
        known = _counted(guard, is_fine, now <= most)
        known = known._replace(largest_reward=reward, largest_start=start)
        # What an update has made infinite is gone once it is undone.
        finite = info.finite | (~is_fine & jnp.isfinite(before) & jnp.isfinite(reward))
        kept = kept._replace(units=kept.units._replace(guard=known))
        return kept, info._replace(finite=finite)

    return Sampler(init, step)


def _with_bounded_targets(measurement: Measurement) -> Measurement:
    def predict(params: Params, batch: GuardedBatch) -> Array:
        return measurement.predict(params, batch.data)

    def observe(params: Params, batch: GuardedBatch) -> Array:
        return jnp.clip(measurement.observe(params, batch.data), -batch.bound, batch.bound)

    square = measurement.square
    return Measurement(
        predict, observe, None if square is None else lambda batch: square(batch.data)
    )


def _counted(guard: GuardState, is_fine: Array, is_within: Array) -> GuardState:
    """Return the guard after an update: the step is halved where that happens too often."""
    undone = jnp.where(is_fine, 0, guard.undone + 1)
    beyond = jnp.where(is_within, 0, guard.beyond + 1)
    halves = (undone >= UNDONE) | (beyond >= BEYOND)
    return guard._replace(
        factor=jnp.maximum(jnp.where(halves, 0.5, 1.0) * guard.factor, SMALLEST),
        halvings=guard.halvings + halves,
        undone=jnp.where(halves, 0, undone),
        beyond=jnp.where(halves, 0, beyond),
    )


def _held(before: Tree, after: Tree) -> Tree:
    """Return the state before an update that is undone: at rest, with the update counted."""
    held = before._replace(updates=after.updates)
    if hasattr(held, "velocity"):
        held = held._replace(velocity=jax.tree.map(jnp.zeros_like, held.velocity))
    return held
