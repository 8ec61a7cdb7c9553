"""Statements about value intervals that a run's numbers bear out or do not."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from valuetrack.report.honest_values.data import ScoredRow, ScoredRun, over_seeds
from valuetrack.report.honest_values.tables import short
from valuetrack.report.statistics import Claim

LOW, HIGH = 0.90, 0.99
"""Between which the coverage of 95 % intervals is to lie."""
ERRORS = 2.0
"""How many standard errors a difference must have to count."""


def value_claims(run: ScoredRun) -> list[Claim]:
    """Judge the value intervals of LKTD on each task, beside its credible ones."""
    rows = [row for row in run.rows if row.algorithm == "lktd" and row.kinds]
    return [claim for row in rows for claim in _of_row(row)]


def _of_row(row: ScoredRow) -> Iterator[Claim]:
    name = f"{row.task}, {row.label}"
    coverage = row.over_seeds("coverage_95", "value")
    yield Claim(
        f"{name}: 95 % value intervals cover between {100 * LOW:.0f} and {100 * HIGH:.0f} %",
        f"{100 * coverage.mean:.1f} % ({coverage.seeds} seeds)",
        LOW <= coverage.mean <= HIGH,
    )
    yield _compared(row, f"{name}: a smaller interval score than credible", "interval_score", -1)
    yield _compared(row, f"{name}: widths that rank errors better than credible", "rank", 1)


def _compared(row: ScoredRow, statement: str, number: str, sign: int) -> Claim:
    """Compare value with credible intervals, paired by seed; ``sign`` says what is better."""
    ours, theirs = (row.by_seed(number, kind) for kind in ("value", "credible"))
    pairs = [(ours[seed], theirs[seed]) for seed in ours.keys() & theirs.keys()]
    pairs = [pair for pair in pairs if np.isfinite(pair).all()]
    if not pairs:
        return Claim(statement, "cannot be told: no seed has both", None)
    one, other = np.array(pairs).T
    mean, se, seeds = over_seeds(one - other)
    measured = f"{short(one.mean())} against {short(other.mean())}"
    if math.isnan(se):
        return Claim(statement, f"{measured}; too few seeds for a standard error", sign * mean > 0)
    measured = f"{measured}, difference {short(mean)} ± {short(se)} ({seeds} seeds)"
    if abs(mean) <= ERRORS * se:
        return Claim(statement, f"{measured}; within the noise", None)
    return Claim(statement, measured, sign * mean > 0)
