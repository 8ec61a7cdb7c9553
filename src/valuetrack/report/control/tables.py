"""The tables of the control tasks: one per task, with a line for each algorithm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from valuetrack.io.manifest import SpecRow
from valuetrack.report.control.data import LAST, TASKS, ControlRow, ControlRun, Task
from valuetrack.report.run_data import diverged_notes, planned, unfinished_notes
from valuetrack.report.statistics import LEVEL, RESAMPLES, number
from valuetrack.report.table import NONE, Cells, Column, Table, make_table

_NAMES = {
    "training_return": "training return",
    "final_evaluation_return": "final evaluation",
    "best_return": "best model",
}


def tables(run: ControlRun) -> list[Table]:
    """Return a table for each task that has a finished row, and one of their values."""
    made = [task_table(run, task, i + 1) for i, task in enumerate(run.tasks)]
    return [*made, *values_table(run, len(made) + 1)]


def task_table(run: ControlRun, task: Task, place: int) -> Table:
    """Return the table of one task; the first also explains the columns."""
    threshold = task.known.solved
    reached = "solved" if threshold is None else f"reach {threshold:g}"
    cells: Cells[ControlRow] = {
        Column("algorithm", words=True): lambda row: row.label,
        Column("seeds"): lambda row: str(len(row.seeds)),
        Column("diverged"): lambda row: str(len(row.diverged)),
        Column("min/seed"): lambda row: f"{np.mean(list(row.wall_seconds.values())) / 60:.1f}",
        Column("mean ± se", "training return"): lambda row: _mean_se(row, "training_return"),
        Column(f"IQM [{100 * LEVEL:g} %]", "training return"): _iqm,
        Column("final ± se", "evaluation"): lambda row: _mean_se(row, "final_evaluation_return"),
        Column("best ± se", "evaluation"): lambda row: _mean_se(row, "best_return"),
        Column(reached, "evaluation"): _solved,
    }
    notes = (
        *(_column_notes(run) if place == 1 else ["Columns as in Table 1."]),
        *task_notes([task]),
        *_plan_notes(task.named),
        *unfinished_notes(run.manifest, run.rows, task.env),
        *seed_notes(task.named, tuple(_NAMES)),
    )
    return make_table(f"task-{task.key}", f"Table {place}. {task.env}", cells, task.rows, notes)


def values_table(run: ControlRun, place: int) -> list[Table]:
    """Compare Q-values with the returns they predict; no table if no row has kept them."""
    kept = [row for row in run.rows if row.metrics["final_value_error"]["seeds"]]
    cells: Cells[ControlRow] = {
        Column("task", words=True): lambda row: row.env,
        Column("algorithm", words=True): lambda row: row.label,
        Column("seeds"): lambda row: str(row.metrics["final_value_error"]["seeds"]),
        Column("value at the start"): lambda row: _mean(row, "final_start_value"),
        Column("discounted return"): lambda row: _mean(row, "final_discounted_return"),
        Column("difference ± se"): lambda row: _mean_se(row, "final_value_error"),
    }
    _, episodes = run.points
    note = (
        f"Greedy episodes, {episodes} at each of the last {LAST} points: the largest Q-value where "
        "they begin, and the discounted return that follows. They agree where Q-values are right, "
        "but for what a time limit cuts off. Seeds are the unit."
    )
    title = f"Table {place}. What agents expect, and what they get"
    return [make_table("values", title, cells, kept, [note])] if kept else []


def notes_on_the_run(run: ControlRun) -> list[str]:
    """Explain the claims, and say where the run falls short of what was asked for."""
    named = full_names(run.tasks)
    return [
        "Differences ± their standard errors (Welch), seeds as the unit. Within the noise: the "
        f"{100 * LEVEL:g} % interval of the difference includes zero, so neither side is shown to "
        "be above the other.",
        *task_notes(run.tasks),
        *_plan_notes(named),
        *unfinished_notes(run.manifest, run.rows),
        *seed_notes(named),
    ]


def usual_steps(row: SpecRow) -> int | None:
    """Return the steps of a row in the experiment as published, if its task is one of them."""
    return TASKS[row.env].steps if row.env in TASKS else None


def task_notes(tasks: Sequence[Task]) -> list[str]:
    """Return what must be said wherever the numbers of tasks are shown."""
    return [task.known.note for task in tasks if task.known.note]


def full_names(tasks: Sequence[Task]) -> list[tuple[str, ControlRow]]:
    """Return the rows of several tasks with names that tell them apart."""
    return [(f"{task.env}, {name}", row) for task in tasks for name, row in task.named]


def _mean(row: ControlRow, metric: str) -> str:
    return number(row.metrics[metric]["mean"], 1)


def _mean_se(row: ControlRow, metric: str) -> str:
    mean, error = _mean(row, metric), row.metrics[metric]["se"]
    return NONE if mean == NONE else f"{mean} ± {number(error, 1)}"


def _iqm(row: ControlRow) -> str:
    figures = row.metrics["training_return"]
    if figures["iqm"] is None:
        return NONE
    ends = figures["iqm_interval"]
    interval = NONE if ends is None else ", ".join(number(end, 1) for end in ends)
    return f"{number(figures['iqm'], 1)} [{interval}]"


def _solved(row: ControlRow) -> str:
    return NONE if row.solved is None else f"{100 * len(row.solved) / len(row.seeds):.0f} %"


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


def _plan_notes(rows: Sequence[tuple[str, ControlRow]]) -> list[str]:
    """Name tasks with other steps than the experiment's, and rows that lack seeds."""
    steps = {row.env: (row.entry.steps, row.known.steps) for _, row in rows}
    notes = [
        f"{env}: this run has {ours:,} environment steps per seed, the experiment {usual:,}."
        for env, (ours, usual) in steps.items()
        if usual is not None and usual != ours
    ]
    asked = [(name, len(row.seeds), planned(row.entry)) for name, row in rows]
    fewer = [f"{name} {found} of {plan}" for name, found, plan in asked if found < plan]
    return [*notes, f"Fewer seeds than asked for: {'; '.join(fewer)}."] if fewer else notes


def seed_notes(
    rows: Sequence[tuple[str, ControlRow]], metrics: Sequence[str] = ("training_return",)
) -> list[str]:
    """Name the seeds that are left out: diverged ones, and those without a value of a metric."""
    notes = diverged_notes(rows)
    found = [
        f"{name}, {_NAMES[metric]}: {', '.join(f'seed {seed}' for seed in missing)}"
        for name, row in rows
        for metric in metrics
        if (missing := row.metrics[metric]["missing"])
    ]
    return [*notes, f"Without a value, and left out: {'; '.join(found)}."] if found else notes
