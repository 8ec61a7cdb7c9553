"""Replay memories as named arrays, and back."""

from __future__ import annotations

import numpy as np

from valuetrack.io.arrays import Arrays
from valuetrack.replay.layout import Layout, host_transitions
from valuetrack.types import NDArray, Transition

PREFIX = "replay"
"""What the names of saved arrays begin with."""
MOST_WRITTEN = 2**62
"""Counts of transitions stay below it, so that positions in a ring do not overflow."""


def ring_of(rows: NDArray, capacity: int) -> NDArray:
    """Return new rings that begin with these rows; the rest of them takes no memory yet."""
    rings = np.zeros((len(rows), capacity, *rows.shape[2:]), rows.dtype)
    rings[:, : rows.shape[1]] = rows
    return rings


def named(rows: Transition, written: NDArray, more: Arrays) -> dict[str, NDArray]:
    """Return the filled rows of all seeds, and how many were written, under their names."""
    parts = {**rows._asdict(), **more}
    found = {f"{PREFIX}.{name}": np.asarray(part) for name, part in parts.items()}
    return {f"{PREFIX}.written": written, **found}


def saved_written(arrays: Arrays, seeds: int, most: int) -> NDArray:
    """Return how many transitions each seed had written, if that can be."""
    written = arrays.get(f"{PREFIX}.written")
    if written is None or written.shape != (seeds,) or written.dtype != np.int64:
        raise ValueError("the saved replay memory does not fit")
    if (written < 0).any() or (written > min(most, MOST_WRITTEN - 1)).any():
        raise ValueError("the saved replay memory counts transitions that cannot exist")
    return written


def saved_ahead(arrays: Arrays, shape: tuple[int, int], capacity: int) -> NDArray:
    """Return how many rows ahead the saved episodes go on, if that can be."""
    ahead = arrays.get(f"{PREFIX}.ahead")
    if ahead is None or ahead.shape != shape or ahead.dtype != np.int32:
        raise ValueError("the saved replay memory does not fit")
    if ((ahead < 0) | (ahead > capacity)).any():
        raise ValueError("the saved replay memory goes on beyond its end")
    return ahead


def saved_priority(arrays: Arrays, shape: tuple[int, int]) -> NDArray:
    """Return what the saved rows count in a prioritised memory, if that can be."""
    priority = arrays.get(f"{PREFIX}.priority")
    if priority is None or priority.shape != shape or priority.dtype != np.float32:
        raise ValueError("the saved replay memory does not fit")
    if not (np.isfinite(priority) & (priority >= 0)).all():
        raise ValueError("the saved replay memory has priorities that cannot be")
    return priority


def saved_rows(arrays: Arrays, layout: Layout, seeds: int, filled: int) -> Transition:
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
