from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from valuetrack import posterior
from valuetrack.metrics import (
    bootstrap_interval,
    calibration,
    improvement_interval,
    interquartile_mean,
    probability_of_improvement,
    value_metrics,
)

RNG = np.random.default_rng(0)
POOL = RNG.normal(size=(301, 5, 2)).astype(np.float32) + np.arange(5)[:, None]
TRUTH = np.tile(np.arange(5.0)[:, None], (1, 2)).astype(np.float32) + 0.1
LEGAL = np.array([[1, 1], [1, 0], [1, 1], [0, 1], [1, 1]], bool)


def by_hand(recent, level):
    low, high = np.quantile(POOL, [(1 - level) / 2, (1 + level) / 2], axis=0)
    half = (high - low) / 2
    names = ("mse", "coverage", "credible_coverage", "width", "legal_width")
    out = {name: [] for name in names}
    for a in range(2):
        s = LEGAL[:, a]
        out["mse"].append(((POOL.mean(0) - TRUTH)[s, a] ** 2).mean())
        out["coverage"].append((np.abs(recent - TRUTH)[:, s, a] < half[s, a]).mean())
        covered = (low[s, a] < TRUTH[s, a]) & (TRUTH[s, a] < high[s, a])
        out["credible_coverage"].append(covered.mean())
        out["width"].append((high - low)[:, a].sum() / s.sum())
        out["legal_width"].append((high - low)[s, a].mean())
    return out


@pytest.mark.parametrize("level", [0.6, 0.95])
@pytest.mark.parametrize("recent", [1, 20])
def test_metrics_count_legal_states_only(level, recent):
    measured = value_metrics(posterior.from_samples(POOL), TRUTH, LEGAL, level, recent=recent)
    for name, expected in by_hand(POOL[-recent:], level).items():
        np.testing.assert_allclose(getattr(measured, name), expected, rtol=1e-4, err_msg=name)


def test_a_ring_is_measured_like_its_samples_in_order():
    turned = posterior.Pool(
        np.roll(POOL, 40, axis=0), np.ones(len(POOL), np.float32), np.int32(40), np.int32(len(POOL))
    )
    plain = posterior.from_samples(POOL)
    for ours, expected in zip(
        value_metrics(turned, TRUTH, LEGAL, recent=7),
        value_metrics(plain, TRUTH, LEGAL, recent=7),
        strict=True,
    ):
        np.testing.assert_allclose(ours, expected, rtol=1e-12)


def test_calibration_is_the_coverage_at_every_level():
    levels = [0.5, 0.8, 0.95]
    coverage, credible = calibration(posterior.from_samples(POOL), TRUTH, LEGAL, levels, recent=20)
    for i, level in enumerate(levels):
        expected = by_hand(POOL[-20:], level)
        np.testing.assert_allclose(coverage[i], expected["coverage"], rtol=1e-4)
        np.testing.assert_allclose(credible[i], expected["credible_coverage"], rtol=1e-4)


def test_a_nan_sample_shows():
    pool = POOL.copy()
    pool[7] = np.nan
    measured = value_metrics(posterior.from_samples(pool), TRUTH, LEGAL)
    assert np.isnan(measured.mse).all()
    assert np.isnan(measured.legal_width).all()
    assert (measured.coverage == 0).all()


@pytest.mark.parametrize("size", [1, 2, 3, 40])
def test_small_pools(size):
    measured = value_metrics(posterior.from_samples(POOL[:size]), TRUTH, LEGAL, 0.9)
    low, high = np.quantile(POOL[:size].astype(np.float64), [0.05, 0.95], axis=0)
    expected = [(high - low)[LEGAL[:, a], a].mean() for a in range(2)]
    np.testing.assert_allclose(measured.legal_width, expected, rtol=1e-4, atol=1e-6)


def test_policy_probabilities_count_votes_among_legal_actions():
    votes = posterior.policy_probabilities(posterior.from_samples(POOL), LEGAL)
    expected = (POOL[..., 1] > POOL[..., 0]).mean(axis=0)
    both = LEGAL.all(axis=1)
    np.testing.assert_allclose(votes[both, 1], expected[both])
    np.testing.assert_allclose(votes.sum(axis=1), 1.0)
    np.testing.assert_array_equal(votes[~LEGAL], 0.0)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 10, 101])
def test_the_interquartile_mean_is_scipys_trimmed_mean(size):
    values = RNG.standard_t(2, size=(size, 6))
    np.testing.assert_allclose(interquartile_mean(values), stats.trim_mean(values, 0.25))
    np.testing.assert_allclose(interquartile_mean(values.T, axis=1), interquartile_mean(values))
    np.testing.assert_allclose(
        interquartile_mean(values[:, 0]), stats.trim_mean(values[:, 0], 0.25)
    )


def test_the_interquartile_mean_hides_nothing():
    assert interquartile_mean(np.array([0.0, 1.0, 2.0, 1e9])) == 1.5
    assert np.isnan(interquartile_mean(np.array([0.0, 1.0, 2.0, np.nan])))
    with pytest.raises(ValueError, match="no values"):
        interquartile_mean(np.array([]))


def test_bootstrap_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(1)
    hits = {np.mean: 0, interquartile_mean: 0}
    for trial in range(300):
        sample = rng.normal(3.0, 2.0, size=30)
        for statistic in hits:
            low, high = bootstrap_interval(sample, statistic, 0.9, resamples=400, seed=trial)
            hits[statistic] += low <= 3.0 <= high
    # Percentile intervals of 30 values are a little short: some 88 %, give or take 2 % here.
    assert all(0.83 <= count / 300 <= 0.95 for count in hits.values())


def test_a_bootstrap_interval_is_that_of_its_draws():
    values = np.array([1.0, 5.0, 2.0, 9.0])
    draws = np.random.default_rng(3).integers(4, size=(2000, 4))
    means = values[draws].mean(axis=1)
    expected = tuple(np.quantile(means, [0.1, 0.9]))
    assert bootstrap_interval(values, np.mean, 0.8, seed=3) == pytest.approx(expected)
    again = bootstrap_interval(values, np.mean, 0.8, seed=3)
    assert bootstrap_interval(values, np.mean, 0.8, seed=3) == again
    assert bootstrap_interval(np.array([7.0]), np.mean) == (7.0, 7.0)
    for wrong in (np.array([]), np.ones((2, 2))):
        with pytest.raises(ValueError, match="shape"):
            bootstrap_interval(wrong, np.mean)


def test_probability_of_improvement_counts_pairs_and_half_of_the_ties():
    ours, theirs = np.array([1.0, 3.0, 3.0]), np.array([2.0, 3.0])
    assert probability_of_improvement(ours, theirs) == pytest.approx((0 + 1.5 + 1.5) / 6)
    both = probability_of_improvement(ours, theirs) + probability_of_improvement(theirs, ours)
    assert both == pytest.approx(1.0)
    failed = np.array([-np.inf, -np.inf])
    assert probability_of_improvement(ours, failed) == 1.0
    assert probability_of_improvement(failed, failed) == 0.5


def test_the_interval_of_an_improvement_covers_the_truth_as_often_as_it_says():
    random, covered = np.random.default_rng(0), 0
    truth = stats.norm.cdf(0.8 / np.sqrt(2.0))
    for trial in range(200):
        ours, theirs = random.normal(0.8, 1.0, 20), random.normal(0.0, 1.0, 15)
        low, high = improvement_interval(ours, theirs, 0.9, resamples=300, seed=trial)
        covered += low <= truth <= high
    assert 0.82 <= covered / 200 <= 0.96
    with pytest.raises(ValueError, match="both sides"):
        improvement_interval(np.array([]), np.array([1.0]))
