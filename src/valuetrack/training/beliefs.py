r"""What a learner believed its episodes to be worth, and what came of them.

At the start of an episode the learner believes in a value :math:`v_0`. What comes of it is the
discounted return. The two may differ although the values are right: a greedy learner explores,
and an episode may be cut off. So the value is also compared with what comes as long as the policy
is followed that the values are of,

.. math:: g = \sum_{k < t} \gamma^k r_k + \gamma^t v_t,

where t is the first step at which the learner explores or the episode is cut off, with the value
:math:`v_t` believed there; :math:`v_t` is zero if the episode ends before. If the values are right,
the gap :math:`v_0 - g` is zero in the mean, however much is explored: whether to explore is drawn
without a look at the rewards. Values that are all too large by b have a gap of b x in the mean,
with the *reach* :math:`x = 1 - \gamma^t`, or 1 if the episode ends before. So b is found by
regression of the gaps on the reaches.

All functions take NumPy's arrays and JAX's, one number per environment.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack.types import AnyArray


class Belief(NamedTuple):
    """What was believed of the running episode, and what has come of it so far."""

    start: Any
    """The value at its start; NaN if that is not known."""
    discounted: Any
    """The discounted sum of its rewards."""
    followed: Any
    """g so far, to which nothing is added once the policy is left."""
    reach: Any
    """x if the policy has been left, else 1."""
    power: Any
    """gamma to the power of the steps taken."""
    follows: Any
    """Whether the policy has been followed so far."""


class Ended(NamedTuple):
    """Sums over the episodes that ended, of those whose start value is known."""

    believed: Any
    """How many these are."""
    start_values: Any
    discounted_returns: Any
    squared_returns: Any
    """Their discounted returns, and the squares of these."""
    squared_reaches: Any
    reached_gaps: Any
    squared_gaps: Any
    """x^2, x (v_0 - g) and (v_0 - g)^2."""


def forgotten(belief: Belief) -> Belief:
    """Return running episodes of whose start nothing is known; they are never summed up."""
    return belief._replace(start=belief.start + np.float32(np.nan))


def begun(value: AnyArray, follows: AnyArray) -> Belief:
    """Return episodes that have just begun with the action chosen at their start."""
    xp = _module(value)
    zeros = xp.zeros_like(value)
    left = xp.where(follows, zeros, zeros + 1)
    return Belief(value, zeros, left * value, 1 - left, zeros + 1, follows)


def paid(belief: Belief, reward: AnyArray, discount: float) -> Belief:
    """Return the episodes after a step that paid a reward."""
    xp = _module(belief.power)
    gained = belief.power * reward
    return belief._replace(
        discounted=belief.discounted + gained,
        followed=belief.followed + xp.where(belief.follows, gained, 0.0),
        power=belief.power * xp.asarray(discount, belief.power.dtype),
    )


def chosen(belief: Belief, value: AnyArray, follows: AnyArray) -> Belief:
    """Return the episodes after the choice of an action, which may leave the policy."""
    xp = _module(belief.power)
    rest = xp.where(belief.follows & ~follows, belief.power, 0.0)
    return belief._replace(
        followed=belief.followed + xp.where(rest > 0, rest * value, 0.0),
        reach=belief.reach - rest,
        follows=belief.follows & follows,
    )


def ended(belief: Belief, over: AnyArray, truncated: AnyArray, value: AnyArray) -> Ended:
    """Return the sums of the episodes that are over, over the last axis.

    ``value`` is that of the state in which an episode was cut off.
    """
    xp = _module(belief.power)
    rest = xp.where(belief.follows & truncated, belief.power, 0.0)
    gap = belief.start - belief.followed - xp.where(rest > 0, rest * value, 0.0)
    reach = belief.reach - rest
    known = over & xp.isfinite(gap)

    def total(numbers: AnyArray) -> Any:
        return xp.sum(xp.where(known, numbers, 0.0), axis=-1)

    returns = belief.discounted
    return Ended(
        xp.sum(known, axis=-1, dtype=np.int32),
        *map(total, (belief.start, returns, returns**2, reach**2, reach * gap, gap**2)),
    )


def renewed(starts: AnyArray, fresh: Belief, going_on: Belief) -> Belief:
    """Return fresh episodes where one starts, and those that go on elsewhere."""
    xp = _module(going_on.power)
    return Belief(*(xp.where(starts, new, old) for new, old in zip(fresh, going_on, strict=True)))


def _module(array: object) -> ModuleType:
    return jnp if isinstance(array, jax.Array) else np
