"""The guarantee of conformal quantiles, and what episodes teach about values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from valuetrack.values.conformal import (
    NO_BIAS,
    NOT_COMPARED,
    Agreement,
    Line,
    agreement,
    conformal_quantile,
    fit_bias,
    fit_spread,
    rank,
    scores_needed,
)

REPETITIONS = 20_000


def coverage(quantile, n, draw):
    """Return how often one more score is at most the quantile of n."""
    scores = draw((REPETITIONS, n + 1))
    return np.mean([one[-1] <= quantile(one[:-1]) for one in scores])


def within(share, chance):
    """Return whether a share is what draws with this chance give, but for one time in a million."""
    low, high = stats.binom(REPETITIONS, chance).ppf([5e-7, 1 - 5e-7]) / REPETITIONS
    return low <= share <= high


@pytest.mark.parametrize(("n", "level"), [(19, 0.95), (25, 0.95), (25, 0.9), (30, 0.8), (9, 0.5)])
@pytest.mark.parametrize("law", ["standard_exponential", "standard_cauchy"])
def test_the_guarantee_holds_whatever_the_law(n, level, law):
    draw = getattr(np.random.default_rng(n), law)
    share = coverage(lambda scores: conformal_quantile(scores, level), n, draw)
    exact = rank(n, level) / (n + 1)
    assert level - 1e-9 <= exact <= level + 1 / (n + 1)
    assert within(share, exact)


def test_the_quantile_of_the_sample_alone_covers_less():
    """The test above would see a quantile without the + 1."""
    draw = np.random.default_rng(0).standard_exponential
    for n, level, k in ((25, 0.95, 24), (19, 0.9, 17)):
        wrong = coverage(lambda scores, k=k: np.sort(scores)[k - 1], n, draw)
        assert not within(wrong, rank(n, level) / (n + 1))
        assert wrong < level - 0.01


def test_equal_scores_keep_the_guarantee():
    draw = np.random.default_rng(1)
    share = coverage(
        lambda s: conformal_quantile(s, 0.9), 12, lambda size: draw.integers(3, size=size)
    )
    assert share > 0.9


def test_scores_of_one_episode_in_place_of_one_state_each_cover_less():
    """Why one state per episode: eight states of each of three episodes are no 24 episodes."""
    draw = np.random.default_rng(2)
    episodes = draw.normal(size=(REPETITIONS, 4, 1)) * np.ones(8)
    scores = np.abs(episodes + 0.1 * draw.normal(size=episodes.shape))
    pairs = ((one[:3].ravel(), one[3, 0]) for one in scores)
    assert np.mean([new <= conformal_quantile(old, 0.9) for old, new in pairs]) < 0.8


def test_too_few_scores_say_how_many_it_takes():
    for level in (0.5, 0.8, 0.9, 0.95, 0.99):
        needed = scores_needed(level)
        assert conformal_quantile(np.arange(needed), level) == needed - 1
        with pytest.raises(ValueError, match=f"too few for the level {level}.* takes {needed}."):
            conformal_quantile(np.arange(needed - 1), level)
    for level in (0, 1, 95):
        with pytest.raises(ValueError, match="between 0 and 1"):
            conformal_quantile(np.arange(200), level)


def episodes(draw, count=25, states=8, noise=1.0):
    """Return values, and returns whose noise the states of an episode share."""
    values = draw.uniform(0, 10, (count, states))
    return values, values + noise * draw.normal(size=(count, 1))


def test_right_values_are_rarely_corrected():
    """States of an episode share their noise: a test that took them for independent would err."""
    draw = np.random.default_rng(0)
    corrected = [fit_bias(*episodes(draw)) != NO_BIAS for _ in range(300)]
    assert np.mean(corrected) < 0.06


@pytest.mark.parametrize(("slope", "intercept"), [(1.0, -3.0), (0.5, 0.0), (1.5, -2.0)])
def test_a_bias_is_found(slope, intercept):
    values, returns = episodes(np.random.default_rng(3))
    wrong = slope * values + intercept
    bias = fit_bias(wrong, returns)
    before, after = (np.mean((returns - v) ** 2) for v in (wrong, wrong + bias(wrong)))
    assert after < 1.2 < before


def test_a_correction_keeps_the_order_of_values_and_does_not_extrapolate():
    values = np.linspace(0, 10, 200).reshape(25, 8)
    bias = fit_bias(values, -values)
    assert bias.slope == -1.0
    line = Line(1.0, 2.0, 0.0, 10.0)
    assert line(np.array([-5.0, 0.0, 10.0, 50.0])).tolist() == [1.0, 1.0, 21.0, 21.0]


def test_a_spread_follows_the_value_where_that_is_proven():
    draw = np.random.default_rng(4)
    values = draw.uniform(1, 10, (50, 8))
    noise = draw.normal(size=(50, 8))
    wide = fit_spread(values, values * noise)
    assert wide(np.array([9.0])) > 3 * wide(np.array([2.0]))
    same = fit_spread(values, noise)
    assert same.line.slope == 0
    assert same(values) == pytest.approx(math.sqrt(2 / math.pi), rel=0.1)
    none = fit_spread(values, 0 * noise)
    assert (none(values) > 0).all()


def returns(draw, error, noise, count=4):
    """Return independent returns from each state, minus the value."""
    return error[:, None] + noise * draw.normal(size=(len(error), count))


@pytest.mark.parametrize("true", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_the_noise_of_returns_is_not_counted_as_error(true, noise):
    draw = np.random.default_rng(5)
    sd = draw.uniform(0.5, 2.0, 2_000)
    errors = returns(draw, true * sd * draw.normal(size=2_000), noise, count=16)
    found = agreement(errors, sd)
    factors = np.array([found.factor(q) for q in (0.5, 0.8, 0.95)])
    assert (factors > 0.9 * true).all()
    assert (factors < (1.35 if noise else 1.1) * true).all()  # noise makes it wider, not narrower
    if noise:  # which would be counted with a single return
        alone = conformal_quantile(np.abs(errors[:, 0]) / sd, 0.95) / special.ndtri(0.975)
        assert alone > 1.04 * factors[-1]


def test_an_error_is_forgiven_the_variance_of_the_noise_and_no_more():
    """At 95 %, z^2 times the variance would be four times as much."""
    found = Agreement(np.full(19, 1.0), np.full(19, 0.4))
    for level in (0.8, 0.95):
        z = special.ndtri((1 + level) / 2)
        assert z * found.factor(level) == pytest.approx(math.sqrt(1 - 0.16))
        assert math.hypot(z * found.factor(level), z * 0.4) >= 1.0  # the guarantee


def test_without_noise_the_value_itself_has_the_guarantee():
    draw = np.random.default_rng(6)
    errors, sd = draw.standard_t(3, (REPETITIONS // 4, 26)), np.full(25, 0.1)
    held = [
        abs(one[-1]) <= 0.1 * special.ndtri(0.95) * agreement(_twice(one[:-1]), sd).factor(0.9)
        for one in errors
    ]
    assert 0.9 - 0.015 < np.mean(held) < 0.9 + 1 / 26 + 0.015


def _twice(errors):
    return np.repeat(errors[:, None], 2, axis=1)


def test_where_noise_hides_the_error_intervals_do_not_grow():
    draw = np.random.default_rng(7)
    errors = returns(draw, np.zeros(25), 1.0)
    assert agreement(errors, np.full(25, 0.01)).factor(0.95) == 1.0
    claimed = agreement(errors, np.full(25, 10.0)).factor(0.95)  # far too wide
    assert 0 < claimed < 0.2
    assert NOT_COMPARED.factor(0.95) == 1.0


def test_levels_beyond_the_number_of_episodes_keep_the_highest_factor():
    found = agreement(_twice(np.random.default_rng(8).normal(size=25)), np.ones(25))
    assert found.factor(0.99) == found.factor(25 / 26) == found.factor(0.9999)
    assert found.factor(0.99) != found.factor(0.9)


def test_exact_values_need_no_width():
    assert agreement(np.zeros((25, 2)), np.ones(25)).factor(0.95) == 0.0
