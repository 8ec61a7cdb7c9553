"""The deep sea against a plain account of bsuite's, its values, and when it counts as solved."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from tests.envs.played import play, row, uniforms
from valuetrack.envs import (
    DeepSea,
    episodes_to_solve,
    optimal_values,
    table_values,
    values_to_go,
)


class PlainDeepSea:
    """The rules of bsuite's deep sea, one after the other; randomness is given."""

    def __init__(self, size, mapping, move_cost=0.01):
        self.size, self.cost, self.mapping = size, move_cost, mapping
        self.row = self.column = 0
        self.bad = False
        self.denoised = 0.0

    def step(self, action, wind=None, noise=None):
        reward = 0.0
        is_right = action == self.mapping[self.row, self.column]
        if self.column == self.size - 1 and is_right:
            reward += 1.0
            self.denoised += 1.0
        if noise is not None and self.row == self.size - 1 and self.column in (0, self.size - 1):
            reward += noise
        if is_right:
            if wind is None or wind > 1 / self.size:
                self.column = min(self.column + 1, self.size - 1)
            reward -= self.cost / self.size
        else:
            if self.row == self.column:
                self.bad = True
            self.column = max(self.column - 1, 0)
        self.row += 1
        return reward, self.row == self.size

    def grid(self):
        seen = np.zeros((self.size, self.size))
        if self.row < self.size:
            seen[self.row, self.column] = 1.0
        return seen


def drawn(size, seed):
    return np.random.RandomState(seed).binomial(1, 0.5, [size, size])


@pytest.mark.parametrize("stochastic", [False, True])
def test_episodes_are_those_of_the_plain_rules(stochastic):
    size, copies, mapping = 4, 300, drawn(4, 3)
    env = DeepSea(size=size, stochastic=stochastic, mapping_seed=3, move_cost=0.05)
    _, actions, _, noise, results = play(env, uniforms(1), size, 2, copies)
    kinds = set()
    for copy in range(copies):
        plain = PlainDeepSea(size, mapping, move_cost=0.05)
        for step in range(size):
            given = ()
            if stochastic:
                wind, uniform = noise[step, copy]
                given = (wind, stats.norm.ppf(uniform))
            reward, over = plain.step(actions[step, copy], *given)
            ours = row(results, step, copy)
            assert ours.reward == pytest.approx(reward, abs=1e-5)
            assert (bool(ours.terminated), bool(ours.truncated)) == (over, False)
            np.testing.assert_array_equal(ours.observation, plain.grid().ravel())
            assert (ours.state.is_bad, ours.state.found) == (plain.bad, bool(plain.denoised))
            assert ours.state.steps == step + 1
        kinds.add((plain.bad, bool(plain.denoised)))
    # Without wind good episodes and the treasure are one; with it, some good ones miss it.
    assert kinds == {(True, False), (False, True)} | ({(False, False)} if stochastic else set())


def test_a_fair_wind_and_a_long_way():
    """The noise is N(0, 1), in the lower corners alone, and the wind blows once in N steps."""
    size = 5
    env = DeepSea(size=size, stochastic=True, mapping_seed=None)
    _, _, _, _, results = play(env, uniforms(4), size, 5, 40_000, go=1.0)
    stayed = (results.state.place[0] == size).mean()  # the first column of the second row
    assert stayed == pytest.approx(1 / size, abs=4 * (0.16 / 40_000) ** 0.5)
    column = results.state.place[-2] - (size - 1) * size
    last = results.reward[-1] + 0.01 / size
    assert last[column == size - 1].mean() == pytest.approx(1.0, abs=0.05)
    assert last[column == size - 1].std() == pytest.approx(1.0, abs=0.05)
    np.testing.assert_allclose(last[(column > 0) & (column < size - 1)], 0.0, atol=1e-7)
    np.testing.assert_allclose(results.reward[:-1], -0.01 / size, rtol=1e-5)


def every_return(size, seed, discount):
    """Play every sequence of actions by the plain rules; return what the best one pays."""
    best, mapping = -np.inf, drawn(size, seed)
    for actions in itertools.product([0, 1], repeat=size):
        sea = PlainDeepSea(size, mapping)
        paid = sum(discount**k * sea.step(action)[0] for k, action in enumerate(actions))
        best = max(best, paid)
    return best


def test_the_best_return_is_that_of_the_best_of_all_sequences():
    env = DeepSea(size=6, mapping_seed=7)
    assert env.optimal_return() == pytest.approx(every_return(6, 7, 1.0))
    best = np.nanmax(optimal_values(env.table, 0.9)[0])
    assert best == pytest.approx(every_return(6, 7, 0.9))
    assert DeepSea(size=30, move_cost=0.2).optimal_return() == pytest.approx(0.8)


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("discount", [1.0, 0.97])
def test_values_are_the_closed_form(stochastic, discount):
    size = 8
    env = DeepSea(size=size, stochastic=stochastic, mapping_seed=5)
    left = np.arange(size, 0, -1)  # steps, on the diagonal
    q = values_to_go(env.table, size, discount)[-1]
    if discount < 1:
        np.testing.assert_allclose(optimal_values(env.table, discount), q, atol=1e-12)
    p, cost = 1 - 1 / size if stochastic else 1.0, 0.01 / size
    blown = discount * p
    expected = [blown ** (n - 1) - cost * sum(blown**k for k in range(n)) for n in left]
    grid = q[:-1].reshape(size, size, 2)
    right = np.take_along_axis(grid, env.right[..., None], axis=2)[..., 0]
    wrong = np.take_along_axis(grid, 1 - env.right[..., None], axis=2)[..., 0]
    np.testing.assert_allclose(np.diag(right), expected, rtol=1e-9)
    below = np.tril_indices(size, -1)
    np.testing.assert_allclose(right[below], -cost, rtol=1e-9)
    np.testing.assert_allclose(wrong[np.tril_indices(size)], 0.0, atol=1e-15)
    assert np.isnan(grid[np.triu_indices(size, 1)]).all()  # out of reach
    assert np.isnan(q[-1]).all()  # the end
    # Going right in any case pays what bsuite calls optimal; it is less where there is a wind.
    always = np.pad(np.eye(2)[env.right].reshape(-1, 2), ((0, 1), (0, 0)))
    if discount == 1.0:
        paid = np.nanmax(values_to_go(env.table, size, policy=always)[-1][0] * always[0])
        assert paid == pytest.approx(p ** (size - 1) - 0.01)
        assert env.optimal_return() == pytest.approx(expected[0])
        assert (env.optimal_return() > paid + 1e-4) == stochastic


def test_the_values_of_a_policy_are_means_of_plain_episodes():
    size, discount, mapping = 4, 0.9, drawn(4, 2)
    env = DeepSea(size=size, stochastic=True, mapping_seed=2)
    policy = np.full((size * size + 1, 2), [0.3, 0.7])
    q = table_values(env.table, policy, discount)[0]
    draws, sums = np.random.default_rng(6), []
    for _ in range(5_000):
        sea = PlainDeepSea(size, mapping)
        action, paid = 1, 0.0
        for k in range(size):
            paid += discount**k * sea.step(action, draws.random(), draws.normal())[0]
            action = int(draws.random() < 0.7)
        sums.append(paid)
    assert q[1] == pytest.approx(np.mean(sums), abs=4 * np.std(sums) / 5_000**0.5)


def test_actions_are_mapped_place_by_place():
    first, again, other = (DeepSea(size=9, mapping_seed=seed).right for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert set(np.unique(first)) == {0, 1}
    assert (DeepSea(size=9, mapping_seed=None).right == 1).all()
    # bsuite's experiments: size 10 and seed 42, the first row of its mapping.
    assert DeepSea().right[0].tolist() == [0, 1, 1, 1, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"size": 1}, ValueError, "size must be at least 2, but is 1"),
        ({"size": 4.5}, TypeError, "size must be an integer, but is 4.5"),
        ({"mapping_seed": -1}, ValueError, "mapping_seed must be at least 0"),
        ({"move_cost": np.inf}, ValueError, "move_cost must be finite"),
    ],
)
def test_mistakes_are_said_in_a_sentence(options, error, message):
    with pytest.raises(error, match=message):
        DeepSea(**options)


def solved_by_bsuite(is_bad, threshold, first):
    """Go through the episodes as bsuite's analysis goes through its log."""
    total = 0
    for episode, bad in enumerate(is_bad, start=1):
        total += bad
        if episode >= first and total / episode < threshold:
            return episode
    return None


def test_when_a_sea_counts_as_solved():
    draws = np.random.default_rng(0)
    for start in (5, 60, 150):
        bad = np.concatenate([np.ones(start, bool), draws.random(400) < 0.4])
        found = episodes_to_solve(bad), episodes_to_solve(bad, stochastic=True)
        assert found == (solved_by_bsuite(bad, 0.9, 1), solved_by_bsuite(bad, 0.8, 100))
        assert found[0] < found[1] or found[1] == 100
    assert episodes_to_solve([False]) == 1
    assert episodes_to_solve([False] * 99, stochastic=True) is None
    assert episodes_to_solve([True] * 9 + [False]) is None  # not below nine tenths
    assert episodes_to_solve(np.ones(500)) is None
    assert episodes_to_solve([True] * 10 + [False] * 10, episodes=10) is None
    assert episodes_to_solve([]) is None
