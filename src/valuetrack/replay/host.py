"""The ring on the host: NumPy arrays for all seeds."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from valuetrack.io.arrays import Arrays
from valuetrack.replay.files import (
    MOST_WRITTEN,
    named,
    ring_of,
    saved_ahead,
    saved_priority,
    saved_rows,
    saved_written,
)
from valuetrack.replay.forgetting import drawn_ages
from valuetrack.replay.layout import Layout, host_transitions
from valuetrack.replay.n_step import Links, spanning, summed
from valuetrack.replay.prioritised import Priorities
from valuetrack.types import NDArray, Transition, Tree, Weighted


class HostRing:
    """Rings of so many transitions in NumPy arrays, one per seed.

    Nothing is copied but what is written and what is drawn.
    """

    def __init__(
        self,
        layout: Layout,
        seeds: int,
        capacity: int,
        n_step: int = 1,
        environments: int = 1,
        alpha: float = 0.0,
        half_life: float | None = None,
    ) -> None:
        self.layout, self.capacity, self.n_step = layout, capacity, n_step
        self.half_life = half_life
        self.written = np.zeros(seeds, np.int64)
        self.links = Links(seeds, capacity, environments) if n_step > 1 else None
        self.priorities = Priorities(capacity, alpha)
        self.priority = np.zeros((seeds, self.priorities.size if alpha else 0), np.float32)
        """What each row counts in a prioritised memory; no numbers in an even one."""
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
        if self.priorities.alpha:
            self.priority[seeds, position] = self.priorities.of_new(np, self.priority)[seeds]
        self.written += np.bincount(seeds, minlength=len(self.written))

    def append(self, transitions: Transition) -> bool:
        """Write equally many transitions of every seed, if one slice can do that.

        That is so where all seeds have written as many and the ring does not end on the way.
        Returns whether it is done; :meth:`write` always can.
        """
        seeds, start = len(self.written), int(self.written[0]) % self.capacity
        count = len(transitions.reward) // seeds
        if start + count > self.capacity or (self.written != self.written[0]).any():
            return False
        for ring, new in zip(self.rows, transitions, strict=True):
            ring[:, start : start + count] = new.reshape(seeds, count, *new.shape[1:])
        if self.priorities.alpha:
            largest = self.priorities.of_new(np, self.priority)
            self.priority[:, start : start + count] = largest[:, None]
        self.written += count
        return True

    def draw(self, uniforms: NDArray) -> Transition:
        """Draw from each seed's own transitions, by age if the memory forgets.

        ``uniforms`` has the shape (seeds, ...), and so have the transitions.
        """
        lead = (-1, *(1,) * (uniforms.ndim - 1))
        size = self.filled.reshape(lead)
        if self.half_life is not None:
            ages = drawn_ages(np, uniforms.astype(np.float64), size, self.half_life)
            return self._drawn((self.written.reshape(lead) - 1 - ages) % self.capacity)
        return self._drawn(np.minimum((uniforms * size).astype(np.int64), size - 1))

    def draw_prioritised(self, uniforms: NDArray, beta: float) -> tuple[Weighted, NDArray]:
        """Draw by priority; also return the rows, for :meth:`renew`.

        ``uniforms`` are (seeds, updates, batch); the batches of a cycle are drawn at once.
        """
        pairs = zip(uniforms, self.priority, self.filled, strict=True)
        chosen = [
            [self.priorities.draw(np, kept, batch, int(filled), beta) for batch in batches]
            for batches, kept, filled in pairs
        ]
        rows = np.array([[one.rows for one in batches] for batches in chosen])
        weights: Tree = np.array([[one.weights for one in batches] for batches in chosen])
        return Weighted(self._drawn(rows), weights), rows

    def renew(self, rows: NDArray, errors: NDArray) -> None:
        """Take note of the errors that updates have found, (seeds, updates, batch)."""
        sizes = self.priorities.of_errors(np, errors)
        for seed, (at, size) in enumerate(zip(rows, sizes, strict=True)):
            self.priority[seed, at] = size

    def _drawn(self, chosen: NDArray) -> Transition:
        """Return the transitions that begin in these rows, (seeds, ...)."""
        seed = np.arange(len(chosen)).reshape(-1, *(1,) * (chosen.ndim - 1))
        flat = self.rows._make(ring.reshape(-1, *ring.shape[2:]) for ring in self.rows)

        def of(ring: NDArray) -> Callable[[NDArray], NDArray]:
            return lambda rows: ring.take(rows + self.capacity * seed, axis=0)

        first = Transition(*(of(ring)(chosen) for ring in flat))  # type: ignore[arg-type]
        if self.links is None:
            return first
        found = summed(
            np, chosen, self.n_step, self.links.follow, of(flat.reward), of(flat.discount)
        )
        last = Transition(*(of(ring)(found.last) for ring in flat))  # type: ignore[arg-type]
        return spanning(first, last, found)

    def newest(self, count: int) -> Transition:
        """Return the last transitions of every seed, (seeds, count, ...), in the order of time.

        A seed that holds fewer repeats them.
        """
        age = (count - 1 - np.arange(count)) % np.maximum(self.filled, 1)[:, None]
        return self._drawn((self.written[:, None] - 1 - age) % self.capacity)

    def break_off(self) -> None:
        """Let no running episode go on."""
        if self.links is not None:
            self.links.break_off()

    def clear(self) -> None:
        """Hold no transition, as at the beginning."""
        self.written[:] = 0
        self.priority[:] = 0
        self.break_off()

    def arrays(self) -> dict[str, NDArray]:
        """Return the rows up to the last one that is filled, as named arrays."""
        filled = int(self.filled.max())
        rows = Transition(*(ring[:, :filled] for ring in self.rows))
        more: dict[str, NDArray] = {}
        if self.links is not None:
            more["ahead"] = self.links.ahead[:, :filled]
        if self.priorities.alpha:
            more["priority"] = self.priority[:, :filled]
        return named(rows, self.written, more)

    def restore(self, arrays: Arrays, most: int = MOST_WRITTEN) -> None:
        """Hold what was saved; ``most`` is how many transitions a seed can have written.

        Raises
        ------
        ValueError
            If the arrays are not those of rings of this size.
        """
        seeds = len(self.written)
        written = saved_written(arrays, seeds, most)
        filled = int(np.minimum(written, self.capacity).max())
        saved = saved_rows(arrays, self.layout, seeds, filled)
        if self.links is not None:
            self.links.restore(saved_ahead(arrays, (seeds, filled), self.capacity), written)
        if self.priorities.alpha:
            priority = saved_priority(arrays, (seeds, filled))
            self.priority = ring_of(priority, self.priorities.size)
        self.written = written.copy()
        self.rows = jax.tree.map(lambda rows: ring_of(rows, self.capacity), saved)
