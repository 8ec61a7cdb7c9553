"""Copies, pickles, and how agents introduce themselves."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import valuetrack as vt
from tests.small_envs import Counter
from valuetrack.registry import AGENTS

SMALL = {
    "hidden": (8,),
    "batch_size": 8,
    "learning_starts": 20,
    "replay_capacity": 200,
    "samples": 4,
    "thinning": 1,
}
STATES = np.eye(3, 4, dtype=np.float32)


def bits(agent):
    return {name: array.copy() for name, array in agent.trainer.arrays().items()}


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.parametrize("name", ["lktd", "bootdqn"])
def test_a_copy_learns_on_bit_for_bit_and_leaves_the_original_alone(name):
    agent = AGENTS[name]("CartPole-v1", seed=4, seeds=2, **SMALL).learn(60, track=STATES)
    before = bits(agent)
    twin = copy.deepcopy(agent)
    assert type(twin) is type(agent)
    assert (twin.options, twin.seeds, twin.num_timesteps) == (agent.options, agent.seeds, 60)
    assert_same_bits(bits(twin), before)
    twin.learn(60, track=STATES)
    assert_same_bits(bits(agent), before)
    assert len(agent.tracking()) < len(twin.tracking())
    agent.learn(60, track=STATES)
    assert_same_bits(bits(agent), bits(twin))
    for part in ("steps", "updates", "samples"):
        one, other = (getattr(each.tracking(), part) for each in (agent, twin))
        np.testing.assert_array_equal(one, other)
    states = [STATES[0]] * 50
    explored = [each.predict(states, deterministic=False)[0] for each in (agent, twin)]
    np.testing.assert_array_equal(*explored)


def test_options_that_are_schedules_are_copied():
    rate = {"schedule": "polynomial", "initial": 1e-4, "power": 0.5}
    agent = vt.LKTD("CartPole-v1", step_size=rate, **SMALL)
    assert copy.deepcopy(agent).options == agent.options


@pytest.mark.parametrize("env", [Counter, Counter()], ids=["class", "object"])
def test_a_copy_on_the_host_has_environments_of_its_own(env):
    agent = vt.DQN(env, **SMALL).learn(60)
    twin = copy.deepcopy(agent)
    assert_same_bits(bits(agent), bits(twin))
    before = bits(agent)
    twin.learn(40)
    assert_same_bits(bits(agent), before)
    agent.learn(40)  # its episode went on


@pytest.mark.parametrize("name", ["DQN", "LKTD"])
def test_a_pickle_is_refused(name):
    agent = getattr(vt, name)("CartPole-v1", **SMALL)
    with pytest.raises(TypeError, match=rf"{name} cannot be pickled; .*agent\.save\(path\).*\.$"):
        pickle.dumps(agent)


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_introduces_itself_in_a_few_lines(name):
    agent = AGENTS[name]("CartPole-v1", seed=7, **SMALL)
    text = repr(agent)
    assert text.startswith(f"{type(agent).__name__} on CartPole-v1, seed 7\n")
    assert len(text.splitlines()) <= 5
    assert max(map(len, text.splitlines())) < 150
    assert "hidden=(8,)" in text
    assert "discount" not in text  # as by default


def test_several_seeds_and_a_divergence_are_named():
    agent = vt.LKTD(Counter, seeds=3, step_size=1e6, guard=False, **SMALL)
    assert "LKTD on Counter, seeds 0 to 2" in repr(agent)
    with pytest.warns(RuntimeWarning, match="diverged"):
        agent.learn(200)
    assert "diverged: seed 0 at update" in repr(agent)


@pytest.mark.parametrize("name", ["lktd", "dqn"])
def test_a_posterior_introduces_itself_in_a_few_lines(name):
    agent = AGENTS[name]("CartPole-v1", **SMALL)
    assert "1 samples" in repr(agent.posterior(STATES[0]))
    agent.learn(60)
    one, many = agent.posterior(STATES[0]), agent.posterior(np.zeros((500, 4), np.float32))
    assert "2 Q-values from 4 samples" in repr(one)
    assert "500 x 2 Q-values" in repr(many)
    for text in (repr(one), repr(many)):
        assert len(text.splitlines()) <= 10
        assert agent.sample_name in text
    if name == "lktd":
        assert "LKTD" in repr(one)
