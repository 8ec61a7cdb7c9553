"""The exact values of policies in the indoor escape."""

from __future__ import annotations

import numpy as np
import pytest

from valuetrack.envs import (
    IndoorEscape,
    action_values,
    optimal_policy_probabilities,
    optimal_q,
    state_values,
)

ENV = IndoorEscape(width=4, height=3, walls=((1, 1),))
LEGAL = optimal_q(ENV).legal
ACTING = LEGAL.any(axis=1)


def uniform(env=ENV):
    legal = optimal_q(env).legal
    return legal / np.maximum(legal.sum(axis=1, keepdims=True), 1)


def some_policy(seed=0):
    weights = np.random.default_rng(seed).exponential(size=LEGAL.shape) * LEGAL
    return weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-9)


def by_iteration(env, policy, discount, sweeps=3_000):
    """Return the values after many sweeps of the Bellman equation, cell by cell."""
    goal = env.index(env.goal_position)
    moves = [(1, 0), (0, 1), (-1, 0), (0, -1)]
    values = np.zeros(env.width * env.height)
    for _ in range(sweeps):
        updated = np.zeros_like(values)
        for cell in np.flatnonzero(optimal_q(env).legal.any(axis=1)):
            x, y = cell % env.width, cell // env.width
            for action, (dx, dy) in enumerate(moves):
                to = (x + dx, y + dy)
                free = 0 <= to[0] < env.width and 0 <= to[1] < env.height and to not in env.walls
                there = env.index(to) if free else cell
                later = 0.0 if there == goal else values[there]
                updated[cell] += policy[cell, action] * (env.reward_mean + discount * later)
        values = updated
    return values


@pytest.mark.parametrize("masked", [True, False])
def test_values_solve_the_bellman_equation(masked):
    env = IndoorEscape(width=3, height=3, walls=((1, 1),), masked=masked, reward_mean=-2.0)
    policy = uniform(env)
    expected = by_iteration(env, policy, 0.8, sweeps=200)
    np.testing.assert_allclose(state_values(env, policy, 0.8), expected, rtol=1e-9)


def test_state_values_are_means_of_action_values():
    policy = some_policy()
    q = action_values(ENV, policy, 0.9)
    assert np.isnan(q[~LEGAL]).all()
    mean = np.where(LEGAL, policy * q, 0.0).sum(axis=1)
    np.testing.assert_allclose(state_values(ENV, policy, 0.9)[ACTING], mean[ACTING], rtol=1e-12)


def test_the_optimal_values_are_those_of_their_policy():
    epsilon = 0.3
    policy = (1 - epsilon) * optimal_policy_probabilities(ENV) + epsilon * uniform()
    expected = optimal_q(ENV, epsilon, 0.9).values
    np.testing.assert_allclose(action_values(ENV, policy, 0.9), expected, rtol=1e-12)


def test_a_worse_policy_is_worth_less():
    best = state_values(ENV, optimal_policy_probabilities(ENV))
    assert (state_values(ENV, uniform())[ACTING] < best[ACTING]).all()
    assert (best[~ACTING] == 0.0).all()


@pytest.mark.parametrize(
    ("policy", "discount", "message"),
    [
        (np.ones((12, 3)), 0.9, r"shape \(12, 4\)"),
        (np.full((12, 4), 0.25), 0.9, "sum to one over the legal"),
        (np.where(LEGAL, np.nan, 0.0), 0.9, "must not be negative"),
        (2 * some_policy() - some_policy(1), 0.9, "must not be negative"),
        (some_policy(), 1.5, "discount must lie in"),
    ],
    ids=["shape", "illegal", "nan", "negative", "discount"],
)
def test_mistakes_are_said_in_a_sentence(policy, discount, message):
    with pytest.raises(ValueError, match=message):
        state_values(ENV, policy, discount)


def test_a_policy_that_never_leaves_has_no_value_without_a_discount():
    corridor = IndoorEscape(width=3, height=1)
    to_and_fro = np.array([[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
    np.testing.assert_allclose(state_values(corridor, to_and_fro, 0.5)[:2], -2.0)
    with pytest.raises(ValueError, match="never leaves"):
        state_values(corridor, to_and_fro, 1.0)
