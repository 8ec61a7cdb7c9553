"""The tables of scored intervals: for each task all kinds, then by visits and by action."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from valuetrack.envs.indoor_escape import ACTION_NAMES
from valuetrack.report.honest_values.data import ALL, ESCAPE, LEVELS, Mean, ScoredRow, ScoredRun
from valuetrack.report.honest_values.data import Task as TaskRows
from valuetrack.report.run_data import diverged_notes, planned, unfinished_notes
from valuetrack.report.table import NONE, Cells, Column, Table, make_table

Line = tuple[ScoredRow, str]
"""A row and a kind of interval."""

_COLUMNS = (
    "Coverage: the share of state-actions whose true value lies in the interval of that level; "
    "width and interval score (Winkler's) are those of the 95 % interval. Score and CRPS are "
    "better the smaller they are. Rank: Spearman's correlation of an interval's width with the "
    "absolute error of its centre, over state-actions. RMSE and bias are those of the centre. All "
    "are means over the legal state-actions of a seed, then means ± standard errors over seeds."
)
_KINDS = (
    "value: solved from the replay memory; calibrated: the same, calibrated on returns; credible: "
    "quantiles of the samples, which for DQN, BootDQN and QR-DQN are recent iterates; prediction: "
    "the paper's, as wide, around the latest sample; heads: BootDQN's after the last update; "
    "quantiles: QR-DQN's, which are those of the return and not of its mean."
)
_RETURNS = (
    "The share of greedy episodes, played after the calibration and seen from a random state each, "
    "whose discounted return lies in its interval (kind = 'return'), and the mean width of 95 % "
    "intervals. Means ± standard errors over seeds; seeds that could not be calibrated are missing."
)
_BY_GROUP = "Of 95 % intervals: the coverage, and the mean width in brackets. Means over seeds."


def tables(run: ScoredRun) -> list[Table]:
    """Return the tables of all tasks that have a finished row."""
    made = [task_table(run, task, i + 1) for i, task in enumerate(run.tasks)]
    by_visits = [visits_table(task) for task in run.tasks if task.bins]
    by_action = [action_table(task) for task in run.tasks if task.env == ESCAPE]
    return [*made, *returns_tables(run), *by_visits, *by_action]


def task_table(run: ScoredRun, task: TaskRows, place: int) -> Table:
    """Return a task's table, with a line for each algorithm and kind."""

    def of(name: str) -> Callable[[Line], str]:
        return lambda line: mean_se(line[0].over_seeds(name, line[1]), line[0], line[1], name)

    cells: Cells[Line] = {
        Column("algorithm", words=True): lambda line: line[0].label,
        Column("interval", words=True): lambda line: line[1],
        Column("seeds"): lambda line: str(line[0].over_seeds("width", line[1]).seeds),
        **{Column(f"{level} %", "coverage"): of(f"coverage_{level}") for level in LEVELS},
        Column("width", "scores"): of("width"),
        Column("score", "scores"): of("interval_score"),
        Column("CRPS", "scores"): of("crps"),
        Column("rank", "scores"): of("rank"),
        Column("RMSE", "scores"): of("rmse"),
        Column("bias", "scores"): of("bias"),
    }
    notes = (
        *((_COLUMNS, _KINDS) if place == 1 else ("Columns and kinds as in Table 1.",)),
        *_noise_notes(task),
        *notes_on_seeds([(row.label, row) for row in task.rows]),
    )
    return make_table(f"task-{task.name}", f"Table {place}. {task.title}", cells, task.lines, notes)


def returns_tables(run: ScoredRun) -> list[Table]:
    """Return how often held-out returns lie in their intervals, if that is known of some row."""
    lines = [(task.title, row) for task in run.tasks for row in task.rows if row.returns]
    if not lines:
        return []

    def of(name: str, level: int) -> Callable[[tuple[str, ScoredRow]], str]:
        def cell(line: tuple[str, ScoredRow]) -> str:
            value = line[1].of_returns(name, level)
            return plus_minus(value, digits=2 if name == "coverage" else None)

        return cell

    cells: Cells[tuple[str, ScoredRow]] = {
        Column("task", words=True): lambda line: line[0],
        Column("algorithm", words=True): lambda line: line[1].label,
        Column("seeds"): lambda line: str(line[1].of_returns("coverage", 95).seeds),
        **{Column(f"{level} %", "coverage"): of("coverage", level) for level in LEVELS[:-1]},
        Column("width of 95 %"): of("width", 95),
    }
    title = "Intervals for the return, after calibration"
    return [make_table("returns", title, cells, lines, [_RETURNS])]


def visits_table(task: TaskRows) -> Table:
    """Return coverage and width by how often the replay memory holds a state and action."""
    columns = {name: f"{name} visits" for name in task.bins}
    title = f"{task.title}: by visits in the replay memory"
    return _grouped(task, f"visits-{task.name}", title, "visits", columns)


def action_table(task: TaskRows) -> Table:
    """Return coverage and width by action."""
    names = task.rows[0].actions()
    columns = {name: ACTION_NAMES[int(name)] for name in names}
    title = f"{task.title}: by action"
    return _grouped(task, f"actions-{task.name}", title, "action", columns)


def _grouped(task: TaskRows, key: str, title: str, group: str, columns: dict[str, str]) -> Table:
    def cell(name: str, line: Line) -> str:
        row, kind = line
        where = {"action": ALL, "visits": ALL, group: name}
        coverage, width = (
            row.over_seeds(number, kind, **where).mean for number in ("coverage_95", "width")
        )
        return NONE if math.isnan(coverage) else f"{coverage:.2f} ({short(width)})"

    cells: Cells[Line] = {
        Column("algorithm", words=True): lambda line: line[0].label,
        Column("interval", words=True): lambda line: line[1],
        **{Column(shown): partial(cell, name) for name, shown in columns.items()},
    }
    return make_table(key, title, cells, task.lines, [_BY_GROUP])


def mean_se(value: Mean, row: ScoredRow, kind: str, name: str) -> str:
    """Write a mean and its standard error; say how many seeds it has if some lack it."""
    if not value.seeds:
        return NONE
    digits = 2 if name.startswith("coverage") or name == "rank" else None
    every = row.over_seeds("width", kind).seeds
    fewer = f" ({value.seeds} seeds)" if value.seeds < every else ""
    return plus_minus(value, digits) + fewer


def plus_minus(value: Mean, digits: int | None = None) -> str:
    """Write a mean and its standard error, with so many digits or as few as count."""
    if not value.seeds:
        return NONE
    shown = short(value.mean) if digits is None else f"{value.mean:z.{digits}f}"
    if math.isnan(value.se):
        return f"{shown} ± {NONE}"
    return f"{shown} ± {short(value.se) if digits is None else f'{value.se:.{digits}f}'}"


def short(value: float) -> str:
    """Write a number with three digits that count, but no more than three behind the point.

    Examples
    --------
    >>> short(0.0784), short(12.345), short(1234.5)
    ('0.078', '12.3', '1234')
    """
    size = abs(value)
    digits = 3 if size < 1 else 2 if size < 10 else 1 if size < 100 else 0
    return f"{value:z.{digits}f}"


def notes_on_seeds(rows: Sequence[tuple[str, ScoredRow]]) -> list[str]:
    """Name seeds that diverged, and rows that lack seeds."""
    asked = [(name, len(row.seeds), planned(row.entry)) for name, row in rows]
    fewer = [f"{name} {found} of {plan}" for name, found, plan in asked if found < plan]
    short_of = [f"Fewer seeds than asked for: {'; '.join(fewer)}."] if fewer else []
    return [*diverged_notes(rows), *short_of]


def notes_on_the_run(run: ScoredRun) -> list[str]:
    """Say what the claims rest on, and what is missing from the run."""
    named = [(f"{row.task}, {row.label}", row) for row in run.rows]
    return [
        "Seeds are the unit of every mean and standard error. A difference counts if it exceeds "
        "two of its standard errors, paired by seed.",
        *notes_on_seeds(named),
        *unfinished_notes(run.manifest, run.rows),
    ]


def _noise_notes(task: TaskRows) -> list[str]:
    """Say how exact the truth is, where it is a mean of rollouts."""
    errors = [row.over_seeds("truth_se", kind).mean for row, kind in task.lines]
    largest = max((error for error in errors if math.isfinite(error)), default=0.0)
    if not largest:
        return []
    return [
        f"The truth is a mean of rollouts, with standard errors of up to {short(largest)} (root "
        "mean square); intervals that are not much wider than that cover less than they would."
    ]
