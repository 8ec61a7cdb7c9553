"""Agents in other environments than the one they began in: to be evaluated, and to go on."""

from __future__ import annotations

import functools

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TransformReward

from tests.small_envs import Counter, Marked
from valuetrack.envs.indoor_escape import IndoorEscape
from valuetrack.io.errors import ModelFileError
from valuetrack.registry import DQN, LKTD, ValueTracker, load

SMALL = {"hidden": (4,), "batch_size": 4, "learning_starts": 8, "replay_capacity": 40, "samples": 2}
ESCAPE = IndoorEscape(width=4, height=3, horizon=7)
ENDLESS = functools.partial(Counter, last=10**9, horizon=10**9)
POLE = "CartPole-v1"


@pytest.fixture(scope="module")
def counting():
    return DQN(Counter, seeds=2, **SMALL).learn(16)


def test_an_object_made_by_gymnasium_is_copied_for_an_evaluation():
    env = TransformReward(gymnasium.make(POLE), lambda reward: 2 * reward)
    agent = DQN(env, **SMALL).learn(16, evaluate_every=8, evaluation_episodes=1)
    env.reset(seed=0)
    env.step(0)
    played = agent.play(2)
    assert env.unwrapped.steps_beyond_terminated is None  # nobody else played in it
    np.testing.assert_array_equal(played.returns, 2 * played.lengths)
    vector = gymnasium.make_vec(POLE, 2, vectorization_mode="sync")
    assert DQN(vector, **SMALL).evaluate(1).shape == (1, 1)


def test_an_object_that_cannot_be_copied_is_evaluated_elsewhere():
    agent = DQN(Counter(), **SMALL)
    with pytest.raises(ValueError, match="no copy of it"):
        agent.evaluate(1)
    agent.learn(16, evaluate_every=8, evaluation_env=Counter)
    assert agent.evaluate(2, env=Counter()).shape == (1, 2)
    with pytest.raises(ValueError, match="Marked has"):
        agent.evaluate(1, env=Marked)


def test_an_evaluation_in_another_environment(counting):
    same, other = (
        counting.evaluate(3, env=Counter),
        counting.evaluate(3, env=functools.partial(Counter, horizon=2)),
    )
    np.testing.assert_array_equal(same, counting.evaluate(3))
    assert (other <= same).all()
    assert (other != same).any()


def test_an_evaluation_in_jax_elsewhere():
    agent = DQN(ESCAPE, **SMALL)
    np.testing.assert_array_equal(agent.evaluate(3, env=ESCAPE), agent.evaluate(3))
    shorter = agent.play(3, env=IndoorEscape(width=4, height=3, horizon=5))
    assert shorter.lengths.max() <= 5
    assert not shorter.cut_off.any()


def test_a_limit_is_said_when_it_strikes(counting):
    for agent, env in ((counting, ENDLESS), (DQN(ESCAPE, **SMALL), None)):
        with pytest.warns(RuntimeWarning, match=r"of \d episodes did not end within 3 steps"):
            played = agent.play(2, env=env, max_episode_steps=3)
        assert (played.lengths[played.cut_off] == 3).all()
        assert played.cut_off.any()
    assert not counting.play(2, max_episode_steps=4).cut_off.any()  # they end by themselves


def test_a_bar_counts_episodes(counting, capsys):
    counting.evaluate(3, progress_bar=True)
    assert "6/6 episodes" in capsys.readouterr().out


def test_the_best_agent_is_kept(tmp_path):
    path = tmp_path / "best.vt"
    agent = DQN(Counter, **SMALL)
    seen = []

    def note(progress):
        if progress.evaluation is not None:
            seen.append((progress.evaluation.mean(), progress.steps))

    options = {"evaluate_every": 8, "evaluation_episodes": 2, "callback": note}
    agent.learn(40, keep_best=path, **options)
    best = max(mean for mean, _ in seen)
    kept = load(path, env=Counter)
    assert kept.num_timesteps == next(steps for mean, steps in seen if mean == best)
    assert kept.best_return == agent.best_return == best
    agent.best_return = 1e9  # nothing is as good as that
    agent.learn(16, keep_best=path, **options)
    assert load(path, env=Counter).num_timesteps == kept.num_timesteps


def test_the_best_needs_evaluations():
    with pytest.raises(ValueError, match="pass evaluate_every"):
        DQN(Counter, **SMALL).learn(8, keep_best="best.vt")


def test_going_on_in_another_environment(counting):
    agent = DQN(Counter, seeds=2, **SMALL).learn(16)
    values = agent.posterior([1.0, 2.0]).latest
    agent.set_env(functools.partial(Counter, last=3))
    assert agent.num_timesteps == 16
    np.testing.assert_array_equal(agent.posterior([1.0, 2.0]).latest, values)
    assert len(agent.trainer.memory(0).reward) == 16
    assert agent.learn(16).num_timesteps == 32
    with pytest.raises(ValueError, match="observations of shape"):
        agent.set_env(Marked)
    assert agent.learn(4).num_timesteps == 36  # in the one it had


def test_going_on_from_jax_in_python():
    agent = DQN(POLE, **SMALL)
    values = agent.posterior([0.1, 0, 0, 0]).latest
    agent.set_env(gymnasium.make(POLE))
    assert agent.backend == "host"
    np.testing.assert_allclose(agent.posterior([0.1, 0, 0, 0]).latest, values, rtol=1e-6)


def test_spaces():
    agent = DQN(Counter, **SMALL)
    assert agent.observation_space == Counter().observation_space
    assert agent.action_space == Counter().action_space
    compiled = DQN(POLE, **SMALL)
    assert compiled.action_space == gymnasium.spaces.Discrete(2)
    assert compiled.observation_space.shape == (4,)
    assert compiled.predict(compiled.observation_space.sample())[0] in compiled.action_space


def test_loading_by_the_class(counting, tmp_path):
    path = tmp_path / "agent.vt"
    counting.save(path)
    found = DQN.load(path, env=Counter)
    assert type(found) is DQN
    assert found.num_timesteps == 16
    with pytest.raises(ModelFileError, match="holds the algorithm 'dqn', not lktd"):
        LKTD.load(path, env=Counter)
    tracker = ValueTracker(Counter, lambda seen: 5, **SMALL)
    tracker.save(path)
    again = ValueTracker.load(path, Counter, lambda seen: 6)
    assert again.policy(None) == 6


def test_an_agent_is_called_after_its_environment():
    assert repr(DQN(gymnasium.make(POLE), **SMALL)).startswith("DQN on CartPole-v1,")
