from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from valuetrack.metrics import calibration, tail_quantiles, value_metrics

RNG = np.random.default_rng(0)
POOL = RNG.normal(size=(301, 5, 2)).astype(np.float32) + np.arange(5)[:, None]
TRUTH = np.tile(np.arange(5.0)[:, None], (1, 2)).astype(np.float32) + 0.1
LEGAL = np.array([[1, 1], [1, 0], [1, 1], [0, 1], [1, 1]], bool)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("size", [2, 3, 40, 301])
def test_tail_quantiles_are_numpys(level, size):
    low, high = tail_quantiles(jnp.asarray(POOL[:size]), level)
    tails = [(1 - level) / 2, (1 + level) / 2]
    expected = np.quantile(POOL[:size].astype(np.float64), tails, axis=0)
    np.testing.assert_allclose(np.stack([low, high]), expected, rtol=1e-4, atol=1e-5)


def by_hand(recent, level):
    low, high = np.quantile(POOL, [(1 - level) / 2, (1 + level) / 2], axis=0)
    half = (high - low) / 2
    out = {"mse": [], "coverage": [], "credible_coverage": [], "width": []}
    for a in range(2):
        s = LEGAL[:, a]
        out["mse"].append(((POOL.mean(0) - TRUTH)[s, a] ** 2).mean())
        out["coverage"].append((np.abs(recent - TRUTH)[:, s, a] < half[s, a]).mean())
        covered = (low[s, a] < TRUTH[s, a]) & (TRUTH[s, a] < high[s, a])
        out["credible_coverage"].append(covered.mean())
        out["width"].append((high - low)[s, a].mean())
    return out


@pytest.mark.parametrize("level", [0.6, 0.95])
@pytest.mark.parametrize("recent", [1, 20])
def test_metrics_count_legal_states_only(level, recent):
    measured = value_metrics(
        jnp.asarray(POOL),
        jnp.asarray(POOL[-recent:]),
        jnp.asarray(TRUTH),
        jnp.asarray(LEGAL),
        level,
    )
    for name, expected in by_hand(POOL[-recent:], level).items():
        np.testing.assert_allclose(getattr(measured, name), expected, rtol=1e-4, err_msg=name)


def test_calibration_is_the_coverage_at_every_level():
    levels = [0.5, 0.8, 0.95]
    coverage, credible = calibration(
        jnp.asarray(POOL), jnp.asarray(POOL[-20:]), jnp.asarray(TRUTH), jnp.asarray(LEGAL),
        jnp.asarray(levels),
    )  # fmt: skip
    for i, level in enumerate(levels):
        expected = by_hand(POOL[-20:], level)
        np.testing.assert_allclose(coverage[i], expected["coverage"], rtol=1e-4)
        np.testing.assert_allclose(credible[i], expected["credible_coverage"], rtol=1e-4)


def test_a_nan_sample_shows():
    pool = jnp.asarray(POOL).at[7].set(jnp.nan)
    measured = value_metrics(pool, pool[-1:], jnp.asarray(TRUTH), jnp.asarray(LEGAL))
    assert np.isnan(measured.mse).all()
