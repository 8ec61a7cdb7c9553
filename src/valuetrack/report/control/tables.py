"""The tables of the control tasks: one per task, with a line for each algorithm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from valuetrack.report.control.data import LAST, TASKS, ControlRow, ControlRun, Summary, Task
from valuetrack.report.run_data import SpecRow, diverged_notes, unfinished_notes
from valuetrack.report.statistics import LEVEL, RESAMPLES, SeedStatistics, number
from valuetrack.report.table import NONE, Column, Table

_NAMES = {
    "training_return": "training return",
    "final_evaluation_return": "final evaluation",
    "best_return": "best model",
}


def tables(run: ControlRun, summary: Summary) -> list[Table]:
    """Return a table for each task that has a finished row, and one of their values."""
    made = [task_table(run, summary, task, i + 1) for i, task in enumerate(run.tasks)]
    return [*made, *values_table(run, summary, len(made) + 1)]


def task_table(run: ControlRun, summary: Summary, task: Task, place: int) -> Table:
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
    notes = (
        *(_column_notes(run) if place == 1 else ["Columns as in Table 1."]),
        *task_notes(task.env),
        *_plan_notes(task.rows, task.labels),
        *unfinished_notes(run.manifest, run.rows, task.env),
        *seed_notes(summary, task.rows, task.labels, tuple(_NAMES)),
    )
    return Table(f"task-{task.key}", f"Table {place}. {task.env}", columns, lines, notes)


def values_table(run: ControlRun, summary: Summary, place: int) -> list[Table]:
    """Compare Q-values with the returns they predict; no table if no row has kept them."""
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
        expected = metrics["final_start_value"]["mean"]
        found = metrics["final_discounted_return"]["mean"]
        error = metrics["final_value_error"]
        seeds = str(error["seeds"])
        lines.append(
            (row.env, row.label, seeds, number(expected, 1), number(found, 1), _mean_se(error))
        )
    _, episodes = run.points
    notes = (
        f"Greedy episodes, {episodes} at each of the last {LAST} points: the largest Q-value where "
        "they begin, and the discounted return that follows. They agree where Q-values are right, "
        "but for what a time limit cuts off. Seeds are the unit.",
    )
    title = f"Table {place}. What agents expect, and what they get"
    return [Table("values", title, columns, tuple(lines), notes)]


def notes_on_the_run(run: ControlRun, summary: Summary) -> list[str]:
    """Explain the claims, and say where the run falls short of what was asked for."""
    names = [f"{row.env}, {row.label}" for row in run.rows]
    return [
        "Differences ± their standard errors (Welch), seeds as the unit. Within the noise: the "
        f"{100 * LEVEL:g} % interval of the difference includes zero, so neither side is shown to "
        "be above the other.",
        *(note for task in run.tasks for note in task_notes(task.env)),
        *_plan_notes(run.rows, names),
        *unfinished_notes(run.manifest, run.rows),
        *seed_notes(summary, run.rows, names),
    ]


def usual_steps(row: SpecRow) -> int | None:
    """Return the steps of a row in the experiment as published, if its task is one of them."""
    return TASKS[row.env].steps if row.env in TASKS else None


def task_notes(env: str) -> list[str]:
    """Return what must be said wherever a task's numbers are shown."""
    return [TASKS[env].note] if env in TASKS and TASKS[env].note else []


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


def _mean_se(figures: SeedStatistics) -> str:
    if figures["mean"] is None:
        return NONE
    return f"{number(figures['mean'], 1)} ± {number(figures['se'], 1)}"


def _iqm(figures: SeedStatistics) -> str:
    if figures["iqm"] is None:
        return NONE
    ends = figures["iqm_interval"]
    interval = NONE if ends is None else ", ".join(number(end, 1) for end in ends)
    return f"{number(figures['iqm'], 1)} [{interval}]"


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


def _plan_notes(rows: Sequence[ControlRow], names: Sequence[str]) -> list[str]:
    """Name tasks with other steps than the experiment's, and rows that lack seeds."""
    steps = {row.env: (row.entry.steps, usual_steps(row.entry)) for row in rows}
    fewer = [
        f"{name} {len(row.seeds)} of {row.entry.planned}"
        for row, name in zip(rows, names, strict=True)
        if len(row.seeds) < row.entry.planned
    ]
    return [
        *(
            f"{env}: this run has {ours:,} environment steps per seed, the experiment {usual:,}."
            for env, (ours, usual) in steps.items()
            if usual is not None and usual != ours
        ),
        *([f"Fewer seeds than asked for: {'; '.join(fewer)}."] if fewer else []),
    ]


def seed_notes(
    summary: Summary,
    rows: Sequence[ControlRow],
    names: Sequence[str],
    metrics: Sequence[str] = ("training_return",),
) -> list[str]:
    """Name the seeds that are left out: diverged ones, and those without a value of a metric."""
    found = [
        f"{name}, {_NAMES[metric]}: {', '.join(f'seed {seed}' for seed in missing)}"
        for row, name in zip(rows, names, strict=True)
        for metric in metrics
        if (missing := summary[row.id]["metrics"][metric]["missing"])
    ]
    missing_notes = [f"Without a value, and left out: {'; '.join(found)}."] if found else []
    return [*diverged_notes(rows, names), *missing_notes]
