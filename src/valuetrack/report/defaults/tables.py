"""The tables of the defaults: all tasks in one, then each task, then what varies the tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from valuetrack.report.control.data import Task
from valuetrack.report.defaults.data import OutcomeRow, OutcomeRun, is_in_units
from valuetrack.report.honest_values.tables import short
from valuetrack.report.run_data import diverged_notes, planned, unfinished_notes
from valuetrack.report.statistics import LEVEL, RESAMPLES, SeedStatistics
from valuetrack.report.table import NONE, Best, Cells, Column, Table, make_table

_SUMMARY = (
    "Return of the greedy policy that `evaluate` plays at the end of the training, mean ± standard "
    "error over seeds that did not diverge; in bold the largest mean of a task. Every algorithm "
    "has its own defaults."
)
_COLUMNS = (
    "Final return: greedy episodes at the end, as `evaluate` plays them; LKTD, SGLD and SGHMC act "
    f"by the mean of posterior samples. IQM: the mean of the middle half of the seeds, with its "
    f"{100 * LEVEL:g} % percentile bootstrap interval ({RESAMPLES:,} resamples). Halvings: how "
    "often the guard has halved the step, over all seeds.",
    "RMSE: root mean square error of Q against the exact values of the agent's own greedy policy, "
    "over the state-actions in its replay memory; of the mean of the samples (`posterior(...).mean`"
    ", which for DQN, BootDQN and QR-DQN is the mean of recent iterates), and of the values that "
    "it acts on. At the start: the value with which greedy episodes begin minus their discounted "
    "return, which a time limit may cut off.",
    "s/1000 steps: wall seconds of training of one seed, with its share of the group it ran in, "
    "evaluations left out. Seeds are the unit of every standard error and interval.",
)
_UNITS = (
    "Returns, values and errors are divided by the scale of the rewards. All points: the mean over "
    "the learning curve. A shift changes the task where episodes may end: the best policy is "
    "another one, and returns compare within a task only. Exact value: of its policy and of the "
    "best one where episodes begin, known where the world is a table."
)


def tables(run: OutcomeRun) -> list[Table]:
    """Return the tables of all that has finished."""
    made = [summary_table(run), *(task_table(run, task) for task in run.tasks)]
    return [*made, *units_table(run)]


def summary_table(run: OutcomeRun) -> Table:
    """Return all tasks and algorithms, with what they return in the end."""
    labels = dict.fromkeys(row.label for task in run.compared for row in run.rows_of(task.env))

    def cell(label: str, task: Task) -> str:
        rows = run.rows_of(task.env)
        row = next((row for row in rows if row.label == label), None)
        if row is None:
            return NONE
        means = [mean for r in rows if (mean := r.numbers["final_return"]["mean"]) is not None]
        shown = mean_se(row.numbers["final_return"])
        is_best = bool(means) and row.numbers["final_return"]["mean"] == max(means)
        return Best(shown) if is_best else shown

    cells: Cells[Task] = {
        Column("task", words=True): lambda task: task.env,
        **{Column(label): partial(cell, label) for label in labels},
    }
    title = "Table 1. Defaults against defaults: the final return"
    return make_table("summary", title, cells, run.compared, [_SUMMARY])


def task_table(run: OutcomeRun, task: Task) -> Table:
    """Return all that is known of a task's rows."""
    rows, place = run.rows_of(task.env), run.tasks.index(task) + 2
    cells: Cells[OutcomeRow] = {
        Column("algorithm", words=True): lambda row: row.label,
        Column("seeds"): lambda row: str(len(row.seeds)),
        Column("diverged"): lambda row: str(len(row.diverged)),
        Column("halvings"): _halvings,
        Column("mean ± se", "final return"): of("final_return"),
        Column(f"IQM [{100 * LEVEL:g} %]", "final return"): _iqm,
        Column("RMSE, mean", "values"): of("value_rmse"),
        Column("RMSE, acted on", "values"): of("acted_rmse"),
        Column("at the start", "values"): of("value_error"),
        Column("s/1000 steps"): of("seconds"),
    }
    notes = (
        *(_COLUMNS if place == 2 else ("Columns as in Table 2.",)),
        f"{rows[0].entry.env}, {rows[0].entry.steps:,} environment steps per seed.",
        *notes_on_seeds([(row.label, row) for row in rows]),
    )
    return make_table(f"task-{task.key}", f"Table {place}. {task.env}", cells, rows, notes)


def units_table(run: OutcomeRun) -> list[Table]:
    """Put tasks with rewards in other units side by side; no table if there are none."""
    rows = [row for row in run.rows if is_in_units(row)]
    bases = dict.fromkeys(row.task.split("-")[0] for row in rows)
    lines = [
        row
        for base in bases
        for name in ("lktd", "dqn")
        for row in (run.row(f"{base}-{name}"), *rows)
        if row is not None and row.algorithm == name and row.task.split("-")[0] == base
    ]
    cells: Cells[OutcomeRow] = {
        Column("task", words=True): lambda row: row.task,
        Column("algorithm", words=True): lambda row: row.label,
        Column("seeds"): lambda row: str(len(row.seeds)),
        Column("final", "greedy return"): in_units("final_return"),
        Column("all points", "greedy return"): in_units("curve_return"),
        Column("RMSE, mean"): in_units("value_rmse"),
        Column("at the start"): in_units("value_error"),
        Column("its policy", "exact value"): in_units("policy_value"),
        Column("the best", "exact value"): in_units("best_value"),
    }
    title = f"Table {len(run.tasks) + 2}. Rewards in other units"
    return [make_table("units", title, cells, lines, [_UNITS])] if rows else []


def of(name: str) -> Callable[[OutcomeRow], str]:
    """Return what shows a number over the seeds."""
    return lambda row: mean_se(row.numbers[name])


def in_units(name: str) -> Callable[[OutcomeRow], str]:
    """Return what shows a number over the seeds, divided by the scale of the rewards."""
    return lambda row: mean_se(row.over(row.scale, name))


def mean_se(found: SeedStatistics) -> str:
    """Write a mean and its standard error."""
    if found["mean"] is None:
        return NONE
    error = NONE if found["se"] is None else short(found["se"])
    return f"{short(found['mean'])} ± {error}"


def notes_on_seeds(rows: Sequence[tuple[str, OutcomeRow]]) -> list[str]:
    """Name seeds that diverged, and rows that lack seeds."""
    asked = [(name, len(row.seeds), planned(row.entry)) for name, row in rows]
    fewer = [f"{name} {found} of {plan}" for name, found, plan in asked if found < plan]
    short_of = [f"Fewer seeds than asked for: {'; '.join(fewer)}."] if fewer else []
    return [*diverged_notes(rows), *short_of]


def notes_on_the_run(run: OutcomeRun) -> list[str]:
    """Say what the claims rest on, and what is missing from the run."""
    return [
        "Seeds are the unit. Within the noise: the "
        f"{100 * LEVEL:g} % interval of the difference (Welch) includes zero.",
        *notes_on_seeds([(f"{row.task}, {row.label}", row) for row in run.rows]),
        *unfinished_notes(run.manifest, run.rows),
    ]


def _halvings(row: OutcomeRow) -> str:
    found = row.outcomes["halvings"].values()
    return NONE if row.algorithm == "sb3" else f"{sum(found):.0f}"


def _iqm(row: OutcomeRow) -> str:
    found = row.numbers["final_return"]
    if found["iqm"] is None:
        return NONE
    ends = found["iqm_interval"]
    return f"{short(found['iqm'])} [{NONE if ends is None else ', '.join(map(short, ends))}]"
