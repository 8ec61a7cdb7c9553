from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from valuetrack import policies

LARGEST = np.float32(1 - 2**-24)
"""The largest float32 below one; ``jax.random.uniform`` reaches no further."""

MASKS = [list(mask) for mask in itertools.product([False, True], repeat=4) if any(mask)]
Q = jnp.array([3.0, -1.0, 3.0, 2.0])


@pytest.mark.parametrize("mask", [None, *MASKS])
def test_greedy_and_max_over_legal_actions(mask):
    legal = [a for a in range(4) if mask is None or mask[a]]
    best = max(legal, key=lambda a: (Q[a], -a))
    array = None if mask is None else jnp.array(mask)
    assert policies.greedy(Q, array) == best
    assert policies.masked_max(Q, array) == Q[best]


def test_masks_broadcast_over_batches():
    q = jnp.stack([Q, -Q])
    mask = jnp.array([[False, True, False, True], [True, True, True, False]])
    np.testing.assert_array_equal(policies.greedy(q, mask), [3, 1])
    np.testing.assert_array_equal(policies.masked_max(q, mask), [2.0, 1.0])
    np.testing.assert_array_equal(policies.greedy(q, mask[0]), [3, 1])


def test_no_legal_action_is_worth_nothing_and_poisons_nothing():
    nothing = jnp.zeros(4, bool)
    value, gradient = jax.value_and_grad(lambda q: 0.0 * policies.masked_max(q, nothing))(Q)
    assert value == 0
    np.testing.assert_array_equal(gradient, 0)
    assert policies.masked_max(Q, nothing) == 0
    assert policies.greedy(Q, nothing) == 0
    assert policies.uniform_legal(jnp.float32(0.5), nothing) == 0


def test_an_illegal_nan_is_ignored():
    q = jnp.array([jnp.nan, 1.0, 2.0])
    mask = jnp.array([False, True, True])
    assert policies.greedy(q, mask) == 2
    assert policies.masked_max(q, mask) == 2


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.uint8])
def test_select_reads_the_value_of_the_action(dtype):
    q = jnp.arange(24.0).reshape(2, 3, 4)
    action = jnp.array([[0, 1, 2], [3, 2, 1]], dtype)
    expected = [[0, 5, 10], [15, 18, 21]]
    np.testing.assert_array_equal(policies.select(q, action), expected)


@pytest.mark.parametrize("mask", MASKS)
def test_uniform_legal_is_uniform_over_the_legal_actions(mask):
    uniforms = jax.random.uniform(jax.random.key(sum(mask)), (20_000,))
    actions = policies.uniform_legal(uniforms, jnp.array(mask))
    counts = np.bincount(actions, minlength=4)
    assert not counts[~np.array(mask)].any()
    assert counts.sum() == 20_000
    if sum(mask) > 1:  # one legal action leaves nothing to test
        assert stats.chisquare(counts[mask]).pvalue > 1e-4


@pytest.mark.parametrize("actions", [1, 3, 5, 18])
def test_uniform_legal_reaches_both_ends_and_no_further(actions):
    mask = jnp.pad(jnp.ones(actions, bool), (1, 2))  # illegal ones on either side
    ends = policies.uniform_legal(jnp.array([0.0, LARGEST, 1.0]), mask)  # and a one, if rounded up
    np.testing.assert_array_equal(ends, [1, actions, actions])


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("uniform", [0.0, 0.5, LARGEST])
def test_epsilon_zero_is_greedy_and_epsilon_one_is_uniform(mask, uniform):
    mask, uniforms = jnp.array(mask), jnp.array([uniform, uniform])
    assert policies.epsilon_greedy(uniforms, Q, mask, 0.0) == policies.greedy(Q, mask)
    random = policies.uniform_legal(uniforms[1], mask)
    assert policies.epsilon_greedy(uniforms, Q, mask, 1.0) == random


def test_epsilon_is_the_probability_to_explore():
    uniforms = jax.random.uniform(jax.random.key(0), (30_000, 2))
    mask = jnp.array([False, True, True, True])
    actions = policies.epsilon_greedy(uniforms, Q, mask, 0.3)
    counts = np.bincount(actions, minlength=4)
    assert counts[0] == 0
    expected = 30_000 * np.array([0.1, 0.8, 0.1])  # greedy is 2
    assert stats.chisquare(counts[1:], expected).pvalue > 1e-4


def test_epsilon_may_be_traced():
    act = jax.jit(policies.epsilon_greedy)
    uniforms, mask = jnp.array([0.2, 0.0]), jnp.array([False, True, True, True])
    assert act(uniforms, Q, mask, 0.1) == 2
    assert act(uniforms, Q, mask, 0.3) == 1


# -- given probabilities --------------------------------------------------------------------------


def test_actions_are_drawn_with_their_probabilities():
    probabilities = jnp.array([0.2, 0.0, 0.5, 0.3])
    uniforms = (jnp.arange(1_000) + 0.5) / 1_000
    drawn = jax.vmap(policies.draw_action, (0, None, None))(
        uniforms, probabilities, jnp.ones(4, bool)
    )
    np.testing.assert_array_equal(np.bincount(drawn, minlength=4), [200, 0, 500, 300])


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2.0**-24])
def test_the_ends_of_the_unit_interval_give_likely_actions(uniform):
    probabilities = jnp.array([0.0, 1 / 3, 1 / 3, 1 / 3, 0.0])
    drawn = int(policies.draw_action(jnp.float32(uniform), probabilities, jnp.ones(5, bool)))
    assert drawn == (1 if uniform == 0.0 else 3)


@pytest.mark.parametrize(
    "wrong",
    [[0.5, 0.0, 0.5], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.5, -0.5, 0.0], [np.nan, 1.0, 0.0]],
    ids=["illegal", "two", "none", "negative", "nan"],
)
def test_what_is_no_policy_gives_no_action(wrong):
    mask = jnp.array([True, True, False])
    assert int(policies.draw_action(jnp.float32(0.5), jnp.array(wrong), mask)) == policies.NO_POLICY


def test_nobody_acts_where_nothing_is_legal():
    assert int(policies.draw_action(jnp.float32(0.5), jnp.zeros(3), jnp.zeros(3, bool))) == 0
