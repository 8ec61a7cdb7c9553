r"""What returns teach about values: their bias, their spread, and quantiles with a guarantee.

Everything here takes one row per episode. States of one episode depend on each other, episodes do
not: tests leave whole episodes out, and a quantile takes a single state from each.

Split conformal prediction: if :math:`e_1, \dots, e_n` and the score :math:`e` of a new episode are
exchangeable, then for the k-th smallest of the n, with :math:`k = \lceil (n + 1)\, \ell \rceil`,

.. math:: \ell \le P(e \le e_{(k)}) \le \ell + \frac{1}{n + 1},

the second inequality if no two scores are equal. Nothing else is assumed.

References
----------
Lei, G'Sell, Rinaldo, Tibshirani and Wasserman (2018). Distribution-free predictive inference for
regression. JASA 113. https://doi.org/10.1080/01621459.2017.1307116

Vovk, Gammerman and Shafer (2005). Algorithmic learning in a random world. Springer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import special

from valuetrack.types import Floats

FOLDS = 5
"""Into how many parts episodes are split to see whether a correction helps on those left out."""
PROVEN = 2.0
"""A correction is made if it helps by this many standard errors over episodes."""
LEAST_GAIN = 0.01
"""And by this share of the error."""
LEAST_SPREAD = 0.1
"""The least spread of a state, as a share of the mean one."""
ONE_SIDED = 1.645
"""Normal quantile of one-sided limits at 95 %."""


def check_level(level: float) -> None:
    """Refuse what is no level."""
    if not 0 < level < 1:
        raise ValueError(f"The level of an interval lies between 0 and 1; {level} does not.")


def rank(count: int, level: float) -> int:
    """Return which of so many scores, counted from the smallest, is the conformal quantile.

    Examples
    --------
    >>> rank(19, 0.95), rank(25, 0.95), rank(18, 0.95)
    (19, 25, 19)
    """
    return math.ceil((count + 1) * level - 1e-9)


def scores_needed(level: float) -> int:
    """Return how many scores a level takes: level / (1 - level), rounded up.

    Examples
    --------
    >>> [scores_needed(level) for level in (0.5, 0.9, 0.95, 0.99)]
    [1, 9, 19, 99]
    """
    return math.ceil(level / (1 - level) - 1e-9)


def conformal_quantile(scores: Floats, level: float) -> float:
    """Return the score that one more exchangeable score exceeds with a chance of 1 - level at most.

    Raises
    ------
    ValueError
        If there are too few scores for the level.

    Examples
    --------
    >>> conformal_quantile(np.arange(1.0, 20.0), 0.9)
    18.0
    """
    check_level(level)
    k = rank(len(scores), level)
    if k > len(scores):
        raise ValueError(
            f"{len(scores)} scores are too few for the level {level:g}, which takes "
            f"{scores_needed(level)}."
        )
    return float(np.partition(scores, k - 1)[k - 1])


class Line(NamedTuple):
    """A function of a value: a straight line where values were seen, and constant beyond."""

    intercept: float
    slope: float
    low: float
    high: float
    """The smallest and the largest value that was seen."""

    def __call__(self, values: Floats) -> Floats:
        """Return the line at some values."""
        return np.asarray(self.intercept + self.slope * np.clip(values, self.low, self.high))


NO_BIAS = Line(0.0, 0.0, 0.0, 0.0)


def fit_line(x: Floats, y: Floats, *, sloped: bool = True, least: float = -math.inf) -> Line:
    """Fit a line by least squares, of at least some slope; without one it is the mean of y."""
    around = x - x.mean()
    squares = float(np.sum(around**2))
    slope = max(least, float(np.sum(around * y)) / squares) if sloped and squares > 0 else 0.0
    return Line(float(y.mean()) - slope * float(x.mean()), slope, float(x.min()), float(x.max()))


def fit_bias(values: Floats, truth: Floats) -> Line:
    """Return what to add to a value, by episodes of which each has a row of several states.

    A shift, or a line in the value: whichever leaves the smaller squared error at episodes that it
    was not fitted to, as long as that is smaller than without it by :data:`PROVEN` standard errors
    over episodes. Otherwise :data:`NO_BIAS`. The slope is at least -1: a correction never turns the
    order of values round.

    Examples
    --------
    >>> values = np.arange(40.0).reshape(20, 2)
    >>> noise = np.random.default_rng(0).normal(size=(20, 2))
    >>> fit_bias(values, values + noise) == NO_BIAS
    True
    >>> fit_bias(values, values + noise - 5).intercept.__round__()
    -5
    """
    errors = truth - values
    squared = np.mean(errors**2, axis=1)

    def fit(x: Floats, y: Floats, sloped: bool) -> Line:
        return fit_line(x, y, sloped=sloped, least=-1.0)

    def loss(sloped: bool) -> Floats:
        left = _left_out(lambda x, y: fit(x, y, sloped), values, errors)
        return np.asarray(np.mean((errors - left) ** 2, axis=1))

    sloped = bool(loss(True).mean() < loss(False).mean())
    if not _is_proven(squared - loss(sloped), LEAST_GAIN * float(squared.mean())):
        return NO_BIAS
    return fit(values, errors, sloped)


class Spread(NamedTuple):
    """How far returns lie from the value, by the value."""

    line: Line
    least: float

    def __call__(self, values: Floats) -> Floats:
        """Return the mean distance at some values."""
        return np.maximum(self.line(values), self.least)


def fit_spread(values: Floats, residuals: Floats) -> Spread:
    """Return the mean distance of returns from the value: a line in it if that is proven better.

    Better by the logarithm of the density of a Laplace distribution at episodes left out.
    """
    distances = np.abs(residuals)
    mean = float(distances.mean())
    least = max(LEAST_SPREAD * mean, 1e-9 * (1.0 + float(np.abs(values).max())))

    def loss(sloped: bool) -> Floats:
        left = _left_out(lambda x, y: fit_line(x, y, sloped=sloped), values, distances)
        scale = np.maximum(left, least)
        return np.asarray(np.mean(np.log(scale) + distances / scale, axis=1))

    sloped = _is_proven(loss(False) - loss(True), LEAST_GAIN)
    return Spread(fit_line(values, distances, sloped=sloped), least)


class Agreement(NamedTuple):
    r"""How the claimed standard errors of values compare with what returns say about the values.

    From one state of each episode, several episodes go on independently. The mean of their returns,
    :math:`\bar G`, lies around the value m, of a claimed standard error s, by the error of m and by
    noise, whose variance :math:`\nu` the returns themselves show: :math:`(\bar G - m)^2 - \nu` is
    the squared error on average. The factor is the conformal quantile over episodes of

    .. math:: c = \sqrt{\max(0, (\bar G - m)^2 - \min(1, z^2)\, \nu)} \, / (z s),

    with z the normal quantile of the level. Then :math:`|\bar G - m| \le z \sqrt{c^2 s^2 + \nu}`
    with a probability of at least the level, for a new episode: without noise a guarantee for the
    value. With noise, c errs towards wide. To subtract :math:`z^2 \nu` would keep the inequality
    too, but forgives every state an error of :math:`z \sqrt \nu`: too much, unless errors are
    normal.
    """

    distances: Floats
    r""":math:`|\bar G - m| / s` of each episode."""
    noise: Floats
    r""":math:`\sqrt{\nu} / s`."""
    limit: float = math.nan
    """The factor where noise hides the error; NaN where it does not."""

    def factor(self, level: float) -> float:
        """Return what to multiply the claimed standard errors by.

        Levels that take more episodes than there were have the factor of the highest that did not.
        """
        check_level(level)
        count = len(self.distances)
        if not count:
            return 1.0
        if not math.isnan(self.limit):
            return self.limit
        known = min(level, count / (count + 1))
        z = float(special.ndtri((1 + known) / 2))
        squares = np.maximum(self.distances**2 - min(1.0, z**2) * self.noise**2, 0.0)
        return math.sqrt(conformal_quantile(squares, known)) / z


NOT_COMPARED = Agreement(np.zeros(0), np.zeros(0))
"""Nothing was to be had to compare standard errors with."""


def agreement(errors: Floats, sd: Floats) -> Agreement:
    """Compare errors of values with their standard errors; one state per episode.

    Parameters
    ----------
    errors
        Independent returns from the state minus the value, (episodes, returns): two at least.
    sd
        The claimed standard error of the value, (episodes,).

    Notes
    -----
    The noise hides the error if the mean of one half of an episode's returns says nothing about
    that of the other half: their product is not above zero by Wilcoxon's signed-rank test at 95 %.
    Intervals are then left as wide as they are, unless even the upper limit of the mean squared
    error, in claimed variances, is below one: then they shrink to that.
    """
    returns = errors.shape[1]
    sd = np.maximum(sd, np.finfo(float).tiny)
    means, halves = errors.mean(axis=1), np.array_split(errors, 2, axis=1)
    variance = errors.var(axis=1, ddof=1) / returns
    found = Agreement(np.abs(means) / sd, np.sqrt(variance) / sd)
    one, other = (half.mean(axis=1) for half in halves)
    if not errors.any() or _signed_ranks(one * other) > ONE_SIDED:
        return found
    squares = (means**2 - variance) / sd**2
    upper = float(squares.mean()) + ONE_SIDED * _standard_error(squares)
    return found._replace(limit=min(1.0, math.sqrt(max(upper, 0.0))))


def _left_out(fit: Callable[[Floats, Floats], Line], x: Floats, y: Floats) -> Floats:
    """Return each episode's fitted values by the other folds."""
    found = np.empty_like(y)
    fold = np.arange(len(x)) % FOLDS
    for left in range(min(FOLDS, len(x))):
        found[fold == left] = fit(x[fold != left], y[fold != left])(x[fold == left])
    return found


def _is_proven(gains: Floats, least: float) -> bool:
    return bool(gains.mean() > max(least, PROVEN * _standard_error(gains), 0.0))


def _signed_ranks(x: Floats) -> float:
    """Return by how many standard deviations Wilcoxon's sum of ranks speaks for x > 0."""
    x = x[x != 0]
    ranks = 1 + np.argsort(np.argsort(np.abs(x)))
    n = len(x)
    above = float(ranks[x > 0].sum()) - n * (n + 1) / 4
    return above / math.sqrt(n * (n + 1) * (2 * n + 1) / 24) if n else 0.0


def _standard_error(x: Floats) -> float:
    return float(np.std(x, ddof=1)) / math.sqrt(len(x))
