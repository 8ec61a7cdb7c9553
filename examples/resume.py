"""Save an agent, load it and go on: to the same bits as in one go."""

import numpy as np

import valuetrack as vt

options = {"hidden": (16,), "learning_starts": 200, "seed": 0}
observation = [0.0, 0.1, 0.02, -0.1]

whole = vt.DQN("CartPole-v1", **options).learn(2_000)

first = vt.DQN("CartPole-v1", **options).learn(1_000)
first.save("agent.vt")  # arrays by name, checksums and JSON; no pickle
resumed = vt.load("agent.vt").learn(1_000)

same = np.array_equal(whole.posterior(observation).samples, resumed.posterior(observation).samples)
print(f"{resumed.num_timesteps} steps, the same bits: {same}")
