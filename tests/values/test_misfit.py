"""What a network cannot express: its size, and intervals that know of it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg

from valuetrack.values import misfit, sandwich
from valuetrack.values.equations import Rows

STATES = np.linspace(-1, 1, 40)[:, None]


def rewards(generator, size, noise, count=8_000):
    """Return states, their values, and noisy rewards of steps that end at once.

    Values are a constant, which the features express, and a random function of a given size.
    """
    directions = generator.standard_normal(200) / (misfit.RANGE * STATES.std())
    waves = np.cos(STATES * directions + generator.uniform(0, 2 * np.pi, 200))
    values = 1.0 + size * waves @ generator.standard_normal(200) / 10
    state = generator.integers(0, len(STATES), count)
    return state, values, values[state] + noise * generator.standard_normal(count)


def rows(state, reward):
    """Return rows whose only feature is a constant, and waves behind it."""
    waves = misfit.waves(STATES, misfit.COUNT)
    behind = np.asarray(waves.at(STATES))[state]
    one = np.ones((len(state), 1), np.float32)
    now = np.concatenate([one, behind], axis=1).astype(np.float32)
    zero = np.zeros(len(state), np.float32)
    delta = reward.astype(np.float32)
    return Rows(np.zeros(len(state), int), now, 0 * now, zero[:, None], delta, delta)


def leftover(made):
    """Return the equation of the waves when the constant is solved for."""
    one, waves = made.now[:, :1].astype(float), made.now[:, 1:].astype(float)
    now = np.concatenate([one, waves], axis=1)
    factors = linalg.lu_factor(one.T @ one)
    of = misfit.leftover(now.T @ now, now.T @ made.delta, 1, waves.shape[1], factors)
    of.add_noise(made, made.delta - made.delta.mean())
    return of


def found_variance(seed, size, of_waves=True):
    """Return the variance that is found for values made of the waves, or of other ones."""
    generator = np.random.default_rng(seed)
    state, values, reward = rewards(generator, size, 0.2)
    if of_waves:
        waves = np.asarray(misfit.waves(STATES, misfit.COUNT).at(STATES))
        reward += (size * waves @ generator.standard_normal(misfit.COUNT) - values)[state]
    return misfit.variance(leftover(rows(state, reward)), noise=0.2**2, largest=1.0)


@pytest.mark.parametrize("size", [0.1, 0.3])
def test_variance_of_a_misfit_is_found(size):
    found = [found_variance(seed, size) for seed in range(20)]
    assert 0.6 < np.mean(found) / size**2 < 1.6


def test_functions_that_the_waves_cannot_follow_seem_larger_than_they_are():
    found = [found_variance(seed, 0.1, of_waves=False) for seed in range(20)]
    assert 0.8 < np.mean(found) / 0.1**2 < 4.0, found


def test_noise_is_no_misfit():
    assert (
        np.mean([found_variance(seed, 0.0, of_waves=False) for seed in range(10)]) < 2e-4 < 0.1**2
    )


def test_what_other_parameters_take_up_is_not_left_for_the_waves():
    made = rows(*rewards(np.random.default_rng(0), 0.3, 0.2)[::2])
    of = leftover(made)
    centred = made.now[:, 1:] - made.now[:, 1:].mean(axis=0)
    np.testing.assert_allclose(of.left, centred.T @ centred, rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(of.right, centred.T @ made.delta, rtol=1e-3, atol=1e-2)
    left = centred * (made.delta - made.delta.mean())[:, None]
    np.testing.assert_allclose(of.noise, left.T @ left, rtol=1e-3, atol=1e-2)


def covered(size, noise, waves):
    """Return the coverage of 95 % intervals over states and data sets, and their mean width."""
    gradients = np.concatenate(
        [np.ones((len(STATES), 1)), misfit.waves(STATES, misfit.COUNT).at(STATES)], axis=1
    ).astype(float)
    inside, widths = [], []
    for seed in range(20):
        state, values, reward = rewards(np.random.default_rng(seed), size, noise)
        made = rows(state, reward)
        if not waves:
            made = made._replace(now=made.now[:, :1], following=made.following[:, :1])
            asked = gradients[:, :1]
        else:
            asked = gradients
        solution = sandwich.solve(lambda made=made: [made], 1, 1, waves=waves)
        # The present values are the rewards themselves in `rows`: values begin at zero.
        centre, half = solution.change(asked), 1.96 * solution.sd(asked)
        inside.append(np.abs(centre - values) < half)
        widths.append(2 * half)
    return float(np.mean(inside)), float(np.mean(widths))


def test_intervals_know_what_the_network_cannot_express():
    blind, narrow = covered(0.1, 0.2, 0)
    aware, wide = covered(0.1, 0.2, misfit.COUNT)
    assert blind < 0.2
    assert aware > 0.7  # a hundred waves are not the whole of a Gaussian process
    assert wide < 20 * narrow


def test_without_a_misfit_intervals_stay_narrow():
    _, narrow = covered(0.0, 0.2, 0)
    aware, wide = covered(0.0, 0.2, misfit.COUNT)
    assert aware > 0.93
    assert wide < 3 * narrow


def test_waves_are_short_beside_the_observations_whatever_their_units():
    there = misfit.waves(STATES, misfit.COUNT)
    same = misfit.waves(1000 * STATES + 7, misfit.COUNT)
    np.testing.assert_allclose(same.at(1000 * STATES + 7), there.at(STATES), atol=1e-3)
    kernel = np.asarray(there.at(STATES)) @ np.asarray(there.at(STATES)).T
    assert np.diag(kernel).mean() == pytest.approx(1.0, abs=0.1)
    assert np.abs(kernel[0, -1]) < 0.5


def error_in_a_world(most):
    """Return how far solved values are off where each of 150 states pays something of its own."""
    states, generator = np.eye(150, dtype=np.float32), np.random.default_rng(0)
    rewards = generator.standard_normal(150).astype(np.float32)
    waves = misfit.waves(states, most)
    one = np.ones((150, 1), np.float32)
    features = np.concatenate([one, np.asarray(waves.at(states))], axis=1)
    now, delta = np.tile(features, (40, 1)), np.tile(rewards, 40)
    zero = np.zeros((6_000, 1), np.float32)
    made = Rows(np.zeros(6_000, int), now, 0 * now, zero, delta, delta)
    solution = sandwich.solve(lambda: [made], 1, 1, waves=waves.number)
    return float(np.sqrt(np.mean((solution.change(features.astype(float)) - rewards) ** 2)))


def test_a_world_of_few_states_has_a_wave_for_each_of_them():
    assert error_in_a_world(most=1_000) < 0.2
    assert error_in_a_world(most=misfit.COUNT) > 0.4


def test_no_error_is_below_rounding():
    state, _, reward = rewards(np.random.default_rng(0), 0.0, 0.0)
    made = rows(state, reward)
    made = made._replace(now=made.now[:, :1], following=made.following[:, :1])
    one = np.ones((1, 1))
    exact = sandwich.solve(lambda: [made], 1, 1).sd(one)
    assert 1e-8 < float(exact[0]) < 1e-5
    far = made._replace(weights=np.full_like(made.weights, 0.99), following=made.now)
    far = far._replace(delta=far.delta * 0.01)
    assert 20 < float(sandwich.solve(lambda: [far], 1, 1).sd(one)[0] / exact[0]) < 200
