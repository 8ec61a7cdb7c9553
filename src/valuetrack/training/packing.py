"""Transitions as rows of one array of floats."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp

from valuetrack.types import Array, Transition


class Packing(NamedTuple):
    """A transition as one row of floats: one slice to write it, one gather to read a batch.

    Actions and masks are small integers, which float32 holds exactly.
    """

    observation_shape: tuple[int, ...]
    actions: int

    @property
    def observation_size(self) -> int:
        """Numbers in an observation."""
        return math.prod(self.observation_shape)

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return 2 * self.observation_size + 4 + self.actions

    def pack(self, t: Transition) -> Array:
        """Turn one transition into a row."""
        scalars = jnp.stack([t.action, t.reward, t.discount, t.next_action]).astype(jnp.float32)
        parts = [t.observation.ravel(), t.next_observation.ravel(), scalars, t.next_mask]
        return jnp.concatenate([part.astype(jnp.float32) for part in parts])

    def unpack(self, row: Array) -> Transition:
        """Turn a row back into the transition."""
        size = self.observation_size
        scalars = row[2 * size : 2 * size + 4]
        return Transition(
            observation=row[:size].reshape(self.observation_shape),
            action=scalars[0].astype(jnp.int32),
            reward=scalars[1],
            discount=scalars[2],
            next_observation=row[size : 2 * size].reshape(self.observation_shape),
            next_action=scalars[3].astype(jnp.int32),
            next_mask=row[2 * size + 4 :] > 0.5,
        )
