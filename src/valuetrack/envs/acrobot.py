"""Acrobot: two links that hang from a hinge must swing their tip up, driven at the elbow alone.

The dynamics are those of Gymnasium's ``Acrobot-v1``, in float32 where Gymnasium counts in float64.
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
MASS_1 = 1.0
MASS_2 = 1.0
LENGTH_1 = 1.0  # the length of the second link does not enter the dynamics
CENTRE_1 = 0.5  # from a link's upper joint to its centre of mass
CENTRE_2 = 0.5
INERTIA = 1.0  # of either link
TORQUE = 1.0
TIME_STEP = 0.2
MAX_VELOCITY_1 = 4.0 * math.pi
MAX_VELOCITY_2 = 9.0 * math.pi
GOAL_HEIGHT = 1.0  # of the tip above the hinge
RESET_BOUND = 0.1  # angles and velocities start within plus or minus this


class AcrobotState(NamedTuple):
    """The joints' motion (float32) and the ``steps`` taken (int32); all scalars.

    ``angle_1`` is that of the first link against hanging down, ``angle_2`` that of the second
    against the first; both lie in [-pi, pi].
    """

    angle_1: Array
    angle_2: Array
    velocity_1: Array
    velocity_2: Array
    steps: Array


_Motion = tuple[Array, ...]  # a state without its step count, or its derivative


@register("Acrobot-v1")
@dataclass(frozen=True)
class Acrobot(TimedTask[AcrobotState]):
    r"""The two links: a :class:`~valuetrack.envs.base.TimedTask`.

    Every step pays -1 but the terminating one, which pays 0. An episode terminates once the tip is
    more than one link's length above the hinge: -cos(theta_1) - cos(theta_1 + theta_2) > 1.

    Notes
    -----
    With masses m, length l_1, centres of mass c, moments of inertia I, and the torque tau,

    .. math::

        d_1 &= m_1 c_1^2 + m_2 (l_1^2 + c_2^2 + 2 l_1 c_2 \cos\theta_2) + I_1 + I_2, \\
        d_2 &= m_2 (c_2^2 + l_1 c_2 \cos\theta_2) + I_2, \\
        \phi_2 &= m_2 c_2 g \sin(\theta_1 + \theta_2), \\
        \phi_1 &= -m_2 l_1 c_2 (\dot\theta_2^2 + 2 \dot\theta_1 \dot\theta_2) \sin\theta_2
            + (m_1 c_1 + m_2 l_1) g \sin\theta_1 + \phi_2, \\
        \ddot\theta_2 &= \frac{\tau + \phi_1 d_2 / d_1
            - m_2 l_1 c_2 \dot\theta_1^2 \sin\theta_2 - \phi_2}{m_2 c_2^2 + I_2 - d_2^2 / d_1}, \\
        \ddot\theta_1 &= -(d_2 \ddot\theta_2 + \phi_1) / d_1,

    integrated by one Runge-Kutta step of order four over 0.2. Then the angles are wrapped to
    [-pi, pi] and the velocities clipped to 4 pi and 9 pi. The torque of action a is a - 1. The
    observation is (cos theta_1, sin theta_1, cos theta_2, sin theta_2, velocity 1, velocity 2).

    References
    ----------
    Sutton (1996), Generalization in reinforcement learning: successful examples using sparse
    coarse coding, NIPS 8. The equations are those of Sutton and Barto's book, which adds the term
    in the square of the first velocity.

    Examples
    --------
    >>> env = Acrobot()
    >>> state = env.reset(jnp.full(env.reset_uniforms, 0.5))
    >>> result = env.step(state, jnp.int32(2), jnp.zeros(env.step_uniforms))
    >>> bool(result.state.angle_2 > 0), float(result.reward)
    (True, -1.0)
    """

    observation_shape: ClassVar[Shape] = (6,)
    num_actions: ClassVar[int] = 3
    reset_uniforms: ClassVar[int] = 4

    horizon: int = 500

    def reset(self, uniforms: Array) -> AcrobotState:
        """Draw both angles and both velocities evenly from [-0.1, 0.1)."""
        return AcrobotState._make([*evenly(uniforms, RESET_BOUND), jnp.int32(0)])

    def step(self, state: AcrobotState, action: Array, uniforms: Array) -> Step[AcrobotState]:
        """Apply the torque for one time step; ``uniforms`` is empty."""
        del uniforms
        torque = TORQUE * (jnp.asarray(action, jnp.float32) - 1.0)
        angle_1, angle_2, velocity_1, velocity_2 = _runge_kutta(state[:-1], torque)
        after = AcrobotState(
            angle_1=_wrap(angle_1),
            angle_2=_wrap(angle_2),
            velocity_1=jnp.clip(velocity_1, -MAX_VELOCITY_1, MAX_VELOCITY_1),
            velocity_2=jnp.clip(velocity_2, -MAX_VELOCITY_2, MAX_VELOCITY_2),
            steps=state.steps + jnp.int32(1),
        )
        height = -jnp.cos(after.angle_1) - jnp.cos(after.angle_1 + after.angle_2)
        terminated = height > GOAL_HEIGHT
        reward = jnp.where(terminated, jnp.float32(0.0), jnp.float32(-1.0))
        return self.arrived(after, reward, terminated)

    def observe(self, state: AcrobotState) -> Array:
        """Return the cosine and sine of either angle, then the velocities, float32."""
        angles = [state.angle_1, state.angle_2]
        waves = [wave(angle) for angle in angles for wave in (jnp.cos, jnp.sin)]
        return jnp.stack([*waves, state.velocity_1, state.velocity_2])


def _derivative(motion: _Motion, torque: Array) -> _Motion:
    """Return the time derivative of (angle 1, angle 2, velocity 1, velocity 2)."""
    angle_1, angle_2, velocity_1, velocity_2 = motion
    sin_2, cos_2 = jnp.sin(angle_2), jnp.cos(angle_2)
    coupling = MASS_2 * LENGTH_1 * CENTRE_2
    inertia_2 = MASS_2 * CENTRE_2**2 + INERTIA
    d_1 = MASS_1 * CENTRE_1**2 + MASS_2 * LENGTH_1**2 + INERTIA + inertia_2 + 2.0 * coupling * cos_2
    d_2 = inertia_2 + coupling * cos_2
    phi_2 = MASS_2 * CENTRE_2 * GRAVITY * jnp.sin(angle_1 + angle_2)
    phi_1 = (
        (MASS_1 * CENTRE_1 + MASS_2 * LENGTH_1) * GRAVITY * jnp.sin(angle_1)
        + phi_2
        - coupling * velocity_2 * (velocity_2 + 2.0 * velocity_1) * sin_2
    )
    drive = torque + d_2 / d_1 * phi_1 - coupling * velocity_1**2 * sin_2 - phi_2
    acceleration_2 = drive / (inertia_2 - d_2**2 / d_1)
    acceleration_1 = -(d_2 * acceleration_2 + phi_1) / d_1
    return velocity_1, velocity_2, acceleration_1, acceleration_2


def _runge_kutta(motion: _Motion, torque: Array) -> _Motion:
    """Integrate over one time step, the torque held."""
    k_1 = _derivative(motion, torque)
    k_2 = _derivative(_along(motion, k_1, TIME_STEP / 2.0), torque)
    k_3 = _derivative(_along(motion, k_2, TIME_STEP / 2.0), torque)
    k_4 = _derivative(_along(motion, k_3, TIME_STEP), torque)
    slopes = zip(k_1, k_2, k_3, k_4, strict=True)
    six_means = tuple(a + 2.0 * b + 2.0 * c + d for a, b, c, d in slopes)
    return _along(motion, six_means, TIME_STEP / 6.0)


def _along(motion: _Motion, slope: _Motion, time: float) -> _Motion:
    """Return motion + time * slope."""
    return tuple(y + time * dy for y, dy in zip(motion, slope, strict=True))


def _wrap(angle: Array) -> Array:
    """Bring an angle into [-pi, pi]; after a fast step that may take two turns."""
    # A half turn rounds to the even number, zero, so that -pi and pi both stay as they are.
    turn = 2.0 * math.pi
    return angle - turn * jnp.round(angle / turn)
