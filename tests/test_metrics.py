from __future__ import annotations

import numpy as np
import pytest

from valuetrack.metrics import calibration, policy_probabilities, value_metrics

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
    measured = value_metrics(
        POOL,
        POOL[-recent:],
        TRUTH,
        LEGAL,
        level,
    )
    for name, expected in by_hand(POOL[-recent:], level).items():
        np.testing.assert_allclose(getattr(measured, name), expected, rtol=1e-4, err_msg=name)


def test_calibration_is_the_coverage_at_every_level():
    levels = [0.5, 0.8, 0.95]
    coverage, credible = calibration(
        POOL, POOL[-20:], TRUTH, LEGAL,
        levels,
    )  # fmt: skip
    for i, level in enumerate(levels):
        expected = by_hand(POOL[-20:], level)
        np.testing.assert_allclose(coverage[i], expected["coverage"], rtol=1e-4)
        np.testing.assert_allclose(credible[i], expected["credible_coverage"], rtol=1e-4)


def test_a_nan_sample_shows():
    pool = POOL.copy()
    pool[7] = np.nan
    measured = value_metrics(pool, pool[-1:], TRUTH, LEGAL)
    assert np.isnan(measured.mse).all()
    assert np.isnan(measured.legal_width).all()
    assert (measured.coverage == 0).all()


@pytest.mark.parametrize("size", [1, 2, 3, 40])
def test_small_pools(size):
    measured = value_metrics(POOL[:size], POOL[:1], TRUTH, LEGAL, 0.9)
    low, high = np.quantile(POOL[:size].astype(np.float64), [0.05, 0.95], axis=0)
    expected = [(high - low)[LEGAL[:, a], a].mean() for a in range(2)]
    np.testing.assert_allclose(measured.legal_width, expected, rtol=1e-4, atol=1e-6)


def test_policy_probabilities_count_votes_among_legal_actions():
    votes = policy_probabilities(POOL, LEGAL)
    expected = (POOL[..., 1] > POOL[..., 0]).mean(axis=0)
    both = LEGAL.all(axis=1)
    np.testing.assert_allclose(votes[both, 1], expected[both])
    np.testing.assert_allclose(votes.sum(axis=1), 1.0)
    np.testing.assert_array_equal(votes[~LEGAL], 0.0)
