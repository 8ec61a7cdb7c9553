"""From Q-values to actions, with illegal actions never taken and never maximised over."""

from __future__ import annotations

import jax.numpy as jnp

from valuetrack.types import Array, Scalar

POLICY_UNIFORMS = 2
"""How many uniform numbers an epsilon-greedy action consumes."""
PROBABILITY_TOLERANCE = 1e-3
"""How far from one the sum of a given policy's probabilities may be, in single precision."""
NO_POLICY = -1
"""The action where a given policy has no probabilities of legal actions."""


def masked_values(q: Array, mask: Array | None) -> Array:
    """Return the Q-values with illegal actions at minus infinity."""
    return q if mask is None else jnp.where(mask, q, -jnp.inf)


def greedy(q: Array, mask: Array | None = None) -> Array:
    """Return the legal action of the largest value; ties go to the smallest index.

    A state without any legal action (a terminal one) gives action 0, which nobody takes.
    """
    return jnp.argmax(masked_values(q, mask), axis=-1)


def masked_max(q: Array, mask: Array | None = None) -> Array:
    """Return the largest legal value, and 0 where no action is legal.

    The zero matters: such a state is terminal, its discount is 0, and 0 times minus infinity
    would put a NaN into the target.
    """
    largest = jnp.max(masked_values(q, mask), axis=-1)
    return largest if mask is None else jnp.where(jnp.any(mask, axis=-1), largest, 0.0)


def select(q: Array, action: Array) -> Array:
    """Return Q(s, a) from the vector of all actions' values along the last axis.

    A sum over a comparison rather than a gather: its gradient is no scatter, and both fuse.
    """
    chosen = action[..., None] == jnp.arange(q.shape[-1])
    return jnp.sum(jnp.where(chosen, q, 0.0), axis=-1)


def uniform_legal(uniform: Array, mask: Array) -> Array:
    """Turn one uniform number into an action drawn evenly from the legal ones."""
    legal = jnp.cumsum(mask.astype(jnp.int32), axis=-1)
    count = legal[..., -1]
    rank = jnp.minimum(jnp.floor(uniform * count).astype(jnp.int32), count - 1)
    return jnp.argmax(legal > rank[..., None], axis=-1)


def action_probabilities(q: Array, mask: Array, epsilon: Scalar) -> Array:
    """Return the epsilon-greedy probabilities of the actions; zeros where none is legal."""
    legal = mask.astype(q.dtype)
    even = legal / jnp.maximum(jnp.sum(legal, axis=-1, keepdims=True), 1.0)
    best = greedy(q, mask)[..., None] == jnp.arange(q.shape[-1])
    return epsilon * even + (1.0 - epsilon) * jnp.where(best & mask, 1.0, 0.0)


def epsilon_greedy(uniforms: Array, q: Array, mask: Array, epsilon: Scalar) -> Array:
    """Take a random legal action with probability ``epsilon``, else the greedy legal one.

    ``uniforms`` has two numbers in [0, 1) along its last axis: whether to explore, and which
    action then. Randomness comes in as numbers rather than as a key, so that a training loop can
    draw it for many steps in one call.
    """
    explore = uniforms[..., 0] < epsilon
    return jnp.where(explore, uniform_legal(uniforms[..., 1], mask), greedy(q, mask))


def draw_action(uniform: Array, probabilities: Array, mask: Array) -> Array:
    """Turn one uniform number into an action drawn with the given probabilities.

    The result is :data:`NO_POLICY` where they are negative or do not sum to one over the legal
    actions, as compiled code cannot raise. A state without any legal action gives action 0.

    Examples
    --------
    >>> legal = jnp.array([True, True, False])
    >>> int(draw_action(jnp.float32(0.7), jnp.array([0.5, 0.5, 0.0]), legal))
    1
    >>> int(draw_action(jnp.float32(0.7), jnp.array([0.5, 0.0, 0.5]), legal))
    -1
    """
    legal = jnp.where(mask, probabilities, 0.0)
    total = jnp.sum(legal, axis=-1)
    fits = (jnp.abs(total - 1.0) <= PROBABILITY_TOLERANCE) & jnp.all(probabilities >= 0.0, axis=-1)
    # Rounding may let a sum grow, or stop short of the last action: only those with a probability
    # are chosen, and the likeliest where the sum does not get there.
    reached = (legal > 0.0) & (jnp.cumsum(legal, axis=-1) > (uniform * total)[..., None])
    chosen = jnp.where(jnp.any(reached, axis=-1), jnp.argmax(reached, -1), jnp.argmax(legal, -1))
    return jnp.where(jnp.any(mask, axis=-1), jnp.where(fits, chosen, NO_POLICY), 0)
