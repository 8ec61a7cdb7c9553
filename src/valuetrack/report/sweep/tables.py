"""The tables of a sweep: the best settings, all settings, and who is better than whom."""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

from valuetrack.report.defaults.tables import mean_se, notes_on_seeds
from valuetrack.report.honest_values.tables import short
from valuetrack.report.run_data import unfinished_notes
from valuetrack.report.statistics import LEVEL, RESAMPLES, Claim
from valuetrack.report.sweep.data import (
    FINAL,
    Improvement,
    SweepRow,
    SweepRun,
    SweepTask,
    improvement,
    train_command,
)
from valuetrack.report.table import NONE, Best, Cells, Column, Table, make_table

_COLUMNS = (
    "Final return: greedy episodes at the end of the training, as `evaluate` plays them. IQM: the "
    f"mean of the middle half of the seeds, with its {100 * LEVEL:g} % percentile bootstrap "
    f"interval ({RESAMPLES:,} resamples). Means and IQM are over seeds that did not diverge.",
    "Mean: of the final return. Rows are in the order of their IQM, in which a diverged seed "
    "counts as the worst final return of its environment. All points: the mean greedy return over "
    "the learning curve. At the start: the value with which greedy episodes begin minus their "
    "discounted return, which a time limit may cut off.",
)
_CHOSEN = (
    "The best of many settings were chosen by the same seeds that they are shown with, which "
    "flatters them; train them again with fresh seeds before you rely on the difference."
)
_PROBABILITY = (
    "Better: the probability of improvement, which is how often a seed of the one has a larger "
    "final return than a seed of the other, a tie counting half and a diverged seed as worse than "
    f"any other; with its {100 * LEVEL:g} % percentile bootstrap interval over the seeds of both "
    f"({RESAMPLES:,} resamples). 0.5 if neither is better."
)


class _Line(NamedTuple):
    task: SweepTask
    row: SweepRow


class _Pair(NamedTuple):
    task: SweepTask
    one: SweepRow
    other: SweepRow


def tables(run: SweepRun) -> list[Table]:
    """Return the tables of all that has finished."""
    return [best_table(run), settings_table(run), *improvement_table(run)]


def best_table(run: SweepRun) -> Table:
    """Return the best settings of every algorithm in every environment."""
    lines = [_Line(task, row) for task in run.tasks for row in task.best_of_each]
    cells: Cells[_Line] = {
        Column("environment", words=True): lambda line: line.task.env,
        Column("best settings", words=True): _marked,
        Column("seeds"): lambda line: str(len(line.row.seeds)),
        Column(f"IQM [{100 * LEVEL:g} %]"): lambda line: iqm(line.row),
        Column("row", words=True): lambda line: line.row.id,
    }
    notes = [
        _CHOSEN,
        *(f"{task.env}: {train_command(task.rows[0].entry)}" for task in run.tasks),
    ]
    return make_table("best", "Table 1. The best settings", cells, lines, notes)


def settings_table(run: SweepRun) -> Table:
    """Return all rows, the best of each environment first."""
    lines = [_Line(task, row) for task in run.tasks for row in task.rows]
    cells: Cells[_Line] = {
        Column("environment", words=True): lambda line: line.task.env,
        Column("settings", words=True): _marked,
        Column("seeds"): lambda line: str(len(line.row.seeds)),
        Column("diverged"): lambda line: str(len(line.row.diverged)),
        Column(f"IQM [{100 * LEVEL:g} %]"): lambda line: iqm(line.row),
        Column("mean ± se"): lambda line: mean_se(line.row.numbers[FINAL]),
        Column("all points"): lambda line: mean_se(line.row.numbers["curve_return"]),
        Column("at the start"): lambda line: mean_se(line.row.numbers["value_error"]),
        Column("best is better"): _the_best_is_better,
        Column("s/1000 steps"): lambda line: mean_se(line.row.numbers["seconds"]),
    }
    notes = [*_COLUMNS, _PROBABILITY, *_seed_notes(run)]
    return make_table("settings", "Table 2. All settings", cells, lines, notes)


def improvement_table(run: SweepRun) -> list[Table]:
    """Compare the best settings of each algorithm with those of every other, if there are two."""
    pairs = [
        _Pair(task, one, other)
        for task in run.tasks
        for one, other in permutations(task.best_of_each, 2)
    ]
    cells: Cells[_Pair] = {
        Column("environment", words=True): lambda pair: pair.task.env,
        Column("is", words=True): lambda pair: pair.one.label,
        Column("better than", words=True): lambda pair: pair.other.label,
        Column("probability"): lambda pair: shown(improvement(pair.one, pair.other)),
    }
    title = "Table 3. Probability of improvement between algorithms"
    return [make_table("improvement", title, cells, pairs, [_PROBABILITY, _CHOSEN])] * bool(pairs)


def claims(run: SweepRun) -> list[Claim]:
    """Claim of every environment that its best settings are better than the next."""
    return [_claim(task) for task in run.tasks if len(task.rows) > 1]


def _claim(task: SweepTask) -> Claim:
    """Compare with the best of another algorithm; with the next settings if there is none."""
    one = task.rows[0]
    other = next((row for row in task.rows if row.algorithm != one.algorithm), task.rows[1])
    return compared(f"{task.env}: {one.label} is better than {other.label}", one, other)


def compared(statement: str, one: SweepRow, other: SweepRow) -> Claim:
    """Claim that one row is better than another."""
    found = improvement(one, other)
    sides = f"IQM {iqm(one)} against {iqm(other)}; {len(one.seeds)} and {len(other.seeds)} seeds"
    measured = f"probability of improvement {shown(found)} ({sides})"
    if found.interval is None:
        return Claim(statement, f"{measured}; too few seeds to tell", None)
    low, high = found.interval
    if low <= 0.5 <= high:
        return Claim(statement, f"{measured}; within the noise", None)
    return Claim(statement, measured, found.probability > 0.5)


def notes_on_the_run(run: SweepRun) -> list[str]:
    """Say what the claims rest on, and what is missing from the run."""
    return [_PROBABILITY, _CHOSEN, *_seed_notes(run), *unfinished_notes(run.manifest, run.rows)]


def iqm(row: SweepRow) -> str:
    """Write the interquartile mean of the final return with its interval."""
    found = row.numbers[FINAL]
    if found["iqm"] is None:
        return NONE
    ends = found["iqm_interval"]
    return f"{short(found['iqm'])} [{NONE if ends is None else ', '.join(map(short, ends))}]"


def shown(found: Improvement) -> str:
    """Write a probability with its interval.

    Examples
    --------
    >>> shown(Improvement(0.875, (0.5, 1.0)))
    '0.88 [0.50, 1.00]'
    """
    ends = NONE if found.interval is None else ", ".join(f"{end:.2f}" for end in found.interval)
    return f"{found.probability:.2f} [{ends}]"


def _the_best_is_better(line: _Line) -> str:
    best = line.task.rows[0]
    return NONE if line.row is best else shown(improvement(best, line.row))


def _marked(line: _Line) -> str:
    """Return a row's label, which stands out if it is the best of its environment."""
    return Best(line.row.label) if line.row is line.task.rows[0] else line.row.label


def _seed_notes(run: SweepRun) -> list[str]:
    named = [(f"{task.env}, {row.label}", row) for task in run.tasks for row in task.rows]
    return notes_on_seeds(named)
