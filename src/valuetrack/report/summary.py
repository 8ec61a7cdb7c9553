"""``summary.json``: what each row came to, action by action and metric by metric."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from valuetrack.io.run_folder import RunFolder
from valuetrack.report.data import ACTIONS, METRICS, Row, Run, load

SUMMARY = "summary.json"


class Statistics(TypedDict):
    """Figures of one metric; ``None`` where too few values are there to tell.

    ``mean`` and ``sd`` are over the pooled values, as in the paper. ``se`` is the standard error
    of the mean with seeds as the unit, for the windows of one seed are not independent. ``kept``
    and ``dropped`` count values.
    """

    mean: float | None
    sd: float | None
    se: float | None
    kept: int
    dropped: int


class MetricSummary(TypedDict):
    """One metric with and without the values outside 1.5 interquartile ranges."""

    trimmed: Statistics
    untrimmed: Statistics


class RowSummary(TypedDict):
    """One row: how many seeds, which of them diverged, and action -> metric -> figures."""

    seeds_run: int
    seeds_diverged: list[int]
    metrics: dict[str, dict[str, MetricSummary]]


Summary = dict[str, RowSummary]


def summarise(folder: RunFolder) -> Summary:
    """Summarise the finished part of a run and write it to ``summary.json``.

    Returns
    -------
    dict
        Row id -> ``seeds_run``, ``seeds_diverged`` and ``metrics[action][metric]``, which holds
        the figures ``trimmed`` and ``untrimmed``; see `Statistics`.
    """
    summary = summarise_run(load(folder))
    folder.write_json(SUMMARY, summary)
    return summary


def summarise_run(run: Run) -> Summary:
    """Summarise a run that has been read; nothing is written."""
    return {
        row.id: RowSummary(
            seeds_run=len(row.seeds),
            seeds_diverged=sorted(row.diverged),
            metrics={action: _metrics(run, row, action) for action in ACTIONS},
        )
        for row in run.rows
    }


def statistics(values: npt.NDArray[Any], seeds: npt.NDArray[Any], trim: bool) -> Statistics:
    """Return mean, sd and standard error of pooled values.

    Parameters
    ----------
    values, seeds
        The values and the seed that each belongs to. Values that are not finite are dropped.
    trim
        Whether to drop also what lies outside [Q1 - 1.5 IQR, Q3 + 1.5 IQR], as the paper does.
    """
    kept = np.isfinite(values)
    if trim and kept.any():
        first, third = np.quantile(values[kept], [0.25, 0.75])
        reach = 1.5 * (third - first)
        kept &= (values >= first - reach) & (values <= third + reach)
    rest, owners = values[kept], seeds[kept]
    means = np.array([rest[owners == seed].mean() for seed in np.unique(owners)])
    return Statistics(
        mean=float(rest.mean()) if rest.size else None,
        sd=float(rest.std(ddof=1)) if rest.size > 1 else None,
        se=float(means.std(ddof=1) / np.sqrt(means.size)) if means.size > 1 else None,
        kept=int(rest.size),
        dropped=int(values.size - rest.size),
    )


def _metrics(run: Run, row: Row, action: str) -> dict[str, MetricSummary]:
    found = {}
    for metric in METRICS:
        values, seeds = run.final(row, action, metric)
        found[metric] = MetricSummary(
            trimmed=statistics(values, seeds, trim=True),
            untrimmed=statistics(values, seeds, trim=False),
        )
    return found
