"""The recursion of weighted averages agrees with composed affine maps, and with chains."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from valuetrack.checks import decreasing_steps as exact
from valuetrack.checks import linear_gaussian as lg
from valuetrack.checks import rates
from valuetrack.checks.cases import double_precision
from valuetrack.checks.decreasing_steps import Setting
from valuetrack.checks.simulated_averages import simulate

MODEL = exact.corridor()
SYSTEM = exact.directions(MODEL)


def update(sampler: str, eps: float) -> lg.AffineMap:
    if sampler == "sgld":
        return lg.sgld_update(MODEL, step_sizes=[eps])
    return lg.lktd_update(
        MODEL, step_sizes=[eps] * exact.INNER_ITERATIONS, alpha=exact.ALPHA, latent="restart"
    )


@pytest.mark.parametrize("sampler", ["sgld", "lktd"])
@pytest.mark.parametrize("eps", [0.04, 0.001])
def test_an_update_in_a_direction_is_the_affine_map_of_the_check(sampler, eps):
    whole, turn = update(sampler, eps), SYSTEM.basis
    with double_precision():
        a, gain, noise = map(np.asarray, exact.coefficients(sampler, MODEL, SYSTEM, eps))
    np.testing.assert_allclose(turn.T @ whole.A @ turn, np.diag(a), atol=1e-13)
    np.testing.assert_allclose(turn.T @ whole.b, gain * SYSTEM.push, atol=1e-13)
    np.testing.assert_allclose(turn.T @ whole.Q @ turn, np.diag(noise), atol=1e-13)


@pytest.mark.parametrize("sampler", ["sgld", "lktd"])
def test_the_law_after_some_updates_is_that_of_the_composed_maps(sampler):
    def with_fresh_data(k):
        one = update(sampler, exact.INITIAL_STEP * k**-0.5)
        respond = np.stack(
            [one.b - update_with(sampler, k, column).b for column in np.eye(len(MODEL.r))], axis=1
        )
        return one._replace(Q=one.Q + MODEL.observation_sd**2 * respond @ respond.T)

    def update_with(sampler, k, column):
        moved = MODEL._replace(r=MODEL.r - column)
        eps = exact.INITIAL_STEP * k**-0.5
        if sampler == "sgld":
            return lg.sgld_update(moved, step_sizes=[eps])
        steps = [eps] * exact.INNER_ITERATIONS
        return lg.lktd_update(moved, step_sizes=steps, alpha=exact.ALPHA, latent="restart")

    whole = reduce(lg.AffineMap.then, map(with_fresh_data, range(1, 8)))
    law = lg.Gaussian(whole.A @ exact.start(MODEL) + whole.b, whole.Q)
    found = exact.exact_errors(Setting(0.5, sampler=sampler), [7])
    assert found.w2[0] == pytest.approx(lg.wasserstein2(law, lg.posterior(MODEL)), rel=1e-8)


SMALL = [
    Setting(0.5), Setting(0.5, "ring", 4), Setting(1 / 3, "fixed", 4), Setting(0.5, sampler="lktd"),
]  # fmt: skip


@pytest.mark.parametrize("setting", SMALL, ids=rates.label)
def test_chains_have_the_errors_of_the_recursion(setting):
    errors = exact.exact_errors(setting, [1, 30])
    found = simulate(setting, chains=4000, checkpoints=[1, 30], seed=2, errors=errors)
    assert {"value_bias", "value_mse", "square_bias"} <= set(found.z)
    assert max(map(abs, found.z.values())) < 4.5


def test_the_comparison_can_fail():
    ring, fixed = SMALL[1]._replace(power=1 / 3), SMALL[2]
    errors = exact.exact_errors(fixed, [30])
    found = simulate(ring, chains=4000, checkpoints=[30], seed=2, errors=errors)
    assert max(map(abs, found.z.values())) > 10


def test_a_large_memory_is_as_good_as_fresh_data_and_a_small_one_stops():
    fresh, large, small = (
        exact.exact_errors(setting, [10, 3000])
        for setting in (Setting(0.5), Setting(0.5, "fixed", 10**9), Setting(0.5, "fixed", 10))
    )
    np.testing.assert_allclose(large.square_bias, fresh.square_bias, rtol=1e-6)
    np.testing.assert_allclose(large.own_value_mse, fresh.value_mse, rtol=1e-5)
    # What is left is the spread of posterior means, M / R = 5 times the posterior's variance.
    truth = SYSTEM.variance.mean()
    assert small.square_bias[-1] / truth == pytest.approx(5, rel=0.15)
    assert small.own_square_bias[-1] < small.square_bias[-1] / 5


def test_lktd_goes_to_another_law():
    law = lg.stationary(update("lktd", 1e-6))
    truth = lg.posterior(MODEL)
    gap = np.trace(law.covariance - truth.covariance) + np.sum((law.mean - truth.mean) ** 2)
    assert exact.limit_of_lktd(MODEL) == pytest.approx(gap / 3, rel=1e-2)


def test_powers_of_t():
    assert rates.predicted(1 / 3) == pytest.approx((-1 / 3, -2 / 3, -1 / 3))
    assert rates.predicted(2 / 3) == pytest.approx((-1 / 3, -1 / 3, -2 / 3))
    T = np.array([1, 10, 100, 300, 1000])
    assert rates.slope(T, -3 * T**-0.4) == pytest.approx(-0.4)


@pytest.mark.parametrize("power", rates.POWERS)
def test_the_printed_bound_grows_while_the_distance_falls(power):
    T = np.array([1, 10, 100, 1000, 10_000])
    assert np.all(np.diff(rates.printed_bound(power, T)) > 0)
    assert np.all(np.diff(exact.exact_errors(Setting(power), T).w2) < 0)
