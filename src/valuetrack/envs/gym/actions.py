"""From our actions 0, 1, ... to those of an environment, and back.

Several choices at once, each among few, are numbered: every combination is an action.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from valuetrack.envs.base import Shape
from valuetrack.envs.gym.spaces import action_count, action_offset
from valuetrack.types import NDArray

MOST_ACTIONS = 1_024
"""How many combinations of choices are numbered: each is an output of the network."""


@dataclass(frozen=True)
class Actions:
    """The actions of a space, numbered.

    Examples
    --------
    >>> from gymnasium.spaces import Discrete, MultiDiscrete
    >>> actions = Actions.of(MultiDiscrete([2, 3]))
    >>> actions.count, actions.given(4).tolist(), actions.number([1, 1])
    (6, [1, 1], 4)
    >>> Actions.of(Discrete(3, start=5)).given(1)
    6
    """

    space: gymnasium.Space[Any]
    count: int
    sizes: Shape
    """How many values each choice has; none for a single choice."""
    starts: Shape
    """The smallest value of each."""

    @classmethod
    def of(cls, space: gymnasium.Space[Any]) -> Actions:
        """Give every action of a space a number.

        Raises
        ------
        ValueError
            If they are not finitely many, or too many.
        """
        match space:
            case spaces.MultiDiscrete():
                sizes = tuple(space.nvec.ravel().tolist())
                starts = tuple(space.start.ravel().tolist())
            case spaces.MultiBinary():
                sizes = (2,) * math.prod(space.shape)
                starts = (0,) * len(sizes)
            case _:
                return cls(space, action_count(space), (), (action_offset(space),))
        count = math.prod(sizes)
        if count > MOST_ACTIONS:
            raise ValueError(
                f"The action space is {space}, {count:,} combinations of choices, and up to "
                f"{MOST_ACTIONS:,} are numbered as actions; leave fewer with a "
                "gymnasium.ActionWrapper."
            )
        return cls(space, count, sizes, starts)

    @property
    def first(self) -> int:
        """The environment's number for our action 0, where it has numbers."""
        return 0 if self.sizes else self.starts[0]

    @property
    def names(self) -> list[int] | list[str]:
        """What the environment calls each action."""
        if not self.sizes:
            return [self.first + action for action in range(self.count)]
        return [str(tuple(self.given(action).ravel().tolist())) for action in range(self.count)]

    def given(self, action: Any) -> Any:
        """Return the environment's action for ours, or its actions for an array of ours."""
        if not self.sizes:
            return action + self.starts[0]
        choices = np.stack(np.unravel_index(action, self.sizes), axis=-1) + self.starts
        return choices.reshape(*np.shape(action), *(self.space.shape or ())).astype(
            self.space.dtype
        )

    def number(self, given: Any) -> int | None:
        """Return our number of one of the environment's actions, or ``None`` for anything else."""
        try:
            array = np.asarray(given)
            values = array.reshape(len(self.starts)) - np.asarray(self.starts)
        except (TypeError, ValueError):
            return None
        sizes = self.sizes or (self.count,)
        if array.dtype.kind not in "iub" or not all(
            0 <= value < size for value, size in zip(values.tolist(), sizes, strict=True)
        ):
            return None
        return int(np.ravel_multi_index(tuple(values.astype(int)), sizes))

    def flat_mask(self, given: Any) -> Any:
        """Return a mask as one of all actions; Gymnasium's has a part for each choice."""
        if not self.sizes or not isinstance(given, tuple) or len(given) != len(self.sizes):
            return given
        return _every_combination([np.asarray(part, bool) for part in given])


def _every_combination(parts: Sequence[NDArray]) -> NDArray:
    """Return which combinations are legal if each of their choices is."""
    legal = np.ones((), bool)
    for part in parts:
        legal = legal[..., None] & part
    return legal.ravel()
