"""Gymnasium environments, and policies, whose values are known by hand."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces


class Hall(gymnasium.Env):
    """The corridor of `tests.probes` in Python: V(second) = 1 and V(first) = gamma.

    Its actions are numbered from 3; the second is never legal, and an error.
    """

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2, start=3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(2))
        return self.place, {"action_mask": np.array([True, False])}

    def step(self, action):
        if action != 3:
            raise AssertionError(f"the illegal action {action} came")
        last, self.place = self.place == 1, 1
        return 1, float(last), last, False, {"action_mask": np.array([not last, False])}


class Lamp(gymnasium.Env):
    """Two states for ever, cut after three steps: action 1 pays 1 in the dark and 0 in the light.

    Every action leads to the other state. With action 1 always, V(dark) = 1 / (1 - gamma^2) and
    V(light) = gamma V(dark). Action 0 pays -1, so that Q(s, 0) = -1 + gamma V(other).
    """

    observation_space = spaces.Dict({"light": spaces.Box(0, 1, (1,), np.float32)})
    action_space = spaces.Discrete(2)

    def _seen(self):
        return {"light": np.array([self.light], np.float32)}, {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.light, self.steps = int(self.np_random.integers(2)), 0
        return self._seen()

    def step(self, action):
        reward = (1.0 - self.light) if action == 1 else -1.0
        self.light, self.steps = 1 - self.light, self.steps + 1
        observation, info = self._seen()
        return observation, reward, False, self.steps >= 3, info


class Model:
    """What a model of Stable-Baselines3 looks like from outside."""

    def __init__(self, action=1):
        self.action, self.asked = action, []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.asked.append((observation, deterministic))
        return np.array(self.action), state


class MaskedModel:
    """A model like those of sb3-contrib, which are told the legal actions."""

    def predict(self, observation, deterministic=False, action_masks=None):
        return np.array([3 + int(np.flatnonzero(action_masks)[0])]), None
