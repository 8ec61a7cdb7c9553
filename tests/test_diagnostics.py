from __future__ import annotations

import arviz
import numpy as np
import pytest
from scipy.signal import lfilter

from valuetrack.diagnostics import effective_sample_size, split_r_hat

CORRELATIONS = [-0.95, -0.5, -0.1, 0.0, 0.3, 0.9, 0.99, 0.999]
SHAPES = [(4, 1000), (2, 101), (3, 10), (2, 7), (2, 4)]


def autoregressive(correlation: float, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Stationary AR(1) chains of unit variance along the second axis."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=shape) * np.sqrt(1 - correlation**2)
    noise[:, 0] = rng.normal(size=noise[:, 0].shape)
    return lfilter([1.0], [1.0, -correlation], noise, axis=1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("correlation", CORRELATIONS)
def test_both_agree_with_arviz(correlation, shape):
    for seed in range(5):
        draws = autoregressive(correlation, shape, seed)
        size, r_hat = arviz.ess(draws, method="mean"), arviz.rhat(draws, method="split")
        assert effective_sample_size(draws) == pytest.approx(size, rel=1e-9)
        assert split_r_hat(draws) == pytest.approx(r_hat, rel=1e-9)


def test_one_chain_agrees_with_arviz():
    draws = autoregressive(0.7, (1, 400))
    expected = arviz.ess(draws, method="mean")
    assert effective_sample_size(draws) == pytest.approx(expected, rel=1e-9)
    assert split_r_hat(draws) == pytest.approx(1, abs=0.05)  # ArviZ wants two chains for this one


def test_other_axes_are_taken_entry_by_entry():
    draws = np.stack(
        [autoregressive(c, (4, 200), seed=i) for i, c in enumerate([-0.5, 0, 0.5, 0.7, 0.9, 0.99])],
        axis=-1,
    ).reshape(4, 200, 2, 3)
    for ours, theirs in [
        (effective_sample_size, lambda x: arviz.ess(x, method="mean")),
        (split_r_hat, lambda x: arviz.rhat(x, method="split")),
    ]:
        result = ours(draws)
        assert result.shape == (2, 3)
        for index in np.ndindex(2, 3):
            expected = theirs(draws[(..., *index)])
            assert result[index] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("correlation", [-0.3, 0.0, 0.5, 0.9])
def test_the_size_of_an_autoregression_is_recovered(correlation):
    draws = autoregressive(correlation, (8, 20_000))
    known = 160_000 * (1 - correlation) / (1 + correlation)
    assert effective_sample_size(draws) == pytest.approx(known, rel=0.1)
    assert split_r_hat(draws) == pytest.approx(1, abs=0.005)


def test_chains_apart_and_chains_adrift_have_a_large_r_hat():
    noise = autoregressive(0.0, (4, 500))
    apart = noise + 5 * np.arange(4)[:, None]
    adrift = noise + np.linspace(0, 10, 500)  # the same in all chains: only the split sees it
    assert split_r_hat(apart) > 3
    assert split_r_hat(adrift) > 1.5
    assert effective_sample_size(apart) < 10


@pytest.mark.parametrize("measure", [effective_sample_size, split_r_hat])
def test_shifting_and_scaling_changes_nothing(measure):
    draws = autoregressive(0.6, (3, 300))
    assert measure(1e-20 * draws) == pytest.approx(measure(draws), rel=1e-6)
    assert measure(100 + draws) == pytest.approx(measure(draws), rel=1e-6)


@pytest.mark.parametrize("constant", [0.0, 1.0, 0.1, 1000 / 3])
def test_a_constant(constant):
    draws = np.full((2, 50), constant)
    assert effective_sample_size(draws) == 100
    assert np.isnan(split_r_hat(draws))


def test_different_constants_have_not_mixed():
    draws = np.repeat([[0.0], [1.0]], 50, axis=1)
    assert split_r_hat(draws) == np.inf
    assert effective_sample_size(draws) < 10


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_spoils_its_own_entry_only(bad):
    draws = autoregressive(0.0, (2, 40, 2))
    draws[1, 7, 0] = bad
    for measure in (effective_sample_size, split_r_hat):
        assert np.isnan(measure(draws)).tolist() == [True, False]


@pytest.mark.parametrize("measure", [effective_sample_size, split_r_hat])
@pytest.mark.parametrize("shape", [(10,), (2, 3), (2, 0), (2, 3, 10)])
def test_too_few_draws_or_axes(measure, shape):
    with pytest.raises(ValueError, match=r"shape \(chains, draws, ...\) with at least 4 draws"):
        measure(np.zeros(shape))
