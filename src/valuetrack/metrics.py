"""How far sampled values are from exact ones, and robust averages over seeds.

Pools hold NumPy arrays here: sorting them in XLA would take longer than training them, see
:mod:`valuetrack.posterior`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from valuetrack import posterior
from valuetrack.posterior import Pool
from valuetrack.types import Bools, Floats


class ValueMetrics(NamedTuple):
    """Averages over the states of each action, the legal ones; all fields have shape (actions,)."""

    mse: Floats
    """Of the pool's mean: (mean Q - true Q)^2."""
    coverage: Floats
    """How often the one-step prediction interval covers the true value, averaged over recent
    samples as centres."""
    credible_coverage: Floats
    """How often the interval between the pool's quantiles covers it."""
    width: Floats
    """Of the interval, upper end minus lower; both kinds are equally wide. As in the reference:
    summed over *all* cells of the grid, those where the action is illegal included, and divided by
    the number of legal ones."""
    legal_width: Floats
    """The same, averaged over the legal states alone."""


def value_metrics(
    pool: Pool, truth: Floats, legal: Bools, level: float = 0.95, *, recent: int = 1
) -> ValueMetrics:
    """Compare a pool of Q-values with the truth.

    Parameters
    ----------
    pool
        Samples of Q-values, (size, states, actions), as NumPy arrays.
    truth, legal
        The true values and which of them count, (states, actions).
    level
        Of the intervals.
    recent
        How many of the latest samples serve as centres of prediction intervals: one, or the few
        between which the pool has hardly moved.
    """
    low, high = posterior.credible_interval(pool, level)
    predicted, credible = _covered(posterior.in_order(pool)[-recent:], truth, low, high)
    return ValueMetrics(
        mse=_legal_mean((posterior.mean(pool) - truth) ** 2, legal),
        coverage=_legal_mean(predicted, legal),
        credible_coverage=_legal_mean(credible, legal),
        width=np.asarray((high - low).sum(axis=0) / legal.sum(axis=0)),
        legal_width=_legal_mean(high - low, legal),
    )


def calibration(
    pool: Pool, truth: Floats, legal: Bools, levels: Sequence[float], *, recent: int = 1
) -> tuple[Floats, Floats]:
    """Return prediction and credible coverage at several levels, each (levels, actions)."""
    centres = posterior.in_order(pool)[-recent:]
    ends = zip(*posterior.credible_interval(pool, levels), strict=True)
    pairs = [_covered(centres, truth, low, high) for low, high in ends]
    coverage = np.stack([_legal_mean(predicted, legal) for predicted, _ in pairs])
    return coverage, np.stack([_legal_mean(credible, legal) for _, credible in pairs])


def _covered(recent: Floats, truth: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return the share of prediction intervals, and whether the credible one, covers the truth."""
    predicted = np.mean(np.abs(recent - truth) < (high - low) / 2, axis=0)
    return predicted, ((low < truth) & (truth < high)).astype(np.float64)


def _legal_mean(values: Floats, legal: Bools) -> Floats:
    """Average over states, the first axis, counting only where the action is legal."""
    total = np.where(legal, values, 0.0).sum(axis=0)
    return np.asarray(total / legal.sum(axis=0))


class Statistic(Protocol):
    """A statistic along one axis of an array, such as `interquartile_mean`."""

    def __call__(self, values: Floats, axis: int) -> Floats: ...  # noqa: D102


def interquartile_mean(values: Floats, axis: int = 0) -> Floats:
    """Return the mean of the middle half: the lower and the upper quarter are cut.

    A quarter of n values is the whole number below n / 4, as in ``scipy.stats.trim_mean``; with
    fewer than four values nothing is cut.

    Raises
    ------
    ValueError
        If there are no values along the axis.
    """
    ordered = np.moveaxis(np.sort(np.asarray(values, dtype=np.float64), axis=axis), axis, 0)
    size = ordered.shape[0]
    if not size:
        raise ValueError("There is no interquartile mean of no values.")
    middle = ordered[size // 4 : size - size // 4].mean(axis=0)
    # A NaN sorts to the end and would be cut; it must show.
    return np.asarray(np.where(np.isnan(ordered[-1]), np.nan, middle))


def bootstrap_interval(
    values: Floats, statistic: Statistic, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a statistic.

    Parameters
    ----------
    values
        Independent values, (n,): of seeds, not of a seed's episodes.
    statistic
        Called once, with all resamples as the rows of an array and ``axis=1``.
    level
        Of the interval.
    resamples, seed
        How often to draw n values with replacement, and the seed of the draws.

    Raises
    ------
    ValueError
        If the values are not a list of at least one number.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or not values.size:
        raise ValueError(f"A bootstrap needs values of shape (n,), not {values.shape}.")
    draws = np.random.default_rng(seed).integers(values.size, size=(resamples, values.size))
    found = statistic(values[draws], axis=1)
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def probability_of_improvement(ours: Floats, theirs: Floats) -> float:
    """Return how often one value of ours is above one of theirs; a tie counts half.

    It is the Mann-Whitney statistic: 1 if all of ours are above all of theirs, and 1/2 if neither
    side is better. A seed that failed may be ``-inf``.

    References
    ----------
    Agarwal et al. (2021). Deep reinforcement learning at the edge of the statistical precipice.
    NeurIPS. https://arxiv.org/abs/2108.13264

    Examples
    --------
    >>> probability_of_improvement(np.array([1.0, 3.0]), np.array([2.0, 1.0]))
    0.625
    """
    return float(_above(np.asarray(ours)[None], np.asarray(theirs)[None])[0])


def improvement_interval(
    ours: Floats, theirs: Floats, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of :func:`probability_of_improvement`.

    Both sides are resampled, each on its own: their seeds are not paired.
    """
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if not ours.size or not theirs.size:
        raise ValueError("A probability of improvement needs values on both sides.")
    random = np.random.default_rng(seed)
    sides = (
        values[random.integers(values.size, size=(resamples, values.size))]
        for values in (ours, theirs)
    )
    low, high = np.quantile(_above(*sides), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _above(ours: Floats, theirs: Floats) -> Floats:
    """Compare all pairs in each row of two arrays, (rows, n) and (rows, m)."""
    left, right = ours[:, :, None], theirs[:, None, :]
    return np.asarray(((left > right) + 0.5 * (left == right)).mean(axis=(1, 2)))
