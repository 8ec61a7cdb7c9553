"""Batches of any size are computed by a few programs."""

from __future__ import annotations

import numpy as np
import pytest

import valuetrack as vt
from valuetrack.api.queries import BLOCK, in_blocks

SMALL = {
    "hidden": (8,),
    "batch_size": 8,
    "learning_starts": 20,
    "replay_capacity": 200,
    "samples": 3,
}
MOST = 9
"""The powers of two from 1 to 256."""


@pytest.mark.parametrize("name", ["LKTD", "BootDQN"])
def test_few_programs_serve_all_batch_sizes(name):
    agent = getattr(vt, name)("CartPole-v1", **SMALL).learn(40)
    queries, acting = agent._queries, agent.actor.queries
    states = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    for size in range(1, 101):
        agent.predict(states[:size])
        agent.posterior(states[:size])
    for function in (acting._choose, queries._values, queries._values_of_pool):
        assert 1 <= function._cache_size() <= MOST
    agent.learn(40)  # the pool fills up, and the same programs serve it
    agent.posterior(states)
    assert queries._values_of_pool._cache_size() <= MOST


def test_a_batch_does_not_change_what_is_said_of_one():
    agent = vt.LKTD("CartPole-v1", **SMALL).learn(40)
    states = np.random.default_rng(0).normal(size=(BLOCK + 45, 4)).astype(np.float32)
    whole, actions = agent.posterior(states), agent.predict(states)[0]
    assert whole.samples.shape[1:] == (BLOCK + 45, 2)
    assert actions.shape == (BLOCK + 45,)
    for row in (0, BLOCK - 1, BLOCK, BLOCK + 44):
        one = agent.posterior(states[row])
        np.testing.assert_allclose(whole.samples[:, row], one.samples, rtol=1e-4, atol=1e-6)
        assert agent.predict(states[row])[0] == actions[row]


@pytest.mark.parametrize("count", [1, 2, 3, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_blocks_are_put_together_again(count):
    seen = []

    def double(x, y):
        seen.append(len(x))
        return 2 * x, y + 1

    x = np.arange(count)
    twice, more = in_blocks(double, x, x[:, None])
    np.testing.assert_array_equal(twice, 2 * x)
    np.testing.assert_array_equal(more, x[:, None] + 1)
    assert all(size & (size - 1) == 0 and size <= BLOCK for size in seen)
