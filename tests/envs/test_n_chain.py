"""The N-chain against a plain account of it, and its values with and without an end."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.envs.played import play, row, uniforms
from valuetrack.envs import NChain, optimal_values, table_values, values_to_go


class PlainChain:
    """The chain of the papers, one rule after the other."""

    def __init__(self, size, horizon):
        self.size, self.horizon, self.state, self.time = size, horizon, 1, 0

    def step(self, action):
        reward = 0.0
        if action == 1 and self.state == self.size - 1:
            reward = 1.0
        if action == 0 and self.state == 0:
            reward = 0.001
        moved = self.state + (1 if action == 1 else -1)
        if 0 <= moved < self.size:
            self.state = moved
        self.time += 1
        return reward, self.time >= self.horizon


@pytest.mark.parametrize(
    "options",
    [{}, {"encoding": "one-hot", "horizon": 6}, {"horizon": 7, "limit_terminates": True}],
)
def test_episodes_are_those_of_the_plain_rules(options):
    size = 4
    env = NChain(size=size, **options)
    horizon = options.get("horizon", size + 8)
    assert env.steps_at_most == horizon
    first, actions, _, _, results = play(env, uniforms(0), horizon, 1, 60, go=0.6)
    paid = set()
    for copy in range(60):
        plain = PlainChain(size, horizon)
        assert first.place[copy] == plain.state
        for step in range(horizon):
            reward, over = plain.step(actions[step, copy])
            ours = row(results, step, copy)
            paid.add(reward)
            assert ours.reward == np.float32(reward)
            terminates = over and options.get("limit_terminates", False)
            assert (bool(ours.terminated), bool(ours.truncated)) == (terminates, over ^ terminates)
            bits = [x == plain.state for x in range(size)]
            if "encoding" not in options:
                bits = [x <= plain.state for x in range(size)]
            assert ours.observation.tolist() == bits
    assert paid == {0.0, 0.001, 1.0}


@pytest.mark.parametrize("size", [3, 10, 50, 100])
def test_the_best_return_is_ten_for_every_length(size):
    assert NChain(size=size).optimal_return() == pytest.approx(10.0)
    assert NChain(size=size, limit_terminates=True).optimal_return() == pytest.approx(10.0)
    plain = PlainChain(size, size + 8)
    assert sum(plain.step(1)[0] for _ in range(size + 8)) == 10.0


def test_values_with_an_end_are_those_of_the_best_of_all_sequences():
    env, discount = NChain(size=4), 0.8
    found = values_to_go(env.table, 7, discount)
    for left, state in itertools.product((1, 3, 7), range(4)):
        best = {0: -np.inf, 1: -np.inf}
        for actions in itertools.product((0, 1), repeat=left):
            plain = PlainChain(4, left)
            plain.state = state
            paid = sum(discount**k * plain.step(action)[0] for k, action in enumerate(actions))
            best[actions[0]] = max(best[actions[0]], paid)
        np.testing.assert_allclose(found[left - 1, state], [best[0], best[1]], atol=1e-12)


@pytest.mark.parametrize("discount", [0.3, 0.9, 0.99])
def test_values_without_an_end_are_the_closed_form(discount):
    size = 7
    state = np.arange(size)
    right = discount ** (size - 1 - state) / (1 - discount)
    left = 0.001 * discount**state / (1 - discount)
    best = np.maximum(left, right)
    q = optimal_values(NChain(size=size).table, discount)
    np.testing.assert_allclose(q.max(axis=1), best, rtol=1e-9)
    np.testing.assert_allclose(q[:-1, 1], discount * best[1:], rtol=1e-9)
    np.testing.assert_allclose(q[1:, 0], discount * best[:-1], rtol=1e-9)
    assert (left > right)[0] == (discount == 0.3)  # where the left end wins
    # A policy that stays in the middle.
    policy = np.eye(2)[[1, 0, 0, 0, 0, 0, 0]]
    found = table_values(NChain(size=size).table, policy, discount)
    np.testing.assert_allclose(found[:2], [[0.001, 0.0], [0.0, 0.0]], atol=1e-15)
    assert found[-1, 1] == pytest.approx(1.0)


def test_a_limit_that_terminates_has_no_table():
    env = NChain(limit_terminates=True)
    assert not hasattr(env, "P")
    assert getattr(env, "table", None) is None
    with pytest.raises(AttributeError, match="depend on the time"):
        _ = env.table


def test_codes():
    np.testing.assert_array_equal(NChain(size=4).observations(), np.tri(4, dtype=bool))
    np.testing.assert_array_equal(NChain(size=4, encoding="one-hot").observations(), np.eye(4))
    for wrong, message in [
        ({"encoding": "two-hot"}, "encoding must be 'thermometer' or 'one-hot'"),
        ({"size": 2}, "size must be at least 3"),
        ({"horizon": 0}, "horizon must be at least 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            NChain(**wrong)
