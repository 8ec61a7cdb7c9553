"""The values of several seeds in one interval."""

from __future__ import annotations

import math

import numpy as np
import pytest

from valuetrack.values.pooling import pooled
from valuetrack.values.sandwich import Values


def test_one_seed_stays_as_it_is():
    alone = Values(np.ones(2), np.ones(2))
    assert pooled([alone]) is alone
    assert alone.df == math.inf


def test_the_larger_of_both_variances_counts_once():
    agree = pooled([Values(np.array([m]), np.array([2.0])) for m in (1.0, 1.1, 0.9, 1.0)])
    np.testing.assert_allclose((agree.mean[0], agree.sd[0]), (1.0, 1.0))  # sqrt(4 / 4)
    differ = pooled([Values(np.array([m]), np.array([0.1])) for m in (0.0, 2.0, 4.0, 6.0)])
    np.testing.assert_allclose(differ.sd[0], np.sqrt(np.var([0, 2, 4, 6], ddof=1) / 4))
    low, high = differ.interval(0.95)
    np.testing.assert_allclose((high - low)[0] / 2 / differ.sd[0], 3.1824, rtol=1e-4)  # t of 3


@pytest.mark.parametrize("seeds", [2, 4, 16])
@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
def test_it_covers_the_mean_of_such_seeds(seeds, spread):
    """The seeds' own standard error is 1; their true values are ``spread`` apart."""
    rng = np.random.default_rng(seeds)
    means = rng.normal(0.0, np.sqrt(1 + spread**2), (seeds, 4_000))
    low, high = pooled([Values(row, np.ones(4_000)) for row in means]).interval(0.9)
    covered = np.mean((low < 0) & (high > 0))
    assert covered > 0.885
    if spread == 3.0 and seeds > 2:
        assert covered < 0.92  # and not much wider than it must be
