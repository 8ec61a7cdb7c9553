"""Statistics over seeds, and the claims that they bear out or do not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from scipy import stats

from valuetrack.metrics import bootstrap_interval, interquartile_mean
from valuetrack.report.table import NO, NONE, YES, Cells, Column, Table, make_table
from valuetrack.types import Floats, NDArray

LEVEL, RESAMPLES = 0.95, 2000


class PooledStatistics(TypedDict):
    """Figures of one metric; ``None`` where there are too few values to tell.

    ``mean`` and ``sd`` are over the pooled values, as in the paper. ``se`` is the standard error
    of the mean with seeds as the unit, because the windows of one seed are not independent.
    ``kept`` and ``dropped`` count values.
    """

    mean: float | None
    sd: float | None
    se: float | None
    kept: int
    dropped: int


class SeedStatistics(TypedDict):
    """Figures over one number per seed; ``None`` where there are too few seeds to tell.

    ``iqm`` is the interquartile mean with its 95 % percentile bootstrap interval. ``seeds`` counts
    the seeds; ``missing`` lists those that did not diverge but have no value.
    """

    mean: float | None
    sd: float | None
    se: float | None
    iqm: float | None
    iqm_interval: tuple[float, float] | None
    seeds: int
    missing: list[int]


@dataclass(frozen=True)
class Claim:
    """A statement, what was measured, and whether that bears it out (``None``: not measured)."""

    statement: str
    measured: str = "not measured in this run"
    holds: bool | None = None


def pooled_statistics(
    values: Floats, seeds: NDArray, judged: Floats | None = None
) -> PooledStatistics:
    """Return mean, sd and standard error of pooled values.

    Parameters
    ----------
    values, seeds
        The values and the seed that each belongs to. Values that are not finite are dropped.
    judged
        One number per value that decides whether it is an outlier: where it is not finite or lies
        outside [Q1 - 1.5 IQR, Q3 + 1.5 IQR] of its like, the value is dropped. The paper judges a
        window by its mean over all actions. Nothing is cut by default.
    """
    kept = np.isfinite(values)
    if judged is not None and np.isfinite(judged).any():
        first, third = np.quantile(judged[np.isfinite(judged)], [0.25, 0.75])
        reach = 1.5 * (third - first)
        kept &= (judged >= first - reach) & (judged <= third + reach)
    rest, owners = values[kept], seeds[kept]
    means = np.array([rest[owners == seed].mean() for seed in np.unique(owners)])
    return PooledStatistics(
        mean=float(rest.mean()) if rest.size else None,
        sd=float(rest.std(ddof=1)) if rest.size > 1 else None,
        se=float(means.std(ddof=1) / np.sqrt(means.size)) if means.size > 1 else None,
        kept=int(rest.size),
        dropped=int(values.size - rest.size),
    )


def seed_statistics(values: Mapping[int, float]) -> SeedStatistics:
    """Return the figures of one number per seed; seeds without a finite one are left out by name.

    Examples
    --------
    >>> seed_statistics({0: 1.0, 1: 3.0, 2: float("nan")})["mean"]
    2.0
    """
    finite = {seed: value for seed, value in sorted(values.items()) if np.isfinite(value)}
    sample = np.array(list(finite.values()), dtype=np.float64)
    sd = interval = None
    if sample.size > 1:
        sd = float(sample.std(ddof=1))
        interval = bootstrap_interval(sample, interquartile_mean, LEVEL, RESAMPLES)
    return SeedStatistics(
        mean=float(sample.mean()) if sample.size else None,
        sd=sd,
        se=None if sd is None else float(sd / np.sqrt(sample.size)),
        iqm=float(interquartile_mean(sample)) if sample.size else None,
        iqm_interval=interval,
        seeds=int(sample.size),
        missing=sorted(values.keys() - finite.keys()),
    )


def welch(ours: SeedStatistics, theirs: SeedStatistics) -> tuple[float, float, float] | None:
    """Return the standard error of a difference of means and the ends of its 95 % interval.

    Welch's: the two sides may vary differently. ``None`` where a side has fewer than two seeds.
    """
    if ours["mean"] is None or theirs["mean"] is None:
        return None
    if ours["se"] is None or theirs["se"] is None:
        return None
    difference = ours["mean"] - theirs["mean"]
    squares = [ours["se"] ** 2, theirs["se"] ** 2]
    error = math.sqrt(sum(squares))
    if error == 0.0:
        return 0.0, difference, difference
    sides = zip(squares, (ours, theirs), strict=True)
    freedom = error**4 / sum(square**2 / (side["seeds"] - 1) for square, side in sides)
    reach = float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * error
    return error, difference - reach, difference + reach


def claims_table(claims: Sequence[Claim], notes: Sequence[str]) -> Table:
    """Return claims with what was measured and whether it bears them out."""
    marks = {True: YES, False: NO, None: NONE}
    cells: Cells[Claim] = {
        Column("", words=True): lambda claim: marks[claim.holds],
        Column("claim", words=True): lambda claim: claim.statement,
        Column("measured", words=True): lambda claim: claim.measured,
    }
    return make_table("claims", "What the run shows", cells, claims, notes)


def number(value: float | None, digits: int) -> str:
    """Write a number, or a dash where there is none."""
    return NONE if value is None else f"{value:z.{digits}f}"
