"""Small Gymnasium environments whose every step is known."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces


class Counter(gymnasium.Env):
    """Counts up by 1 + the action, from a start that the seed chooses.

    It terminates at ``last`` or above and is cut after ``horizon`` steps; where both come
    together, both flags are set. Actions are 5, 6 and 7.
    """

    def __init__(self, last=9, horizon=4, low=0):
        self.observation_space = spaces.Box(0, 100, (2,), np.float32)
        self.action_space = spaces.Discrete(3, start=5)
        self.last, self.horizon, self.low = last, horizon, low

    def _observation(self):
        return np.array([self.at, self.steps], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.steps = int(self.np_random.integers(self.low, self.low + 3)), 0
        return self._observation(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.at += int(action) - 4
        self.steps += 1
        over = self.at >= self.last
        reward = float(self.at) / 10
        return self._observation(), reward, over, self.steps >= self.horizon, {}


class Marked(gymnasium.Env):
    """Go to the marked side: +1 there, -1 at the other; the third action is never legal.

    Observations are a dict; the mark is on the left or the right by a coin. An illegal action is
    an error. The best return is 1, and that of a random policy 0.
    """

    def __init__(self, width=2):
        self.width = width
        self.observation_space = spaces.Dict(
            {"mark": spaces.Discrete(2), "place": spaces.Box(-1, 1, (1,), np.float32)}
        )
        self.action_space = spaces.Discrete(4)

    def _seen(self):
        here = np.array([self.place / self.width], np.float32)
        return {"mark": self.mark, "place": here}, {"action_mask": self._mask()}

    def _mask(self):
        over = abs(self.place) == self.width
        # Action 1 stays, and may be taken in the middle alone.
        return np.array([not over, not over and self.place == 0, not over, False])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.mark, self.place, self.steps = int(self.np_random.integers(2)), 0, 0
        return self._seen()

    def step(self, action):
        if not self._mask()[action]:
            raise AssertionError(f"the illegal action {action} came")
        self.place += int(action) - 1
        self.steps += 1
        over = abs(self.place) == self.width
        right = (self.place > 0) == (self.mark == 1)
        reward = (1.0 if right else -1.0) if over else 0.0
        observation, info = self._seen()
        return observation, reward, over, not over and self.steps >= 8, info


class Picture(gymnasium.Env):
    """One step: say on which side of the picture the white pixel is. Right pays 1, wrong -1."""

    def __init__(self, side=6):
        self.observation_space = spaces.Box(0, 255, (side, side, 1), np.uint8)
        self.action_space = spaces.Discrete(2)
        self.side = side

    def _picture(self):
        picture = np.zeros((self.side, self.side, 1), np.uint8)
        picture[self.row, self.column] = 255
        return picture

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.row, self.column = self.np_random.integers(0, self.side, 2)
        return self._picture(), {}

    def step(self, action):
        right = action == (self.column >= self.side // 2)
        return self._picture(), 1.0 if right else -1.0, True, False, {}


class Spaced(gymnasium.Env):
    """Observations drawn from any space; action 1 of 2 pays 1; episodes of three steps."""

    def __init__(self, space):
        self.observation_space = space
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), float(action), False, self.steps == 3, {}


class Broken(Counter):
    """A counter whose third step goes wrong."""

    def __init__(self, *, observation=None, reward=None):
        super().__init__(last=99)
        self.wrong_observation, self.wrong_reward = observation, reward

    def step(self, action):
        observation, reward, *rest = super().step(action)
        if self.steps == 3:
            observation = observation if self.wrong_observation is None else self.wrong_observation
            reward = reward if self.wrong_reward is None else self.wrong_reward
        return observation, reward, *rest


class Coins(gymnasium.Env):
    """What :class:`tests.probes.Coins` is, in Python."""

    def __init__(self, noise=1.0, ends=0.25, horizon=10**6):
        self.observation_space = spaces.Box(0, 1, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.noise, self.ends, self.horizon = noise, ends, horizon

    def _observation(self):
        return np.eye(3, dtype=np.float32)[self.place]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = int(self.np_random.integers(3)), 0
        return self._observation(), {}

    def step(self, action):
        self.steps += 1
        reward = self.place + self.noise * self.np_random.uniform(-1, 1)
        over = bool(self.np_random.random() < self.ends)
        return self._observation(), reward, over, self.steps >= self.horizon, {}


class Levers(gymnasium.Env):
    """Two levers, of 2 and 3 positions from 1 on: (2, 1) pays 1; episodes of one step.

    With ``locked``, the second lever cannot be at 1, and the mask has a part for each, as
    Gymnasium's own masks.
    """

    def __init__(self, sizes=(2, 3), *, locked=False):
        self.observation_space = spaces.Box(0, 1, (1,), np.float32)
        self.action_space = spaces.MultiDiscrete(sizes, start=[1] * len(sizes))
        self.locked = locked

    def _info(self):
        mask = (np.ones(2, np.int8), np.array([0, 1, 1], np.int8))
        return {"action_mask": mask} if self.locked else {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(1, np.float32), self._info()

    def step(self, action):
        assert self.action_space.contains(action), action
        assert not (self.locked and action[1] == 1), action
        paid = float(tuple(action) == (2, 1))
        return np.ones(1, np.float32), paid, True, False, self._info()
