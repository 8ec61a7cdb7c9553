"""Train four seeds side by side and hand their samples to ArviZ (extra ``arviz``)."""

import arviz

import valuetrack as vt

agent = vt.LKTD("CartPole-v1", hidden=(16,), inner_iterations=2, seed=0, seeds=4)
agent.learn(4_000)
print("returns per seed:", agent.evaluate(5).mean(axis=1).round(1))

observation = [0.0, 0.1, 0.02, -0.1]
for member, seed in enumerate(agent.seeds):
    print(f"seed {seed}: Q = {agent.posterior(observation, member=member).mean.round(2)}")

data = agent.to_arviz(observation)  # seeds are chains: (chain, draw, action)
print(arviz.summary(data, round_to=2)[["mean", "sd", "ess_bulk", "r_hat"]])
data.to_netcdf("q.nc")
