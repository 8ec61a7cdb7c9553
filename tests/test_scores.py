"""Scores against numerical integrals and known values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from valuetrack.scores import crps_normal, crps_samples, interval_score, rank_correlation


def crps_by_integral(cdf, truth):
    """Integrate (F(x) - 1{x >= y})^2 numerically."""
    below, _ = integrate.quad(lambda x: cdf(x) ** 2, -40, truth, limit=400)
    above, _ = integrate.quad(lambda x: (1 - cdf(x)) ** 2, truth, 40, limit=400)
    return below + above


@pytest.mark.parametrize(("truth", "mean", "sd"), [(0.0, 0.0, 1.0), (3.0, -1.0, 0.5), (-2, 1, 3)])
def test_the_score_of_a_normal_is_its_integral(truth, mean, sd):
    expected = crps_by_integral(stats.norm(mean, sd).cdf, truth)
    assert crps_normal(truth, mean, sd) == pytest.approx(expected, rel=1e-6)


def test_a_normal_without_spread_has_the_absolute_error():
    found = crps_normal(np.array([1.0, 1.0]), np.array([3.0, 1.0]), np.array([0.0, 2.0]))
    assert found[0] == 2.0
    assert found[1] == pytest.approx(2 * (np.sqrt(2) - 1) / np.sqrt(np.pi))  # z = 0


def test_the_score_of_samples_is_its_integral():
    samples = np.array([-1.0, 0.5, 0.5, 4.0])
    for truth in (-3.0, 0.2, 5.0):
        x = np.linspace(-10, 10, 400_001)
        cdf = np.searchsorted(np.sort(samples), x, side="right") / len(samples)
        expected = np.sum((cdf - (x >= truth)) ** 2) * (x[1] - x[0])
        found = crps_samples(np.array([truth]), samples[:, None])[0]
        assert found == pytest.approx(expected, abs=1e-3)


def test_quantiles_score_twice_their_pinball_loss():
    quantiles, truth = np.array([-2.0, 0.0, 0.3, 1.0, 5.0]), 0.7
    levels = (np.arange(5) + 0.5) / 5
    missed = truth - quantiles
    pinball = np.maximum(levels * missed, (levels - 1) * missed)
    assert crps_samples(np.array(truth), quantiles) == pytest.approx(2 * pinball.mean())


def test_many_samples_score_like_their_law():
    samples = np.random.default_rng(0).normal(2.0, 3.0, 200_000)
    found = crps_samples(np.array(1.0), samples)
    assert found == pytest.approx(float(crps_normal(1.0, 2.0, 3.0)), rel=0.01)


def test_the_interval_score_weighs_width_and_misses():
    truth = np.array([0.0, 2.0, -1.5])
    found = interval_score(truth, np.full(3, -1.0), np.full(3, 1.0), 0.8)
    np.testing.assert_allclose(found, [2.0, 2.0 + 10 * 1.0, 2.0 + 10 * 0.5])


def test_scores_are_proper():
    """Nobody does better than by saying the truth's own law."""
    truth = np.random.default_rng(1).normal(0.0, 1.0, 20_000)

    def interval(sd):
        half = stats.norm.ppf(0.975) * sd
        return interval_score(truth, -half, half, 0.95).mean()

    def crps(sd):
        return crps_normal(truth, 0.0, np.full_like(truth, sd)).mean()

    for score in (interval, crps):
        assert score(1.0) < min(score(0.7), score(1.4))


def test_ranks_need_pairs_that_differ():
    x = np.array([1.0, 5.0, 2.0, 8.0])
    assert rank_correlation(x, x**3) == pytest.approx(1.0)
    assert rank_correlation(x, -x) == pytest.approx(-1.0)
    assert np.isnan(rank_correlation(x[:2], x[:2]))
    assert np.isnan(rank_correlation(x, np.ones(4)))
