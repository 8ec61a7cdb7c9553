"""Tiny environments whose action values are known by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

from valuetrack.envs.base import Step
from valuetrack.types import Array


class ProbeState(NamedTuple):
    place: Array
    steps: Array


@dataclass(frozen=True)
class Bandit:
    """One step; action 1 pays 1, action 0 pays -1. Q = (-1, 1)."""

    observation_shape: ClassVar[tuple[int, ...]] = (1,)
    observation_dtype: ClassVar[np.dtype] = np.dtype(np.float32)
    num_actions: ClassVar[int] = 2
    reset_uniforms: ClassVar[int] = 0
    step_uniforms: ClassVar[int] = 0

    def reset(self, uniforms: Array) -> ProbeState:
        return ProbeState(jnp.float32(0), jnp.int32(0))

    def step(self, state: ProbeState, action: Array, uniforms: Array) -> Step[ProbeState]:
        after = ProbeState(state.place, state.steps + 1)
        reward = jnp.where(action == 1, 1.0, -1.0).astype(jnp.float32)
        return Step(after, self.observe(after), reward, jnp.bool_(True), jnp.bool_(False))

    def observe(self, state: ProbeState) -> Array:
        return jnp.ones(1)

    def action_mask(self, state: ProbeState) -> Array:
        return jnp.ones(2, bool)


@dataclass(frozen=True)
class Corridor:
    """Two places; the step out of the first pays 0, the one out of the second 1 and ends it.

    The agent is told its place by a uniform-drawn start, so that both are seen. Only action 0 is
    legal, so Q(second) = 1 and Q(first) = gamma.
    """

    observation_shape: ClassVar[tuple[int, ...]] = (2,)
    observation_dtype: ClassVar[np.dtype] = np.dtype(np.float32)
    num_actions: ClassVar[int] = 2
    reset_uniforms: ClassVar[int] = 1
    step_uniforms: ClassVar[int] = 0

    def reset(self, uniforms: Array) -> ProbeState:
        return ProbeState((uniforms[0] < 0.5).astype(jnp.float32), jnp.int32(0))

    def step(self, state: ProbeState, action: Array, uniforms: Array) -> Step[ProbeState]:
        last = state.place > 0.5
        after = ProbeState(jnp.float32(1), state.steps + 1)
        # An illegal action would be paid 100: it shows in the values if a mask is ignored.
        reward = jnp.where(action == 0, jnp.where(last, 1.0, 0.0), 100.0).astype(jnp.float32)
        return Step(after, self.observe(after), reward, last, jnp.bool_(False))

    def observe(self, state: ProbeState) -> Array:
        return jnp.stack([1 - state.place, state.place])

    def action_mask(self, state: ProbeState) -> Array:
        return jnp.array([True, False])


@dataclass(frozen=True)
class Treadmill:
    """Pays 1 for ever, but every episode is cut after three steps. Q = 1 / (1 - gamma)."""

    observation_shape: ClassVar[tuple[int, ...]] = (1,)
    observation_dtype: ClassVar[np.dtype] = np.dtype(np.float32)
    num_actions: ClassVar[int] = 2
    reset_uniforms: ClassVar[int] = 0
    step_uniforms: ClassVar[int] = 0

    def reset(self, uniforms: Array) -> ProbeState:
        return ProbeState(jnp.float32(0), jnp.int32(0))

    def step(self, state: ProbeState, action: Array, uniforms: Array) -> Step[ProbeState]:
        after = ProbeState(state.place, state.steps + 1)
        return Step(after, self.observe(after), jnp.float32(1), jnp.bool_(False), after.steps >= 3)

    def observe(self, state: ProbeState) -> Array:
        return jnp.ones(1)

    def action_mask(self, state: ProbeState) -> Array:
        return jnp.ones(2, bool)
