"""What users import: agents that learn, predict, know how sure they are, save and load.

::

    import valuetrack as vt

    agent = vt.LKTD("CartPole-v1", seed=0).learn(100_000)
    action, _ = agent.predict(observation)
    q = agent.posterior(observation)      # q.mean, q.std, q.interval(0.95)
"""
