"""Gymnasium's wrappers that learn: an evaluation goes by the statistics of the training."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, TimeLimit

import valuetrack as vt
from tests.small_envs import Counter
from valuetrack.envs.gym.statistics import learning_wrappers

SMALL = {"hidden": (8,), "learning_starts": 20, "batch_size": 8, "samples": 2}


def make():
    return TimeLimit(NormalizeReward(NormalizeObservation(Counter())), 3)


def statistics(env):
    reward, observation = learning_wrappers(env)
    found = (observation.obs_rms.mean, observation.obs_rms.var, reward.return_rms.var)
    return [np.array(part) for part in found]


def test_an_evaluation_has_the_statistics_of_the_training_and_does_not_change_them():
    agent = vt.DQN(make, seed=0, seeds=2, environments=2, **SMALL)
    for _ in range(2):  # also after learning on
        agent.learn(60)
        training = [statistics(env) for env in agent.env.in_python.envs]
        agent.evaluate(3)
        for seed, env in enumerate(agent.env.for_evaluation(2).envs):
            for one, other in zip(statistics(env), training[2 * seed], strict=True):
                np.testing.assert_array_equal(one, other)
        after = [statistics(env) for env in agent.env.in_python.envs]
        np.testing.assert_equal(after, training)
    assert not np.allclose(training[0][0], training[2][0])  # a seed has its own
    assert training[0][0].max() > 1  # of counts, and not the zeros they begin with


def test_environments_that_are_not_wrapped_alike_are_refused():
    made = []

    def differently():
        made.append(Counter())
        return NormalizeObservation(made[-1]) if len(made) == 1 else made[-1]

    agent = vt.DQN(differently, normalise_observations=False, **SMALL).learn(40)
    with pytest.raises(ValueError, match="does not normalise each in the same way"):
        agent.evaluate(1)


def test_saving_says_that_a_wrapper_keeps_its_statistics(tmp_path):
    with pytest.warns(UserWarning, match="statistics of NormalizeReward belong to the environment"):
        vt.DQN(make, **SMALL).save(tmp_path / "agent.vt")
    envs = gymnasium.wrappers.vector.NormalizeObservation(
        gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync")
    )
    with pytest.warns(UserWarning, match="statistics of NormalizeObservation"):
        vt.DQN(envs, **SMALL).save(tmp_path / "agent.vt")


def test_saving_is_silent_without_such_a_wrapper(tmp_path, recwarn):
    vt.DQN(Counter, **SMALL).save(tmp_path / "agent.vt")
    assert not recwarn.list
