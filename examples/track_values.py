"""Track Q-values while the policy learns; the figure needs the extra ``plot``."""

import numpy as np

import valuetrack as vt

upright = np.zeros(4, np.float32)
leaning = np.array([0.0, 0.0, 0.15, 0.0], np.float32)

agent = vt.LKTD("CartPole-v1", hidden=(16,), inner_iterations=2, seed=0)
agent.learn(4_000, track=[upright, leaning], track_every=5, track_intervals_every=250)

tracking = agent.tracking()
print(f"{len(tracking)} records of shape {tracking.samples.shape[1:]} (seeds, m, states, actions)")
mean = tracking.mean(window=50)[-1, 0].max(axis=-1)
low, high = tracking.interval(0.95, window=50, records=[-1 + len(tracking)])
print(f"upright {mean[0]:.2f}, leaning {mean[1]:.2f}")
print(f"upright, last 50 records: {low[0, 0, 0].min():.2f} to {high[0, 0, 0].max():.2f}")
low, high = (end[-1, 0, 0].max() for end in tracking.value_interval(0.95))
print(f"upright, solved from the replay memory: {low:.2f} to {high:.2f}")
tracking.save("tracking.npz")
tracking.plot("tracking.png", state=1, window=50)
