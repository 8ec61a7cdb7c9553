r"""Scores of intervals and distributions against the truth: the smaller, the better.

Each is *proper*: nobody can expect a better score than by saying what they believe. So a score
weighs in one number what coverage and width say in two: an interval that covers by being wide pays
for its width, one that is narrow and wrong for every miss.

Written here because they are a few lines each; the tests compare them with numerical integrals.

References
----------
Gneiting and Raftery (2007). Strictly proper scoring rules, prediction, and estimation. Journal of
the American Statistical Association 102. https://doi.org/10.1198/016214506000001437
"""

from __future__ import annotations

import numpy as np
from scipy import special, stats

from valuetrack.types import Floats

ROUNDING = 1e-6
"""Numbers that differ by less, relative to the largest, count as equal: single precision."""


def interval_score(truth: Floats, low: Floats, high: Floats, level: float = 0.95) -> Floats:
    r"""Return the interval score, also called Winkler's.

    .. math:: (u - l) + \frac{2}{\alpha} (l - y)_+ + \frac{2}{\alpha} (y - u)_+,
              \qquad \alpha = 1 - \text{level}

    Examples
    --------
    An interval of width 2 that misses by 0.1 pays 4 for that at 95 %:

    >>> interval_score(np.array([0.5, 1.1]), np.array([-1.0, -1.0]), np.array([1.0, 1.0]))
    array([2., 6.])
    """
    missed = np.maximum(low - truth, 0.0) + np.maximum(truth - high, 0.0)
    return np.asarray((high - low) + 2.0 / (1.0 - level) * missed)


def crps_normal(truth: Floats, mean: Floats, sd: Floats) -> Floats:
    r"""Return the continuous ranked probability score of a normal distribution.

    .. math:: \sigma \left[ z (2 \Phi(z) - 1) + 2 \varphi(z) - 1 / \sqrt\pi \right],
              \qquad z = (y - \mu) / \sigma

    Without a spread it is the absolute error.
    """
    spread = np.asarray(sd) > 0
    z = (truth - mean) / np.where(spread, sd, 1.0)
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    score = z * (2 * special.ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi)
    return np.asarray(np.where(spread, sd * score, np.abs(truth - mean)))


def crps_samples(truth: Floats, samples: Floats) -> Floats:
    r"""Return the continuous ranked probability score of samples, (samples, ...).

    .. math:: E|X - y| - \tfrac12 E|X - X'|

    with X and X' drawn from the samples. For quantiles at the levels (i - 1/2) / M it is twice
    their mean pinball loss.

    Examples
    --------
    >>> crps_samples(np.array([1.0]), np.array([[0.0], [2.0]]))
    array([0.5])
    """
    ordered = np.sort(np.asarray(samples, np.float64), axis=0)
    count = len(ordered)
    # Each sample is the larger one of as many pairs as there are samples below it.
    ranks = (2.0 * np.arange(1, count + 1) - count - 1) / count**2
    spread = np.tensordot(ranks, ordered, axes=1)
    return np.asarray(np.mean(np.abs(ordered - truth), axis=0) - spread)


def rank_correlation(one: Floats, other: Floats) -> float:
    """Return Spearman's rank correlation; NaN for fewer than three pairs, or if one is constant.

    Examples
    --------
    >>> rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([0.1, 0.2, 0.3]))
    1.0
    """
    if len(one) < 3 or any(np.ptp(x) <= ROUNDING * np.max(np.abs(x)) for x in (one, other)):
        return float("nan")
    return float(stats.spearmanr(one, other).statistic)
