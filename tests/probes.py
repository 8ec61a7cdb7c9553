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
class Probes:
    """Three environments, so that one training finds the values of all; a draw at the start
    chooses among four places, which are seen one-hot.

    Place 0 is the bandit above. Places 1 and 2 are a corridor: the step out of the first pays 0,
    the one out of the second 1 and ends it; only action 0 is legal, so Q(second) = 1 and
    Q(first) = gamma. Place 3 is a treadmill: it pays 1 for ever, but every episode is cut after
    three steps, so Q = 1 / (1 - gamma).
    """

    observation_shape: ClassVar[tuple[int, ...]] = (4,)
    observation_dtype: ClassVar[np.dtype] = np.dtype(np.float32)
    num_actions: ClassVar[int] = 2
    reset_uniforms: ClassVar[int] = 1
    step_uniforms: ClassVar[int] = 0

    def reset(self, uniforms: Array) -> ProbeState:
        return ProbeState(jnp.floor(4 * uniforms[0]), jnp.int32(0))

    def step(self, state: ProbeState, action: Array, uniforms: Array) -> Step[ProbeState]:
        place, steps = state.place.astype(jnp.int32), state.steps + 1
        after = ProbeState(jnp.where(place == 1, 2, place).astype(jnp.float32), steps)
        # An illegal action would be paid 100: it shows in the values if a mask is ignored.
        rewards = jnp.array([[-1.0, 1.0], [0.0, 100.0], [1.0, 100.0], [1.0, 1.0]])
        over = (place == 0) | (place == 2)
        cut = (place == 3) & (steps >= 3)
        return Step(after, self.observe(after), rewards[place, action], over, cut)

    def observe(self, state: ProbeState) -> Array:
        return (jnp.arange(4) == state.place).astype(jnp.float32)

    def action_mask(self, state: ProbeState) -> Array:
        in_corridor = (state.place == 1) | (state.place == 2)
        return jnp.stack([jnp.bool_(True), ~in_corridor])


@dataclass(frozen=True)
class Coins:
    """A place of three that pays its number, plus noise, until a coin ends it: one step in four.

    Q = place / (1 - 0.75 gamma), for both actions; a return is noisier. ``horizon`` cuts episodes.
    """

    observation_shape: ClassVar[tuple[int, ...]] = (3,)
    observation_dtype: ClassVar[np.dtype] = np.dtype(np.float32)
    num_actions: ClassVar[int] = 2
    reset_uniforms: ClassVar[int] = 1
    step_uniforms: ClassVar[int] = 2
    noise: float = 1.0
    ends: float = 0.25
    horizon: int = 10**6

    def reset(self, uniforms: Array) -> ProbeState:
        return ProbeState(jnp.floor(3 * uniforms[0]), jnp.int32(0))

    def step(self, state: ProbeState, action: Array, uniforms: Array) -> Step[ProbeState]:
        after = ProbeState(state.place, state.steps + 1)
        reward = state.place + self.noise * (2 * uniforms[0] - 1)
        over = uniforms[1] < self.ends
        cut = (after.steps >= self.horizon) & ~over
        return Step(after, self.observe(after), reward.astype(jnp.float32), over, cut)

    def observe(self, state: ProbeState) -> Array:
        return (jnp.arange(3) == state.place).astype(jnp.float32)

    def action_mask(self, state: ProbeState) -> Array:
        return jnp.ones(2, bool)


@dataclass(frozen=True)
class Fork:
    """A step that pays nothing, then a bandit: action 1 pays 1, action 0 pays -1.

    Q(first) = gamma for who acts greedily at the second place, and 0 for who acts at random.
    """

    observation_shape: ClassVar[tuple[int, ...]] = (2,)
    observation_dtype: ClassVar[np.dtype] = np.dtype(np.float32)
    num_actions: ClassVar[int] = 2
    reset_uniforms: ClassVar[int] = 0
    step_uniforms: ClassVar[int] = 0

    def reset(self, uniforms: Array) -> ProbeState:
        return ProbeState(jnp.float32(0), jnp.int32(0))

    def step(self, state: ProbeState, action: Array, uniforms: Array) -> Step[ProbeState]:
        over = state.place == 1
        reward = jnp.where(over, 2.0 * action - 1.0, 0.0).astype(jnp.float32)
        after = ProbeState(jnp.float32(1), state.steps + 1)
        return Step(after, self.observe(after), reward, over, jnp.bool_(False))

    def observe(self, state: ProbeState) -> Array:
        return (jnp.arange(2) == state.place).astype(jnp.float32)

    def action_mask(self, state: ProbeState) -> Array:
        return jnp.ones(2, bool)
