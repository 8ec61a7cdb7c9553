"""Train LKTD on CartPole, then ask how sure it is of its Q-values."""

import valuetrack as vt

agent = vt.LKTD("CartPole-v1", hidden=(32, 32), seed=0)
agent.learn(10_000)

observation = [0.0, 0.1, 0.02, -0.1]
action, _ = agent.predict(observation)
q = agent.posterior(observation)
low, high = q.interval(0.95)
value = q.solved.mean.round(1)
print(f"take {action}; Q = {value}, 95 % between {low.round(1)} and {high.round(1)}")
print(f"each action is the best one in {q.policy_probabilities().round(2)} of the samples")

# An interval is only as good as its targets: compare values with what comes of them.
played = agent.play(episodes=5)
print(f"value at the start {played.start_values.mean():.1f}")
print(f"discounted return  {played.discounted_returns.mean():.1f}")
