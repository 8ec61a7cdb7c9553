"""The ring on the device: pure functions of one seed's rows."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack.io.arrays import Arrays
from valuetrack.replay.files import (
    named,
    ring_of,
    saved_ahead,
    saved_priority,
    saved_rows,
    saved_written,
)
from valuetrack.replay.forgetting import drawn_ages
from valuetrack.replay.layout import SCALARS, Layout
from valuetrack.replay.n_step import spanning, summed
from valuetrack.replay.prioritised import Priorities
from valuetrack.types import Array, NDArray, Scalar, Transition, Tree, Weighted


class Rows(NamedTuple):
    """Transitions as they lie on the device."""

    numbers: Array
    """One row of float32 per transition; it holds actions and masks, small integers, exactly."""
    observations: Tree
    """The observation and the next one, (..., 2, *shape), in their own dtype. An empty tuple if
    they are float32 and part of ``numbers``: one slice to write, one gather to read."""
    ahead: Tree = ()
    """How many rows later the episode goes on, 0 if it ends here; an empty tuple if no one asks."""
    priority: Tree = ()
    """What each row counts in a prioritised memory; an empty tuple in an even one."""


@dataclass(frozen=True)
class DeviceRing:
    """One seed's ring as pure functions."""

    layout: Layout
    capacity: int
    """How many transitions fit, a multiple of ``block``."""
    block: int
    """How many are written at a time. A write never wraps around the end."""
    n_step: int = 1
    """How many steps a drawn transition spans at most."""
    alpha: float = 0.0
    """Of a prioritised memory; 0 for an even one."""
    half_life: float | None = None
    """After how many transitions one is drawn half as often; ``None`` for never."""

    def __post_init__(self) -> None:
        """Refuse a capacity that is not made of whole blocks."""
        if self.capacity < 1 or self.capacity % self.block:
            raise ValueError(
                f"The capacity of a ring is a positive multiple of the {self.block} transitions "
                f"written at a time, which {self.capacity} is not."
            )

    def init(self) -> Rows:
        """Return an empty ring."""
        layout = self.layout
        numbers = jnp.zeros((self.capacity, layout.width))
        ahead: Tree = jnp.zeros(self.capacity, jnp.int32) if self.n_step > 1 else ()
        priority: Tree = jnp.zeros(self.priorities.size) if self.alpha else ()
        if layout.is_packed:
            return Rows(numbers, (), ahead, priority)
        shape = (self.capacity, 2, *layout.observation_shape)
        return Rows(numbers, jnp.zeros(shape, layout.observation_dtype), ahead, priority)

    @property
    def priorities(self) -> Priorities:
        """How rows of a prioritised memory are drawn."""
        return Priorities(self.capacity, self.alpha)

    def pack(self, transitions: Transition, ahead: Tree = ()) -> Rows:
        """Turn transitions, with any leading axes, into rows.

        For n-step transitions ``ahead`` says how many rows later each one's episode goes on.
        """
        layout, t = self.layout, transitions
        xp: ModuleType = jnp if isinstance(t.action, jax.Array) else np
        lead = t.action.shape
        both = (t.observation, t.next_observation)
        parts = [xp.stack([t.action, t.reward, t.discount, t.next_action], axis=-1), t.next_mask]
        own: Tree = ()
        if layout.is_packed:
            parts = [*(part.reshape(*lead, layout.observation_size) for part in both), *parts]
        else:
            own = xp.stack(both, axis=len(lead)).astype(layout.observation_dtype)
        numbers = xp.concatenate([part.astype(np.float32) for part in parts], axis=-1)
        return Rows(numbers, own, ahead if self.n_step > 1 else ())

    def unpack(self, rows: Rows) -> Transition:
        """Turn rows, with any leading axes, back into transitions."""
        layout, numbers = self.layout, rows.numbers
        lead = numbers.shape[:-1]
        if layout.is_packed:
            size, shape = layout.observation_size, (*lead, *layout.observation_shape)
            observation = numbers[..., :size].reshape(shape)
            following = numbers[..., size : 2 * size].reshape(shape)
            numbers = numbers[..., 2 * size :]
        else:
            before = (slice(None),) * len(lead)
            observation, following = (rows.observations[(*before, i)] for i in range(2))
        return Transition(
            observation=observation,
            action=numbers[..., 0].astype(np.int32),
            reward=numbers[..., 1],
            discount=numbers[..., 2],
            next_observation=following,
            next_action=numbers[..., 3].astype(np.int32),
            next_mask=numbers[..., SCALARS:] > 0.5,
        )

    def write(self, ring: Rows, new: Rows, writes: Scalar) -> Rows:
        """Write one block; ``writes`` is how many were written before, one number for all seeds."""
        position = self._position(writes)
        if self.alpha:
            largest = self.priorities.of_new(jnp, ring.priority)
            new = new._replace(priority=jnp.full(self.block, largest))

        def leaf(stored: Array, block: Array) -> Array:
            return jax.lax.dynamic_update_slice_in_dim(stored, block, position, axis=0)

        written: Rows = jax.tree.map(leaf, ring, new)
        return written

    def _position(self, writes: Scalar) -> Scalar:
        """Return where the block goes that is written after so many."""
        return writes % (self.capacity // self.block) * self.block

    def filled(self, writes: Scalar) -> Tree:
        """Return how many transitions a ring holds after so many writes, traced or not."""
        whole = self.capacity // self.block
        blocks = min(writes, whole) if isinstance(writes, int) else jnp.minimum(writes, whole)
        return blocks * self.block

    def draw(self, ring: Rows, uniforms: Array, writes: Scalar) -> Transition:
        """Draw with replacement: one transition per number in [0, 1), by age if it forgets.

        At least one block must have been written; compiled code cannot check that.
        """
        size = self.filled(writes)
        if self.half_life is not None:
            ages = drawn_ages(jnp, uniforms, size, self.half_life)
            return self._drawn(ring, (self._position(writes) - 1 - ages) % self.capacity, writes)
        chosen = jnp.minimum((uniforms * size).astype(jnp.int32), size - 1)
        return self._drawn(ring, chosen, writes)

    def draw_prioritised(
        self, ring: Rows, uniforms: Array, writes: Scalar, beta: Scalar
    ) -> tuple[Weighted, Array]:
        """Draw by priority; also return the rows, for :meth:`renewed`."""
        size = self.filled(writes)
        chosen = self.priorities.draw(jnp, ring.priority, uniforms, size, beta)
        return Weighted(self._drawn(ring, chosen.rows, writes), chosen.weights), chosen.rows

    def renewed(self, priority: Array, rows: Array, errors: Array) -> Array:
        """Return the priorities after an update that found these errors."""
        return priority.at[rows].set(self.priorities.of_errors(jnp, errors))

    def _drawn(self, ring: Rows, chosen: Array, writes: Scalar) -> Transition:
        """Return the transitions that begin in these rows."""
        first = self.unpack(jax.tree.map(lambda stored: stored[chosen], ring))
        if self.n_step == 1:
            return first
        end, reward = self._position(writes), 2 * self.layout.observation_size + 1
        if not self.layout.is_packed:
            reward = 1

        def follow(rows: Array) -> Array:
            ahead, age = ring.ahead[rows], (end - 1 - rows) % self.capacity
            # What would be ahead of the newest row is the oldest one.
            return jnp.where(ahead <= age, (rows + ahead) % self.capacity, rows)

        found = summed(
            jnp, chosen, self.n_step, follow,
            lambda rows: ring.numbers[rows, reward], lambda rows: ring.numbers[rows, reward + 1],
        )  # fmt: skip
        last = self.unpack(jax.tree.map(lambda stored: stored[found.last], ring))
        return spanning(first, last, found)

    def newest(self, ring: Rows, writes: Scalar) -> Transition:
        """Return the block that was written last, (block, ...)."""
        position = self._position(writes - 1)
        if self.n_step > 1:
            return self._drawn(ring, position + jnp.arange(self.block), writes)

        def leaf(stored: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(stored, position, self.block, axis=0)

        return self.unpack(jax.tree.map(leaf, ring))

    def arrays(self, rings: Rows, writes: int) -> dict[str, NDArray]:
        """Return the filled rows of all seeds as named arrays.

        ``rings`` are NumPy arrays, each with a leading axis of seeds: a slice on the device would
        be compiled anew for each length.
        """
        filled = self.filled(writes)
        rows = self.unpack(jax.tree.map(lambda stored: stored[:, :filled], rings))
        written = np.full(len(rings.numbers), writes * self.block, np.int64)
        kept = {"ahead": rings.ahead, "priority": rings.priority}
        more = {
            name: part[:, :filled] for name, part in kept.items() if not isinstance(part, tuple)
        }
        return named(rows, written, more)

    def restore(self, arrays: Arrays, seeds: int, writes: int) -> Rows:
        """Return the rings of all seeds that hold what was saved after so many writes.

        Raises
        ------
        ValueError
            If the arrays are not those of such rings.
        """
        written = saved_written(arrays, seeds, writes * self.block)
        if (written != writes * self.block).any():
            raise ValueError("the saved replay memory counts transitions that cannot exist")
        filled = self.filled(writes)
        ahead = saved_ahead(arrays, (seeds, filled), self.capacity) if self.n_step > 1 else ()
        saved = self.pack(saved_rows(arrays, self.layout, seeds, filled), ahead)
        rings: Rows = jax.tree.map(lambda rows: ring_of(rows, self.capacity), saved)
        if self.alpha:
            priority = saved_priority(arrays, (seeds, filled))
            rings = rings._replace(priority=ring_of(priority, self.priorities.size))
        return rings
