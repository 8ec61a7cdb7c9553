"""MountainCar: a car too weak for the hill must swing back and forth to climb it.

The dynamics are those of Gymnasium's ``MountainCar-v0``, in float32 where Gymnasium counts in
float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax.numpy as jnp

from valuetrack.envs.base import Shape, Step, TimedTask
from valuetrack.envs.registry import register
from valuetrack.types import Array


class MountainCarState(NamedTuple):
    """The car's motion (float32) and the ``steps`` taken (int32); all scalars."""

    position: Array
    velocity: Array
    steps: Array


FORCE = 0.001
GRAVITY = 0.0025
MIN_POSITION = -1.2
MAX_POSITION = 0.6
MAX_SPEED = 0.07
GOAL_POSITION = 0.5
RESET_LOW = -0.6
RESET_HIGH = -0.4


@register("MountainCar-v0")
@dataclass(frozen=True)
class MountainCar(TimedTask[MountainCarState]):
    r"""The car in the valley: a :class:`~valuetrack.envs.base.TimedTask`.

    Every step pays -1, the terminating one included. An episode terminates once the car is at or
    beyond the goal at 0.5 and does not roll back.

    Notes
    -----
    With a in {0, 1, 2} for a push to the left, none, and one to the right,

    .. math::

        v' = v + 0.001 (a - 1) - 0.0025 \cos(3 x), \qquad x' = x + v',

    where v' is clipped to [-0.07, 0.07] before it moves the car and x' to [-1.2, 0.6]; the wall at
    -1.2 stops the car dead. The observation is (position, velocity).

    References
    ----------
    Moore (1990), Efficient memory-based learning for robot control, PhD thesis, University of
    Cambridge. Sutton (1996), Generalization in reinforcement learning: successful examples using
    sparse coarse coding, NIPS 8.

    Examples
    --------
    >>> env = MountainCar()
    >>> state = env.reset(jnp.zeros(env.reset_uniforms))
    >>> result = env.step(state, jnp.int32(2), jnp.zeros(env.step_uniforms))
    >>> bool(result.state.velocity > 0), float(result.reward)
    (True, -1.0)
    """

    observation_shape: ClassVar[Shape] = (2,)
    num_actions: ClassVar[int] = 3
    reset_uniforms: ClassVar[int] = 1  # the car starts at rest

    horizon: int = 200

    def reset(self, uniforms: Array) -> MountainCarState:
        """Put the car at rest, evenly in [-0.6, -0.4)."""
        uniform = jnp.asarray(uniforms, jnp.float32)[0]
        position = RESET_LOW + (RESET_HIGH - RESET_LOW) * uniform
        return MountainCarState(position, jnp.float32(0.0), jnp.int32(0))

    def step(
        self, state: MountainCarState, action: Array, uniforms: Array
    ) -> Step[MountainCarState]:
        """Drive for one time step; ``uniforms`` is empty."""
        del uniforms
        push = FORCE * (jnp.asarray(action, jnp.float32) - 1.0)
        velocity = state.velocity + push - GRAVITY * jnp.cos(3.0 * state.position)
        velocity = jnp.clip(velocity, -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(state.position + velocity, MIN_POSITION, MAX_POSITION)
        at_wall = (position <= MIN_POSITION) & (velocity < 0.0)
        velocity = jnp.where(at_wall, jnp.float32(0.0), velocity)
        after = MountainCarState(position, velocity, state.steps + jnp.int32(1))
        terminated = (position >= GOAL_POSITION) & (velocity >= 0.0)
        return self.arrived(after, jnp.float32(-1.0), terminated)
