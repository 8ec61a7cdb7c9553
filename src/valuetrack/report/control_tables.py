"""The tables of the control tasks: one a task, one line an algorithm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from valuetrack.report.claims import Claim
from valuetrack.report.control_data import TASKS, ControlRow, ControlRun, Task
from valuetrack.report.control_summary import LAST, LEVEL, RESAMPLES, Statistics, Summary
from valuetrack.report.render import NONE, Column, Table
from valuetrack.report.tables import verdicts

_NAMES = {
    "training_return": "training return",
    "final_evaluation_return": "final evaluation",
    "best_return": "best model",
}


def control_tables(run: ControlRun, summary: Summary) -> list[Table]:
    """Return a table for each task that has a finished row, and one of their values."""
    tables = [task_table(run, summary, task, i + 1) for i, task in enumerate(run.tasks)]
    return [*tables, *values_table(run, summary, len(tables) + 1)]


def task_table(run: ControlRun, summary: Summary, task: Task, number: int) -> Table:
    """Return the table of one task; the first also explains the columns."""
    known = TASKS.get(task.env)
    solved = "solved" if known is None else f"reach {known.solved:g}"
    columns = (
        Column("algorithm", words=True),
        Column("seeds"),
        Column("diverged"),
        Column("min/seed"),
        Column("mean ± se", "training return"),
        Column(f"IQM [{100 * LEVEL:g} %]", "training return"),
        Column("final ± se", "evaluation"),
        Column("best ± se", "evaluation"),
        Column(solved, "evaluation"),
    )
    lines = tuple(_line(summary, row) for row in task.rows)
    names = [row.label for row in task.rows]
    notes = (
        *(_column_notes(run) if number == 1 else ["Columns as in Table 1."]),
        *task_notes(task.env),
        *_steps_notes(task.rows),
        *_seeds_notes(task.rows, names, run.unfinished(task.env)),
        *diverged_notes(task.rows, names),
        *missing_notes(summary, task.rows, names, list(_NAMES)),
    )
    title = f"Table {number}. {task.env}"
    return Table(f"task-{task.key}", title, columns, lines, notes)


def values_table(run: ControlRun, summary: Summary, number: int) -> list[Table]:
    """Hold Q-values against what they are about; no table if no row has kept them."""
    kept = [row for row in run.rows if summary[row.id]["metrics"]["final_value_error"]["seeds"]]
    if not kept:
        return []
    columns = (
        Column("task", words=True),
        Column("algorithm", words=True),
        Column("seeds"),
        Column("value at the start"),
        Column("discounted return"),
        Column("difference ± se"),
    )
    lines = []
    for row in kept:
        metrics = summary[row.id]["metrics"]
        expected, found = metrics["final_start_value"], metrics["final_discounted_return"]
        error = metrics["final_value_error"]
        seeds = str(error["seeds"])
        lines.append((row.env, row.label, seeds, _mean(expected), _mean(found), _mean_se(error)))
    _, episodes = run.points
    notes = (
        f"Greedy episodes, {episodes} at each of the last {LAST} points: the largest Q-value where "
        "they begin, and the discounted return that follows. They agree where Q-values are right, "
        "but for what a time limit cuts off. Seeds are the unit.",
    )
    title = f"Table {number}. What agents expect, and what they get"
    return [Table("values", title, columns, tuple(lines), notes)]


def control_claims_table(run: ControlRun, summary: Summary, claims: Sequence[Claim]) -> Table:
    """Return a run's claims with what was measured and whether it bears them out."""
    names = [f"{row.env}, {row.label}" for row in run.rows]
    notes = (
        "Differences ± their standard errors (Welch), seeds as the unit. Within the noise: the "
        f"{100 * LEVEL:g} % interval of the difference includes zero, so neither side is shown to "
        "be above the other.",
        *(note for task in run.tasks for note in task_notes(task.env)),
        *_steps_notes(run.rows),
        *_seeds_notes(run.rows, names, run.unfinished()),
        *diverged_notes(run.rows, names),
        *missing_notes(summary, run.rows, names, ["training_return"]),
    )
    return verdicts(claims, notes)


def task_notes(env: str) -> list[str]:
    """Return what must be said wherever a task's numbers stand."""
    return [TASKS[env].note] if env in TASKS and TASKS[env].note else []


def diverged_notes(rows: Sequence[ControlRow], names: Sequence[str]) -> list[str]:
    """Name the seeds that count in no average."""
    return [
        f"{name}: diverged and left out: "
        + ", ".join(f"seed {seed} (update {row.diverged[seed]})" for seed in sorted(row.diverged))
        + "."
        for row, name in zip(rows, names, strict=True)
        if row.diverged
    ]


def _line(summary: Summary, row: ControlRow) -> tuple[str, ...]:
    metrics = summary[row.id]["metrics"]
    training = metrics["training_return"]
    seconds = np.mean(list(row.wall_seconds.values()))
    return (
        row.label,
        str(len(row.seeds)),
        str(len(row.diverged)),
        f"{seconds / 60:.1f}",
        _mean_se(training),
        _iqm(training),
        _mean_se(metrics["final_evaluation_return"]),
        _mean_se(metrics["best_return"]),
        NONE if row.solved is None else f"{100 * len(row.solved) / len(row.seeds):.0f} %",
    )


def _mean(figures: Statistics) -> str:
    return NONE if figures["mean"] is None else f"{figures['mean']:z.1f}"


def _mean_se(figures: Statistics) -> str:
    if figures["mean"] is None:
        return NONE
    error = NONE if figures["se"] is None else f"{figures['se']:.1f}"
    return f"{figures['mean']:z.1f} ± {error}"


def _iqm(figures: Statistics) -> str:
    if figures["iqm"] is None:
        return NONE
    if figures["iqm_interval"] is None:
        return f"{figures['iqm']:z.1f} [{NONE}]"
    low, high = figures["iqm_interval"]
    return f"{figures['iqm']:z.1f} [{low:z.1f}, {high:z.1f}]"


def _column_notes(run: ControlRun) -> list[str]:
    points, episodes = run.points
    return [
        "Seeds are the unit of every standard error and interval. IQM: the mean of the middle "
        f"half of the seeds, with its {100 * LEVEL:g} % percentile bootstrap interval "
        f"({RESAMPLES:,} resamples).",
        "Training return: the mean over all episodes of a training, exploration included. Final: "
        f"greedy episodes, {episodes} at each of the last {LAST} of {points} points.",
        f"Best: the best model, the largest of a seed's {points} means of {episodes} greedy "
        "episodes; a maximum of noisy means flatters. Reach: the share of all seeds run whose best "
        "model reaches Gymnasium's reward threshold; a diverged seed counts as one that does not.",
        "min/seed: wall minutes, diverged seeds included, each with its share of the group it ran "
        "in.",
    ]


def _steps_notes(rows: Sequence[ControlRow]) -> list[str]:
    """Name the tasks that were trained for another time than the experiment's."""
    found = {
        row.env: (row.steps, TASKS[row.env].steps)
        for row in rows
        if row.env in TASKS and row.steps != TASKS[row.env].steps
    }
    return [
        f"{env}: this run has {steps:,} environment steps a seed, the experiment {whole:,}."
        for env, (steps, whole) in found.items()
    ]


def _seeds_notes(
    rows: Sequence[ControlRow], names: Sequence[str], unfinished: Sequence[str]
) -> list[str]:
    """Name the rows with fewer seeds than asked for, and those not there at all."""
    fewer = [
        f"{name} {len(row.seeds)} of {row.planned}"
        for row, name in zip(rows, names, strict=True)
        if len(row.seeds) < row.planned
    ]
    notes = [f"Fewer seeds than asked for: {'; '.join(fewer)}."] if fewer else []
    return notes + ([f"Not finished: {', '.join(unfinished)}."] if unfinished else [])


def missing_notes(
    summary: Summary, rows: Sequence[ControlRow], names: Sequence[str], metrics: Sequence[str]
) -> list[str]:
    """Name the seeds that have no value of some metrics and are left out of their averages."""
    found = [
        f"{name}, {_NAMES[metric]}: {', '.join(f'seed {seed}' for seed in missing)}"
        for row, name in zip(rows, names, strict=True)
        for metric in metrics
        if (missing := summary[row.id]["metrics"][metric]["missing"])
    ]
    return [f"Without a value, and left out: {'; '.join(found)}."] if found else []
