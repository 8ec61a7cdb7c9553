"""An environment in JAX to copy: a corridor whose right end is the exit.

1. Copy this to ``src/valuetrack/envs/<name>.py``.
2. Import the class in ``src/valuetrack/envs/__init__.py``. Its id then works everywhere.
3. Test it step by step against Gymnasium's version, or against a plain Python one.

Outside the library, import the module before you use the id: ``valuetrack train --env Corridor-v0
--import corridor``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax.numpy as jnp

from valuetrack.envs import Step, TimedTask, register
from valuetrack.types import Array


class CorridorState(NamedTuple):
    """Where the agent is, and how many steps it has taken; both int32."""

    cell: Array
    steps: Array


@register("Corridor-v0")
@dataclass(frozen=True)
class Corridor(TimedTask):
    """Walk left (0) or right (1); every step costs 1, and a gust may blow the agent back.

    Parameters
    ----------
    horizon
        An episode is truncated after this many steps.
    length
        How many cells the corridor has; the last one is the exit.
    gust
        How often a step goes left whatever the action.
    """

    observation_shape: ClassVar[tuple[int, ...]] = (1,)
    num_actions: ClassVar[int] = 2
    reset_uniforms: ClassVar[int] = 0  # an episode always begins at the left end
    step_uniforms: ClassVar[int] = 1  # for the gust

    horizon: int = 50
    length: int = 6
    gust: float = 0.1

    def reset(self, uniforms: Array) -> CorridorState:
        """Start at the left end; ``uniforms`` is empty."""
        del uniforms
        return CorridorState(jnp.int32(0), jnp.int32(0))

    def step(self, state: CorridorState, action: Array, uniforms: Array) -> Step[CorridorState]:
        """Take one step; ``uniforms`` has one number in [0, 1)."""
        goes_right = (action == 1) & (uniforms[0] >= self.gust)
        moved = state.cell + jnp.where(goes_right, 1, -1)
        cell = jnp.clip(moved, 0, self.length - 1).astype(jnp.int32)
        after = CorridorState(cell, state.steps + 1)
        terminated = cell == self.length - 1
        truncated = self.truncated(after, terminated)
        return Step(after, self.observe(after), jnp.float32(-1.0), terminated, truncated)

    def observe(self, state: CorridorState) -> Array:
        """Return the position as a number in [0, 1]."""
        return jnp.asarray(state.cell, jnp.float32)[None] / (self.length - 1)
