"""Statements about intervals that a run's numbers bear out or do not."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from valuetrack.envs.indoor_escape import ACTION_NAMES
from valuetrack.report.honest_values.data import (
    ALL,
    ESCAPE,
    VISITED,
    Mean,
    ScoredRow,
    ScoredRun,
    Task,
    over_seeds,
)
from valuetrack.report.honest_values.tables import short
from valuetrack.report.statistics import Claim

ON_GRIDS = 0.93, 0.97
"""Between which the coverage of 95 % value intervals is to lie for each action of a grid."""
ELSEWHERE = 0.90, 0.98
"""The same over the visited state-actions of a table, and after calibration on other tasks."""
OF_RETURNS = 0.92, 0.98
"""Between which that of 95 % intervals for the return is to lie."""
JUDGED = ("lktd", "dqn")
"""The algorithms whose value intervals are judged outside the grids."""
RIVALS = {"bootdqn": "heads", "qrdqn": "quantiles"}
"""Other algorithms' intervals that are read as intervals for the value."""
ERRORS = 2.0
"""How many standard errors a difference must have to count."""


def value_claims(run: ScoredRun) -> list[Claim]:
    """Judge the value intervals of LKTD on each task, and outside the grids those of DQN."""
    return [claim for task in run.tasks for claim in _of_task(task)]


def _of_task(task: Task) -> Iterator[Claim]:
    for row in task.rows:
        if row.algorithm not in JUDGED or not row.kinds:
            continue
        name = f"{row.task}, {row.label}"
        if task.env == ESCAPE:
            if row.algorithm == "lktd":
                yield _of_actions(row, name)
                yield from _beside_credible(row, name)
        elif VISITED in task.bins:
            where = "over visited state-actions"
            yield _covers(row, f"{name}: 95 % value intervals {where}", "value", VISITED)
            rivals = [(other, RIVALS.get(other.algorithm, "")) for other in task.rows]
            for other, kind in rivals:
                if kind in other.kinds:
                    yield _beside_rival(row, other, kind)
        else:
            what = "95 % intervals for the return cover"
            yield _between(f"{name}: {what}", row.of_returns("coverage", 95), OF_RETURNS)
            yield _covers(row, f"{name}: calibrated 95 % value intervals", "calibrated", ALL)


def _of_actions(row: ScoredRow, name: str) -> Claim:
    low, high = ON_GRIDS
    actions = {ACTION_NAMES[int(action)]: action for action in row.actions()}
    found = {
        shown: row.over_seeds("coverage_95", "value", action) for shown, action in actions.items()
    }
    seeds = max((coverage.seeds for coverage in found.values()), default=0)
    told = ", ".join(f"{shown} {100 * coverage.mean:.1f}" for shown, coverage in found.items())
    return Claim(
        f"{name}: 95 % value intervals cover between {_percent(ON_GRIDS)} of each action",
        f"{told} % ({seeds} seeds)",
        all(low <= coverage.mean <= high for coverage in found.values()),
    )


def _covers(row: ScoredRow, statement: str, kind: str, visits: str) -> Claim:
    coverage = row.over_seeds("coverage_95", kind, visits=visits)
    return _between(f"{statement} cover", coverage, ELSEWHERE)


def _between(statement: str, coverage: Mean, bounds: tuple[float, float]) -> Claim:
    statement = f"{statement} between {_percent(bounds)}"
    if not coverage.seeds:
        return Claim(statement)
    measured = f"{100 * coverage.mean:.1f} % ({coverage.seeds} seeds)"
    return Claim(statement, measured, bounds[0] <= coverage.mean <= bounds[1])


def _percent(bounds: tuple[float, float]) -> str:
    return f"{100 * bounds[0]:.0f} and {100 * bounds[1]:.0f} %"


def _beside_credible(row: ScoredRow, name: str) -> Iterator[Claim]:
    yield _compared(row, f"{name}: a smaller interval score than credible", "interval_score", -1)
    yield _compared(row, f"{name}: widths that rank errors better than credible", "rank", 1)


def _beside_rival(row: ScoredRow, other: ScoredRow, kind: str) -> Claim:
    """Compare the interval scores of two algorithms over the state-actions that each visited."""
    statement = f"{row.task}, {row.label}: a smaller interval score than {other.label}'s {kind}"
    ours = row.over_seeds("interval_score", "value", visits=VISITED)
    theirs = other.over_seeds("interval_score", kind, visits=VISITED)
    se = math.hypot(ours.se, theirs.se)
    measured = f"{short(ours.mean)} against {short(theirs.mean)}"
    return _judged(statement, measured, Mean(ours.mean - theirs.mean, se, ours.seeds), -1)


def _compared(row: ScoredRow, statement: str, number: str, sign: int) -> Claim:
    """Compare value with credible intervals, paired by seed; ``sign`` says what is better."""
    ours, theirs = (row.by_seed(number, kind) for kind in ("value", "credible"))
    pairs = [(ours[seed], theirs[seed]) for seed in ours.keys() & theirs.keys()]
    pairs = [pair for pair in pairs if np.isfinite(pair).all()]
    if not pairs:
        return Claim(statement, "cannot be told: no seed has both", None)
    one, other = np.array(pairs).T
    measured = f"{short(one.mean())} against {short(other.mean())}"
    return _judged(statement, measured, over_seeds(one - other), sign)


def _judged(statement: str, measured: str, difference: Mean, sign: int) -> Claim:
    mean, se, seeds = difference
    if math.isnan(se):
        return Claim(statement, f"{measured}; too few seeds for a standard error", sign * mean > 0)
    measured = f"{measured}, difference {short(mean)} ± {short(se)} ({seeds} seeds)"
    if abs(mean) <= ERRORS * se:
        return Claim(statement, f"{measured}; within the noise", None)
    return Claim(statement, measured, sign * mean > 0)
