r"""Temporal-difference errors of transitions, by the values that a learner has now.

.. math:: \delta = r + \gamma\, V(s') - Q(s, a)

V(s') follows the policy that the values are of: the largest legal value, that of the action taken
next, or the mean over the actions of the epsilon-greedy policy.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack.learner import Learner, LearnerState
from valuetrack.policies import action_probabilities, masked_max, select
from valuetrack.types import Array, Floats, Scalar, Transition

BATCH = 512
"""How many transitions are computed at a time."""

Errors = Callable[[LearnerState, Transition, Scalar], Array]
"""(state, transitions, epsilon) -> delta of each."""


def compiled_errors(learner: Learner, key: Array) -> Errors:
    """Return the compiled errors of a learner, whose heads are averaged.

    ``key`` is that of values that are asked for; only learners whose values are random use it.
    """

    def values(state: LearnerState, observations: Array) -> Array:
        return jnp.mean(learner.values(key, state, observations), axis=0)

    def ahead(q: Array, data: Transition, epsilon: Scalar) -> Array:
        if q.shape[-1] == 1:  # V-values
            return q[..., 0]
        if learner.following == "taken":
            return select(q, data.next_action)
        if learner.following == "expected":
            return jnp.sum(action_probabilities(q, data.next_mask, epsilon) * q, axis=-1)
        return masked_max(q, data.next_mask)

    @jax.jit
    def errors(state: LearnerState, data: Transition, epsilon: Scalar) -> Array:
        now, later = values(state, data.observation), values(state, data.next_observation)
        value = now[..., 0] if now.shape[-1] == 1 else select(now, data.action)
        return data.reward + data.discount * ahead(later, data, epsilon) - value

    return errors


def errors_of(
    errors: Errors, state: LearnerState, memory: Transition, epsilon: float = 0.0
) -> Floats:
    """Return the errors of transitions in NumPy, computed some at a time.

    The last batch is filled up with copies to a power of two, so that few programs serve all.
    """
    size, found = len(memory.reward), []
    for first in range(0, size, BATCH):
        count = min(BATCH, size - first)
        rows = first + np.arange(1 << (count - 1).bit_length()) % count
        some: Transition = jax.tree.map(lambda leaf, rows=rows: leaf[rows], memory)
        found.append(np.asarray(errors(state, some, epsilon), np.float64)[:count])
    return np.concatenate(found) if found else np.zeros(0)
