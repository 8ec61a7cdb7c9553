"""What one transition looks like in a replay memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from valuetrack.types import DType, NDArray, Transition, Tree

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


def host_transitions(**fields: Tree) -> Transition:
    """Return transitions of NumPy arrays, which have the same fields as those on the device."""
    return Transition(**fields)


def newest_rows(written: int, capacity: int, most: int | None = None) -> slice | NDArray:
    """Return where the transitions lie that a ring holds, or the ``most`` newest of them.

    Examples
    --------
    >>> newest_rows(12, 10), newest_rows(12, 10, 3).tolist()
    (slice(None, 10, None), [9, 0, 1])
    """
    filled = min(written, capacity)
    if most is None or most >= filled:
        return slice(filled)
    return np.asarray((written - most + np.arange(most)) % capacity)
