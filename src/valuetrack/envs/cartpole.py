"""CartPole: a pole on a cart that pushes from the left or the right must keep upright.

The dynamics are those of Gymnasium's ``CartPole-v1``, in float32 where Gymnasium counts in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax.numpy as jnp

from valuetrack.envs.base import Shape, Step, TimedTask, evenly
from valuetrack.envs.registry import register
from valuetrack.types import Array

GRAVITY = 9.8
CART_MASS, POLE_MASS = 1.0, 0.1
HALF_LENGTH = 0.5  # from the hinge to the pole's centre of mass
FORCE = 10.0
TIME_STEP = 0.02
MAX_POSITION = 2.4
MAX_ANGLE = math.radians(12.0)
RESET_BOUND = 0.05  # every coordinate starts within plus or minus this


class CartPoleState(NamedTuple):
    """The cart's and the pole's motion (float32) and the ``steps`` taken (int32); all scalars."""

    position: Array
    velocity: Array
    angle: Array
    angular_velocity: Array
    steps: Array


@register("CartPole-v1")
@dataclass(frozen=True)
class CartPole(TimedTask[CartPoleState]):
    r"""The cart and the pole: a :class:`~valuetrack.envs.base.TimedTask`.

    Every step pays 1, the terminating one included. An episode terminates once the cart is more
    than 2.4 from the middle or the pole more than 12 degrees from upright.

    Parameters
    ----------
    pole_mass
        What the pole weighs; the cart weighs 1. Gymnasium's weighs 0.1.

    Notes
    -----
    With m the pole's mass, M that of pole and cart, l half the pole's length and F the force,

    .. math::

        u &= (F + m l \dot\theta^2 \sin\theta) / M, \\
        \ddot\theta &= \frac{g \sin\theta - u \cos\theta}{l (4/3 - m \cos^2\theta / M)}, \\
        \ddot x &= u - m l \ddot\theta \cos\theta / M,

    followed by one explicit Euler step. Action 0 pushes to the left, action 1 to the right. The
    observation is (position, velocity, angle, angular velocity).

    References
    ----------
    Barto, Sutton and Anderson (1983), Neuronlike adaptive elements that can solve difficult
    learning control problems, IEEE Transactions on Systems, Man, and Cybernetics 13.

    Examples
    --------
    >>> env = CartPole()
    >>> state = env.reset(jnp.full(env.reset_uniforms, 0.5))
    >>> result = env.step(state, jnp.int32(1), jnp.zeros(env.step_uniforms))
    >>> bool(result.state.velocity > 0), float(result.reward)
    (True, 1.0)
    """

    observation_shape: ClassVar[Shape] = (4,)
    num_actions: ClassVar[int] = 2
    reset_uniforms: ClassVar[int] = 4

    horizon: int = 500
    pole_mass: float = POLE_MASS

    def __post_init__(self) -> None:
        """Refuse a pole that weighs nothing."""
        super().__post_init__()
        if not (self.pole_mass > 0 and math.isfinite(self.pole_mass)):
            raise ValueError(f"pole_mass must be a positive number, but is {self.pole_mass}.")

    def reset(self, uniforms: Array) -> CartPoleState:
        """Draw all four coordinates evenly from [-0.05, 0.05)."""
        return CartPoleState._make([*evenly(uniforms, RESET_BOUND), jnp.int32(0)])

    def step(self, state: CartPoleState, action: Array, uniforms: Array) -> Step[CartPoleState]:
        """Push the cart for one time step; ``uniforms`` is empty."""
        del uniforms
        sin, cos = jnp.sin(state.angle), jnp.cos(state.angle)
        force = jnp.where(action == 1, jnp.float32(FORCE), jnp.float32(-FORCE))
        total = CART_MASS + self.pole_mass
        moment = self.pole_mass * HALF_LENGTH
        push = (force + moment * state.angular_velocity**2 * sin) / total
        inertia = HALF_LENGTH * (4.0 / 3.0 - self.pole_mass * cos**2 / total)
        angular_acceleration = (GRAVITY * sin - push * cos) / inertia
        acceleration = push - moment * angular_acceleration * cos / total
        after = CartPoleState(
            position=state.position + TIME_STEP * state.velocity,
            velocity=state.velocity + TIME_STEP * acceleration,
            angle=state.angle + TIME_STEP * state.angular_velocity,
            angular_velocity=state.angular_velocity + TIME_STEP * angular_acceleration,
            steps=state.steps + jnp.int32(1),
        )
        off_track = jnp.abs(after.position) > MAX_POSITION
        terminated = off_track | (jnp.abs(after.angle) > MAX_ANGLE)
        return self.arrived(after, jnp.float32(1.0), terminated)
