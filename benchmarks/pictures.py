"""An environment of random images that costs next to nothing: ``Pictures-v0``, once imported."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 20
"""Steps of an episode."""


class Pictures(gymnasium.Env[Any, Any]):
    """Bytes at random; the action that is as large as the first of them, modulo 4, pays 1."""

    def __init__(self, side: int = 84, channels: int = 4) -> None:
        self.observation_space = spaces.Box(0, 255, (side, side, channels), np.uint8)
        self.action_space = spaces.Discrete(4)

    def _draw(self) -> Any:
        self.picture = self.np_random.integers(0, 256, self.observation_space.shape, np.uint8)
        return self.picture

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self.steps = 0
        return self._draw(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Pay for the action, and show the next picture."""
        reward = float(action == self.picture[0, 0, 0] % 4)
        self.steps += 1
        return self._draw(), reward, False, self.steps >= LENGTH, {}


gymnasium.register("Pictures-v0", Pictures)
