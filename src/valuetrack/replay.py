"""Replay memory: a ring of transitions, on the device or on the host.

Both rings offer the same: ``write`` transitions over the oldest ones, ``draw`` a batch with
uniform numbers, take the ``newest``, count what is ``filled``, and turn into named ``arrays`` and
back with ``restore``. What one ring has saved the other can read.

* :class:`DeviceRing` is a set of pure functions of one seed's rows, which live inside ``jit`` and
  are mapped over seeds. Carried through a loop, or donated to a compiled function, the rows are
  updated in place and never copied.
* :class:`HostRing` holds NumPy arrays for all seeds, for environments that run in Python.

Observations keep their dtype in both, so that a pixel of an image takes one byte.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack.io.arrays import Arrays
from valuetrack.types import Array, DType, NDArray, Scalar, Transition, Tree

PREFIX = "replay"
"""What the names of saved arrays begin with."""
MOST_WRITTEN = 2**62
"""Counts of transitions stay below it, so that positions in a ring do not overflow."""
SCALARS = 4
"""Action, reward, discount and next action."""


@dataclass(frozen=True)
class Layout:
    """What one transition looks like."""

    observation_shape: tuple[int, ...]
    observation_dtype: DType
    actions: int

    @property
    def fields(self) -> dict[str, tuple[tuple[int, ...], DType]]:
        """Shape and dtype of each field of a transition."""
        observation = (tuple(self.observation_shape), np.dtype(self.observation_dtype))
        index, number = ((), np.dtype(np.int32)), ((), np.dtype(np.float32))
        return {
            "observation": observation,
            "action": index,
            "reward": number,
            "discount": number,
            "next_observation": observation,
            "next_action": index,
            "next_mask": ((self.actions,), np.dtype(bool)),
        }

    @property
    def is_packed(self) -> bool:
        """Whether observations are stored in the same array as all other numbers."""
        return np.dtype(self.observation_dtype) == np.float32

    @property
    def observation_size(self) -> int:
        """How many numbers an observation has."""
        return math.prod(self.observation_shape)

    @property
    def width(self) -> int:
        """How many float32 numbers a row has."""
        return SCALARS + self.actions + (2 * self.observation_size if self.is_packed else 0)


class Rows(NamedTuple):
    """Transitions as they lie on the device."""

    numbers: Array
    """One row of float32 per transition; it holds actions and masks, small integers, exactly."""
    observations: Tree
    """The observation and the next one, (..., 2, *shape), in their own dtype. An empty tuple if
    they are float32 and part of ``numbers``: one slice to write, one gather to read."""


@dataclass(frozen=True)
class DeviceRing:
    """One seed's ring as pure functions."""

    layout: Layout
    capacity: int
    """How many transitions fit, a multiple of ``block``."""
    block: int
    """How many are written at a time. A write never wraps around the end."""

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
        if layout.is_packed:
            return Rows(numbers, ())
        shape = (self.capacity, 2, *layout.observation_shape)
        return Rows(numbers, jnp.zeros(shape, layout.observation_dtype))

    def pack(self, transitions: Transition) -> Rows:
        """Turn transitions, with any leading axes, into rows."""
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
        return Rows(xp.concatenate([part.astype(np.float32) for part in parts], axis=-1), own)

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
        """Draw uniformly with replacement: one transition per number in [0, 1).

        At least one block must have been written; compiled code cannot check that.
        """
        size = self.filled(writes)
        chosen = jnp.minimum((uniforms * size).astype(jnp.int32), size - 1)
        return self.unpack(jax.tree.map(lambda stored: stored[chosen], ring))

    def newest(self, ring: Rows, writes: Scalar) -> Transition:
        """Return the block that was written last, (block, ...)."""
        position = self._position(writes - 1)

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
        return _named(rows, np.full(len(rings.numbers), writes * self.block, np.int64))

    def restore(self, arrays: Arrays, seeds: int, writes: int) -> Rows:
        """Return the rings of all seeds that hold what was saved after so many writes.

        Raises
        ------
        ValueError
            If the arrays are not those of such rings.
        """
        written = _saved_written(arrays, seeds, writes * self.block)
        if (written != writes * self.block).any():
            raise ValueError("the saved replay memory counts transitions that cannot exist")
        saved = self.pack(_saved_rows(arrays, self.layout, seeds, self.filled(writes)))
        rings: Rows = jax.tree.map(lambda rows: _ring(rows, self.capacity), saved)
        return rings


class HostRing:
    """Rings of so many transitions in NumPy arrays, one per seed.

    Nothing is copied but what is written and what is drawn.
    """

    def __init__(self, layout: Layout, seeds: int, capacity: int) -> None:
        self.layout, self.capacity = layout, capacity
        self.written = np.zeros(seeds, np.int64)
        self.rows: Tree = host_transitions(
            **{
                name: np.zeros((seeds, capacity, *shape), dtype)
                for name, (shape, dtype) in layout.fields.items()
            }
        )

    @property
    def filled(self) -> NDArray:
        """How many transitions each seed holds."""
        return np.minimum(self.written, self.capacity)

    def write(self, which: NDArray, owner: NDArray, transitions: Transition) -> None:
        """Write the transitions of the environments ``which``.

        ``owner`` is every environment's seed; those of a seed stand side by side.
        """
        seeds = owner[which]
        # Each environment writes behind those of its seed that come before it.
        turn = np.arange(len(which)) - np.searchsorted(seeds, seeds)
        position = (self.written[seeds] + turn) % self.capacity
        for ring, new in zip(self.rows, transitions, strict=True):
            ring[seeds, position] = new[which]
        self.written += np.bincount(seeds, minlength=len(self.written))

    def draw(self, uniforms: NDArray) -> Transition:
        """Draw uniformly from each seed's own transitions.

        ``uniforms`` has the shape (seeds, ...), and so have the transitions.
        """
        lead = (-1, *(1,) * (uniforms.ndim - 1))
        size = self.filled.reshape(lead)
        chosen = np.minimum((uniforms * size).astype(np.int64), size - 1)
        seed = np.arange(len(uniforms)).reshape(lead)
        return Transition(*(ring[seed, chosen] for ring in self.rows))

    def newest(self, count: int) -> Transition:
        """Return the last transitions of every seed, (seeds, count, ...), in the order of time.

        A seed that holds fewer repeats them.
        """
        age = (count - 1 - np.arange(count)) % np.maximum(self.filled, 1)[:, None]
        where = (self.written[:, None] - 1 - age) % self.capacity
        seed = np.arange(len(self.written))[:, None]
        return Transition(*(ring[seed, where] for ring in self.rows))

    def clear(self) -> None:
        """Hold no transition, as at the beginning."""
        self.written[:] = 0

    def arrays(self) -> dict[str, NDArray]:
        """Return the rows up to the last one that is filled, as named arrays."""
        filled = int(self.filled.max())
        return _named(Transition(*(ring[:, :filled] for ring in self.rows)), self.written)

    def restore(self, arrays: Arrays, most: int = MOST_WRITTEN) -> None:
        """Hold what was saved; ``most`` is how many transitions a seed can have written.

        Raises
        ------
        ValueError
            If the arrays are not those of rings of this size.
        """
        seeds = len(self.written)
        written = _saved_written(arrays, seeds, most)
        filled = int(np.minimum(written, self.capacity).max())
        saved = _saved_rows(arrays, self.layout, seeds, filled)
        self.written = written.copy()
        self.rows = jax.tree.map(lambda rows: _ring(rows, self.capacity), saved)


def host_transitions(**fields: Tree) -> Transition:
    """Return transitions of NumPy arrays, which have the same fields as those on the device."""
    return Transition(**fields)


def _ring(rows: NDArray, capacity: int) -> NDArray:
    """Return new rings that begin with these rows; the rest of them takes no memory yet."""
    rings = np.zeros((len(rows), capacity, *rows.shape[2:]), rows.dtype)
    rings[:, : rows.shape[1]] = rows
    return rings


def _named(rows: Transition, written: NDArray) -> dict[str, NDArray]:
    named = {f"{PREFIX}.{name}": np.asarray(part) for name, part in rows._asdict().items()}
    return {f"{PREFIX}.written": written, **named}


def _saved_written(arrays: Arrays, seeds: int, most: int) -> NDArray:
    """Return how many transitions each seed had written, if that can be."""
    written = arrays.get(f"{PREFIX}.written")
    if written is None or written.shape != (seeds,) or written.dtype != np.int64:
        raise ValueError("the saved replay memory does not fit")
    if (written < 0).any() or (written > min(most, MOST_WRITTEN - 1)).any():
        raise ValueError("the saved replay memory counts transitions that cannot exist")
    return written


def _saved_rows(arrays: Arrays, layout: Layout, seeds: int, filled: int) -> Transition:
    """Return the saved transitions, (seeds, filled, ...), if they fit the layout."""
    saved = {}
    for name, (shape, dtype) in layout.fields.items():
        rows = arrays.get(f"{PREFIX}.{name}")
        if rows is None or rows.shape != (seeds, filled, *shape) or rows.dtype != dtype:
            raise ValueError("the saved replay memory does not fit")
        saved[name] = rows
    for chosen in (saved["action"], saved["next_action"]):
        if ((chosen < 0) | (chosen >= layout.actions)).any():
            raise ValueError("the saved replay memory holds actions that do not exist")
    return host_transitions(**saved)
