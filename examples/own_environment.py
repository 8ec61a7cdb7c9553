"""Train in a Gymnasium environment of your own, with an action that is not always legal."""

import gymnasium
import numpy as np

import valuetrack as vt


class Shop(gymnasium.Env):
    """Sell one item per day at a price of 1, or order three; an empty shop cannot sell."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)  # sell, order

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.stock, self.day = 2, 0
        return self._seen()

    def step(self, action):
        self.day += 1
        sells = action == 0
        self.stock = self.stock - 1 if sells else min(self.stock + 3, 10)
        observation, info = self._seen()
        return observation, 1.0 if sells else -0.5, False, self.day == 20, info

    def _seen(self):
        observation = np.array([self.stock / 10], np.float32)
        return observation, {"action_mask": np.array([self.stock > 0, True])}


agent = vt.SGLD(Shop, hidden=(16,), learning_starts=100, seed=0)  # the class makes environments
agent.learn(1_000)
empty, mask = np.zeros((1,), np.float32), [False, True]
print("in an empty shop:", agent.predict(empty, action_mask=mask)[0])
print("returns:", agent.evaluate(3).round(1))
