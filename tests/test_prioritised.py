"""Prioritised replay: what is drawn, what it weighs, and that values are right all the same."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import valuetrack as vt
from tests import probes, small_envs
from tests.test_n_step import GAMMA, KINDS, PROBE
from valuetrack.replay.prioritised import SMALLEST, Priorities

FILLED, CAPACITY = 37, 50
KEPT = np.zeros(Priorities(CAPACITY, 0.5).size, np.float32)
KEPT[:FILLED] = np.random.default_rng(0).gamma(0.5, size=FILLED) + 0.01
ENDED = 2 * (1 + 3**0.5) / (1 + 3**0.5 / 2)
"""Where the value of the last place of Coins ends up if errors count twice, in how often they are
drawn and in the loss: sqrt(3) (2 - q / 2) = q - 2."""


@pytest.mark.parametrize("xp", [np, jnp], ids=["host", "device"])
def test_rows_are_drawn_in_proportion_and_weigh_the_inverse(xp):
    ring, count = Priorities(CAPACITY, 0.5), 200_000
    uniforms = np.random.default_rng(1).random(count, np.float32)
    draw = functools.partial(ring.draw, xp, filled=FILLED, beta=0.7)
    found = (jax.jit(draw) if xp is jnp else draw)(xp.asarray(KEPT), uniforms)
    rows, weights = np.asarray(found.rows), np.asarray(found.weights)
    shares = KEPT[:FILLED] / KEPT.sum()
    np.testing.assert_allclose(np.bincount(rows, minlength=FILLED) / count, shares, atol=1e-4)
    expected = (FILLED * shares) ** -0.7
    np.testing.assert_allclose(weights, (expected / expected.max())[rows], rtol=2e-4)


def test_new_rows_count_as_the_largest_and_errors_as_their_power():
    ring = Priorities(CAPACITY, 0.5)
    assert ring.of_new(np, np.zeros((1, 9), np.float32)).tolist() == [1.0]
    assert ring.of_new(np, np.array([[0.5, 3.0, 0.0]])).tolist() == [3.0]
    errors = np.array([4.0, -9.0, 0.0, np.nan, np.inf])
    expected = np.sqrt(np.array([4.0, 9.0, 0.0, 0.0, 0.0]) + SMALLEST)
    np.testing.assert_allclose(ring.of_errors(np, errors), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["bootdqn", "qrdqn", "iqn"])
def test_known_values_are_found(name):
    kind, own = KINDS[name]
    own = {**own, "prioritised": 0.6, "importance_updates": 1_000}
    agent = kind(probes.Probes(), **{**PROBE, **own}).learn(6_000)
    q = np.asarray(agent.posterior(np.eye(4, dtype=np.float32)).mean)
    np.testing.assert_allclose(q[0], [-1.0, 1.0], atol=0.15)
    np.testing.assert_allclose(q[1:3, 0], [GAMMA, 1.0], atol=0.15)
    np.testing.assert_allclose(q[3], 1 / (1 - GAMMA), atol=0.3)


COINS = {
    **PROBE, "n_step": 1, "loss": "squared", "prioritised": 1.0, "importance_updates": 0,
    "learning_rate": 2e-2, "target_every": 20, "hidden": (), "batch_size": 64,
    "replay_capacity": 8_000, "double": False, "exploration_final": 1.0,
}  # fmt: skip


def value_of_coins(env, beta):
    options = {**COINS, "importance": beta, "importance_updates": 10**6}
    agent = vt.DQN(env, **options).learn(6_000)
    return agent, agent.posterior([0.0, 0.0, 1.0]).mean.mean()


@pytest.mark.parametrize("backend", ["compiled", "host"])
def test_weights_undo_what_is_drawn_more_often(backend):
    """An episode ends by a coin, so that errors are large and rare on one side."""
    env = probes.Coins(noise=0.0)
    if backend == "host":
        env = functools.partial(small_envs.Coins, noise=0.0)
    agent, right = value_of_coins(env, 1.0)
    assert agent.backend == backend
    np.testing.assert_allclose(right, 2 / (1 - 0.75 * GAMMA), atol=0.12)
    _, off = value_of_coins(env, 0.0)
    np.testing.assert_allclose(off, ENDED, atol=0.12)


@pytest.mark.parametrize("updates", [1, 3])
def test_priorities_are_the_errors_of_the_last_updates(updates):
    """Once the values are constant zeros, errors are rewards, which the memory holds."""
    options = {**COINS, "learning_rate": 1e-12, "init_sd": 1e-12, "updates_per_cycle": updates}
    for env in (probes.Coins(noise=0.0), functools.partial(small_envs.Coins, noise=0.0)):
        arrays = vt.DQN(env, **options).learn(800).trainer.arrays()
        priority, reward = arrays["replay.priority"][0], arrays["replay.reward"][0]
        found = np.abs(priority - (reward + SMALLEST)) < 1e-3
        assert found.mean() > 0.5  # the others have not been drawn,
        assert (priority[~found] >= 2.0).all()  # and count as the largest


def test_a_run_that_is_saved_and_resumed_has_the_same_bits(tmp_path):
    kind, own = KINDS["dqn"]
    own = {**PROBE, **own, "prioritised": 0.6}
    whole = kind(probes.Probes(), **own).learn(320)
    half = kind(probes.Probes(), **own).learn(200)
    half.save(tmp_path / "half")
    half = vt.load(tmp_path / "half", env=probes.Probes()).learn(120)
    one, other = whole.trainer.arrays(), half.trainer.arrays()
    assert "replay.priority" in one
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def test_on_the_host_priorities_come_back(tmp_path):
    agent = vt.DQN(small_envs.Coins, **COINS).learn(200)
    agent.save(tmp_path / "agent")
    again = vt.load(tmp_path / "agent", env=small_envs.Coins)
    saved, found = agent.trainer.arrays(), again.trainer.arrays()
    np.testing.assert_array_equal(found["replay.priority"], saved["replay.priority"])
    saved["replay.priority"] = -saved["replay.priority"]
    with pytest.raises(ValueError, match="priorities that cannot be"):
        again.trainer.restore(saved)
    del saved["replay.priority"]
    with pytest.raises(ValueError, match="does not fit"):
        again.trainer.restore(saved)


def test_where_it_is_not_sound_it_is_refused():
    with pytest.raises(ValueError, match="all are drawn evenly; DQN, BootDQN, QRDQN and IQN have"):
        vt.LKTD("CartPole-v1", prioritised=0.6)
    with pytest.raises(ValueError, match="prioritised is for a replay memory"):
        vt.DQN("CartPole-v1", prioritised=0.6, replay_capacity=None)
