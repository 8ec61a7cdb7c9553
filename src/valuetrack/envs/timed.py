"""What the control tasks have in common: a time limit, and actions that are always legal."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from valuetrack.types import Array


@dataclass(frozen=True)
class TimedTask:
    """A task whose episodes end, at the latest, after ``horizon`` steps.

    Its states count their ``steps``.
    """

    num_actions: ClassVar[int]

    horizon: int

    def __post_init__(self) -> None:
        """Refuse a horizon that makes no episode."""
        object.__setattr__(self, "horizon", operator.index(self.horizon))
        if self.horizon < 1:
            raise ValueError(f"horizon must be at least 1, but is {self.horizon}.")

    def truncated(self, after: Any, terminated: Array) -> Array:
        """Return whether the time is up in a state that does not end the episode anyway."""
        cut: Array = (after.steps >= self.horizon) & ~terminated
        return cut

    def action_mask(self, state: Any) -> Array:
        """Return that all actions are always legal."""
        del state
        return jnp.ones(self.num_actions, dtype=bool)
