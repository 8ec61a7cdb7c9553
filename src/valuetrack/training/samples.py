"""What both trainers keep of a run of updates: parameter samples, and where it diverged."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from valuetrack.samplers.base import Info
from valuetrack.types import Array, Params


def empty(params: Params, count: int) -> Params:
    """Return room for so many samples, each leaf with a leading axis; an empty tuple for none."""
    if not count:
        return ()
    return jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), params)


def keep(kept: Params, params: Params, done: Array, thinning: int) -> Params:
    """Put a sample into its slot of the ring, over the earlier ones of the same ``thinning``.

    ``done`` counts the updates before this one. A slot is written at each of its ``thinning``
    updates and keeps the last, so that the newest sample is always there.
    """
    if not jax.tree.leaves(kept):
        return kept

    def write(ring: Array, new: Array) -> Array:
        slot = (done // thinning) % ring.shape[0]
        return jax.lax.dynamic_update_slice_in_dim(ring, new[None], slot, axis=0)

    return jax.tree.map(write, kept, params)


def newest_first(count: int, updates: int, thinning: int) -> list[int]:
    """Return the slots that hold a sample after so many updates, the newest first."""
    if not updates:
        return []
    newest = (updates - 1) // thinning
    return [slot % count for slot in range(newest, max(-1, newest - count), -1)]


def first_divergence(diverged: Array, info: Info, done: Array) -> Array:
    """Return the first update after which something was not finite, or -1."""
    return jnp.where((diverged < 0) & ~info.finite, done + 1, diverged)
