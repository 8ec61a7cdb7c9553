"""Greedy episodes: what they bring, and what was expected of them."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import valuetrack as vt

SMALL = {"hidden": (8,), "batch_size": 8, "learning_starts": 20, "replay_capacity": 500}


@pytest.mark.parametrize("backend", ["compiled", "host"])
def test_discounted_returns_are_those_of_the_episodes(backend):
    agent = vt.DQN("CartPole-v1", seeds=2, backend=backend, discount=0.9, **SMALL)
    played = agent.play(4, seed=7)
    assert all(part.shape == (2, 4) for part in played)
    assert len(np.unique(played.returns)) > 1
    # Every step brings one.
    np.testing.assert_allclose(
        played.discounted_returns, (1 - 0.9**played.returns) / (1 - 0.9), rtol=1e-5
    )
    np.testing.assert_array_equal(played.returns, agent.evaluate(4, seed=7))


@pytest.mark.parametrize("backend", ["compiled", "host"])
def test_start_values_are_the_largest_where_episodes_begin(backend):
    env = "valuetrack/IndoorEscape-v0"
    agent = vt.BootDQN(env, seeds=2, backend=backend, **SMALL)
    start, info = gymnasium.make(env).reset(seed=0)
    legal = np.asarray(info["action_mask"], bool)
    assert not legal.all()
    played = agent.play(2)
    for member in range(2):
        values = agent.posterior(start, member=member).latest
        np.testing.assert_allclose(played.start_values[member], values[legal].max(), rtol=1e-5)
    assert played.start_values[0, 0] != played.start_values[1, 0]


def test_each_episode_on_the_host_has_its_own_start():
    agent = vt.DQN("CartPole-v1", backend="host", **SMALL)
    starts = agent.play(5).start_values[0]
    assert len(np.unique(starts)) == 5
    # Cart and pole begin near the middle and at rest.
    near = np.random.default_rng(0).uniform(-0.05, 0.05, (500, 4)).astype(np.float32)
    around = agent.posterior(near).latest.max(axis=-1)
    assert (starts > around.min() - 0.01).all()
    assert (starts < around.max() + 0.01).all()
