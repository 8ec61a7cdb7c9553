"""Exact values from transition tables, against plain iteration and episodes."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from valuetrack.envs import CHANGED_REWARDS_ID
from valuetrack.envs.gym.tabular import (
    has_table,
    optimal_values,
    table_values,
    transition_table,
)


def iterated(env, policy, discount, sweeps=2_000):
    """Evaluate a policy by going through the environment's own table again and again."""
    table = env.unwrapped.P
    values = np.zeros((len(table), len(table[0])))
    for _ in range(sweeps):
        state_values = np.sum(policy * values, axis=1)
        for state, choices in table.items():
            for action, ends in choices.items():
                values[state, action] = sum(
                    p * (r + discount * state_values[s] * (not end)) for p, s, r, end in ends
                )
    return values


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CliffWalking-v1"])
def test_values_are_those_of_plain_iteration(env_id):
    env = gymnasium.make(env_id)
    table = transition_table(env)
    draws = np.random.default_rng(0).random(table.legal.shape)
    policy = draws / draws.sum(axis=1, keepdims=True)
    found = table_values(table, policy, 0.9)
    expected = iterated(env, policy, 0.9, sweeps=300)
    np.testing.assert_allclose(found[table.legal], expected[table.legal], atol=1e-8)
    assert np.isnan(found[~table.legal]).all()


def test_only_states_in_which_an_episode_acts_count():
    lake = transition_table(gymnasium.make("FrozenLake-v1"))
    holes_and_goal = [5, 7, 11, 12, 15]
    np.testing.assert_array_equal(np.flatnonzero(~lake.legal.any(axis=1)), holes_and_goal)
    cliff = transition_table(gymnasium.make("CliffWalking-v1"))
    np.testing.assert_array_equal(np.flatnonzero(~cliff.legal.any(axis=1)), np.arange(37, 48))


def test_the_values_of_taxi_are_what_an_episode_pays():
    env = gymnasium.make(max(name for name in gymnasium.registry if name.startswith("Taxi-v")))
    table = transition_table(env)
    state, info = env.reset(seed=3)
    np.testing.assert_array_equal(table.legal[state], info["action_mask"].astype(bool))
    assert not table.legal.all()
    policy = table.legal / np.maximum(table.legal.sum(axis=1, keepdims=True), 1)
    # The best policy by iteration, then played: it is deterministic, and so is Taxi.
    for _ in range(30):
        values = table_values(table, policy, 0.99)
        best = np.argmax(np.where(table.legal, values, -np.inf), axis=1)
        policy = np.eye(6)[best]
    start, paid, discount, over = state, 0.0, 1.0, False
    while not over:
        state, reward, over, _, _ = env.step(best[state])
        paid, discount = paid + discount * reward, 0.99 * discount
    assert paid == pytest.approx(values[start, best[start]])
    assert paid > 0


def test_what_has_no_table_or_no_policy_is_refused():
    assert not has_table(gymnasium.make("CartPole-v1"))
    env = gymnasium.make("FrozenLake-v1")
    assert has_table(env)
    table = transition_table(env)
    with pytest.raises(ValueError, match="sum to one"):
        table_values(table, np.zeros((16, 4)), 0.9)
    with pytest.raises(ValueError, match=r"\[0, 1\), but is 1"):
        table_values(table, np.full((16, 4), 0.25), 1.0)


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CliffWalking-v1"])
def test_the_best_values_satisfy_bellmans_equation_of_optimality(env_id):
    table = transition_table(gymnasium.make(env_id))
    q = optimal_values(table, 0.95)
    v = np.where(table.legal.any(axis=1), np.where(table.legal, q, -np.inf).max(axis=1), 0.0)
    wanted = table.reward + 0.95 * (table.following @ v).reshape(q.shape)
    np.testing.assert_allclose(q[table.legal], wanted[table.legal], atol=1e-8)
    assert table.starts.sum() == pytest.approx(1.0)


def test_rewards_in_other_units_are_those_of_the_table():
    plain = gymnasium.make("FrozenLake-v1")
    changed = gymnasium.make(CHANGED_REWARDS_ID, of="FrozenLake-v1", scale=1000.0, shift=-10.0)
    wanted = 1000.0 * transition_table(plain).reward - 10.0
    np.testing.assert_allclose(transition_table(changed).reward, wanted)
    changed.reset(seed=0)
    assert changed.step(0)[1] == -10.0
    assert changed.spec.max_episode_steps == plain.spec.max_episode_steps


def test_an_id_with_a_module_is_not_made_under_changed_rewards():
    with pytest.raises(ValueError, match="imports nothing"):
        gymnasium.make(CHANGED_REWARDS_ID, of="os:CartPole-v1")
