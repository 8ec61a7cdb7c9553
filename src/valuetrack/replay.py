"""A replay memory as a ring of fixed size, kept in place.

The ring is a NamedTuple of arrays, so it lives inside ``scan`` and ``jit``; carried through a
loop, or donated to a compiled function, it is updated in place and never copied.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from valuetrack.types import Array


class Replay(NamedTuple):
    """A ring of items.

    Attributes
    ----------
    storage
        The pytree of an item, each leaf with a leading axis of the ring's capacity.
    position
        Where the next item goes.
    size
        How many items there are, at most the capacity.
    """

    storage: Any
    position: Array
    size: Array

    @property
    def capacity(self) -> int:
        """How many items fit."""
        return int(jax.tree.leaves(self.storage)[0].shape[0])


def init(example: Any, capacity: int) -> Replay:
    """Make an empty ring for items with the structure, shapes and dtypes of ``example``."""
    if capacity < 1:
        raise ValueError(f"A replay memory needs a capacity of at least 1, not {capacity}.")

    def room(leaf: Any) -> Array:
        leaf = jnp.asarray(leaf)
        return jnp.zeros((capacity, *leaf.shape), leaf.dtype)

    return Replay(jax.tree.map(room, example), jnp.int32(0), jnp.int32(0))


def add(replay: Replay, items: Any) -> Replay:
    """Put in a batch of items (leading axis of any length up to the capacity), oldest out."""
    counts = {leaf.shape[0] for leaf in jax.tree.leaves(items)}
    if len(counts) != 1:
        raise ValueError(f"Items need one leading axis of the same length; theirs are {counts}.")
    (count,) = counts
    capacity = replay.capacity
    if count > capacity:
        raise ValueError(f"{count} items do not fit into a replay memory of {capacity}.")
    where = (replay.position + jnp.arange(count, dtype=jnp.int32)) % capacity

    def write(stored: Array, new: Array) -> Array:
        new = jnp.asarray(new, stored.dtype)
        if count == 1:  # a slice is cheaper than a scatter, and one item never wraps around
            return jax.lax.dynamic_update_slice_in_dim(stored, new, replay.position, axis=0)
        return stored.at[where].set(new, unique_indices=True)

    return Replay(
        storage=jax.tree.map(write, replay.storage, items),
        position=(replay.position + count) % capacity,
        size=jnp.minimum(replay.size + count, capacity),
    )


def sample(key: Array, replay: Replay, batch_size: int) -> Any:
    """Draw a batch uniformly with replacement from the items that are there.

    The ring must hold at least one item; a compiled function cannot check that for the caller.
    """
    chosen = jax.random.randint(key, (batch_size,), 0, replay.size)
    return jax.tree.map(lambda stored: stored[chosen], replay.storage)
