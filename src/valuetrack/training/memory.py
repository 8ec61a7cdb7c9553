"""A replay memory on the host: rings of transitions in plain arrays, one for each seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from valuetrack.types import Transition

NDArray = npt.NDArray[Any]

MOST_WRITTEN = 2**62
"""Counts of transitions stay below it, so that positions in a ring do not overflow."""


class Memory:
    """Rings of transitions.

    Observations keep their dtype, so that an image takes a byte a pixel; nothing is copied but
    what is written and what is drawn.
    """

    def __init__(
        self, seeds: int, capacity: int, shape: tuple[int, ...], dtype: Any, actions: int
    ) -> None:
        room = (seeds, capacity)
        self.capacity, self.actions = capacity, actions
        self.written = np.zeros(seeds, np.int64)
        self.rows = on_host(
            observation=np.zeros((*room, *shape), dtype),
            action=np.zeros(room, np.int32),
            reward=np.zeros(room, np.float32),
            discount=np.zeros(room, np.float32),
            next_observation=np.zeros((*room, *shape), dtype),
            next_action=np.zeros(room, np.int32),
            next_mask=np.zeros((*room, actions), bool),
        )

    @property
    def filled(self) -> NDArray:
        """How many transitions each seed holds."""
        return np.minimum(self.written, self.capacity)

    def write(self, which: NDArray, owner: NDArray, transitions: Transition) -> None:
        """Write the transitions of the lanes ``which``.

        ``owner`` is every lane's seed; the lanes of a seed stand side by side.
        """
        seeds = owner[which]
        # Each lane writes behind those of its seed that come before it.
        turn = np.arange(len(which)) - np.searchsorted(seeds, seeds)
        position = (self.written[seeds] + turn) % self.capacity
        for ring, new in zip(self._rings, transitions, strict=True):
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
        return Transition(*(ring[seed, chosen] for ring in self._rings))

    def newest(self, count: int) -> Transition:
        """Return the last transitions of every seed, (seeds, count, ...), in the order of time.

        A seed that holds fewer gives them several times.
        """
        age = (count - 1 - np.arange(count)) % np.maximum(self.filled, 1)[:, None]
        where = (self.written[:, None] - 1 - age) % self.capacity
        seed = np.arange(len(self.written))[:, None]
        return Transition(*(ring[seed, where] for ring in self._rings))

    def arrays(self) -> dict[str, NDArray]:
        """Return what is remembered, as plain arrays: the rows up to the last that is filled."""
        rows = int(self.filled.max())
        named = {f"memory.{name}": ring[:, :rows] for name, ring in self._named.items()}
        return {"memory.written": self.written, **named}

    def restore(self, arrays: Mapping[str, NDArray], most: int = MOST_WRITTEN) -> None:
        """Remember what was saved: the filled rows, or the whole rings of older files.

        Parameters
        ----------
        arrays
            Those of :meth:`arrays`.
        most
            How many transitions a seed can have written.

        Raises
        ------
        ValueError
            If the arrays are not those of a memory of this size.
        """
        written = self._saved_written(arrays, most)
        filled = int(np.minimum(written, self.capacity).max())
        saved = {name: self._saved_rows(arrays, name, filled) for name in self._named}
        for chosen in (saved["action"], saved["next_action"]):
            if ((chosen < 0) | (chosen >= self.actions)).any():
                raise ValueError("the saved memory holds actions that there are not")
        self.written = written.copy()
        self.rows = on_host(**{name: self._ring(name, rows) for name, rows in saved.items()})

    def _saved_written(self, arrays: Mapping[str, NDArray], most: int) -> NDArray:
        written = arrays.get("memory.written")
        mine = self.written
        if written is None or written.shape != mine.shape or written.dtype != mine.dtype:
            raise ValueError("the saved memory does not fit")
        if (written < 0).any() or (written >= MOST_WRITTEN).any() or (written > most).any():
            raise ValueError("the saved memory counts transitions that cannot be")
        return written

    def _saved_rows(self, arrays: Mapping[str, NDArray], name: str, filled: int) -> NDArray:
        ring, rows = self._named[name], arrays.get(f"memory.{name}")
        forms = [(len(ring), count, *ring.shape[2:]) for count in (filled, self.capacity)]
        if rows is None or rows.shape not in forms or rows.dtype != ring.dtype:
            raise ValueError("the saved memory does not fit")
        return rows

    def _ring(self, name: str, rows: NDArray) -> NDArray:
        """Return a new ring that begins with these rows; the rest of it takes no memory yet."""
        like = self._named[name]
        ring = np.zeros(like.shape, like.dtype)
        ring[:, : rows.shape[1]] = rows
        return ring

    def forget(self) -> None:
        """Hold no transition, as at the beginning."""
        self.written[:] = 0

    @property
    def _rings(self) -> tuple[Any, ...]:
        return self.rows

    @property
    def _named(self) -> dict[str, Any]:
        return self.rows._asdict()


def on_host(**fields: Any) -> Transition:
    """Return transitions of NumPy arrays, which have the same fields as those on the device."""
    return Transition(**fields)
