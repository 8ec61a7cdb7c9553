"""The tables of the indoor escape: ours beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from valuetrack.report.indoor_escape import paper
from valuetrack.report.indoor_escape.data import LIKELY, RARE, GridRow, Run, Timing, TimingRow
from valuetrack.report.page import describe
from valuetrack.report.run_data import unfinished_notes
from valuetrack.report.statistics import PooledStatistics, number
from valuetrack.report.style import label_of
from valuetrack.report.table import NONE, Cells, Column, Table, make_table

_DIGITS = {"mse": 5, "coverage": 3, "width": 3}
_TITLES = {"mse": "MSE", "coverage": "coverage", "width": "width"}
_NAMES = Column("algorithm", words=True)


def tables(run: Run) -> list[Table]:
    """Return all tables of a run that can be made from what is finished."""
    made = [
        mse_table(run, "Table 1. Mean squared error", LIKELY),
        interval_table(run, "Table 2. Coverage and width of 95 % intervals", LIKELY),
        mse_table(run, "Table 3. Mean squared error, actions W and S", RARE),
        interval_table(run, "Table 4. Coverage and width, actions W and S", RARE),
        untrimmed_table(run),
        seeds_table(run),
    ]
    return made if run.timing is None else [*made, time_table(run.timing)]


def mse_table(run: Run, title: str, actions: Sequence[str]) -> Table:
    """Return the table of mean squared errors, the actions side by side."""
    columns = [_NAMES, Column("seeds")]
    for action in actions:
        columns += [Column(name, action) for name in ("ours", "paper", "Δ/se", "cut")]
    lines = tuple(
        (row.name, str(len(row.used)), *(
            cell for action in actions for cell in _compared(row, action, "mse")
        ))
        for row in run.rows
    )  # fmt: skip
    key = f"mse-{''.join(actions)}"
    return Table(key, title, tuple(columns), lines, _notes(run, actions))


def interval_table(run: Run, title: str, actions: Sequence[str]) -> Table:
    """Return the table of coverage and width, the actions below each other."""
    columns = (
        _NAMES,
        Column("seeds"),
        Column("action", words=True),
        *(Column(name, "coverage") for name in ("ours", "paper", "Δ/se", "cut", "credible")),
        *(Column(name, "width") for name in ("ours", "paper", "Δ/se", "cut", "legal")),
    )
    lines = tuple(
        (
            row.name,
            str(len(row.used)),
            action,
            *_compared(row, action, "coverage"),
            number(row.trimmed(action, "credible_coverage")["mean"], 3),
            *_compared(row, action, "width"),
            number(row.trimmed(action, "legal_width")["mean"], 3),
        )
        for row in run.rows
        for action in actions
    )
    notes = (
        "Coverage is that of the one-step prediction interval, centred on the latest sample; "
        "credible is that of the interval between the pool's own quantiles.",
        "Width is computed as for the paper's table: summed over all cells, those where the action "
        "is illegal included, and divided by the number of legal ones; legal is the plain mean "
        "over the legal cells.",
        *_notes(run, actions),
    )
    return Table(f"intervals-{''.join(actions)}", title, columns, lines, notes)


def untrimmed_table(run: Run) -> Table:
    """Return what the first two tables would be if nothing were cut."""

    def cell(action: str, metric: str, row: GridRow) -> str:
        figures = row.metrics[action][metric]["untrimmed"]
        return _mean_sd(figures["mean"], figures["sd"], _DIGITS[metric])

    cells: dict[Column, Callable[[GridRow], str]] = {_NAMES: lambda row: row.name}
    for action in LIKELY:
        for metric, title in _TITLES.items():
            cells[Column(title, action)] = partial(cell, action, metric)
    note = "Mean (sd) of every final window of every seed that did not diverge."
    notes = (note, *run.diverged_notes)
    return make_table("untrimmed", "Table 5. With nothing cut", cells, run.rows, notes)


def seeds_table(run: Run) -> Table:
    """Return what was run: seeds, returns and time."""
    cells: Cells[GridRow] = {
        _NAMES: lambda row: row.name,
        Column("step size"): lambda row: NONE if row.step_size is None else f"{row.step_size:g}",
        Column("seeds run"): lambda row: str(len(row.seeds)),
        Column("diverged"): lambda row: str(len(row.diverged)),
        Column("training return"): lambda row: number(row.training_return, 2),
        Column("seconds"): lambda row: f"{sum(row.wall_seconds.values()):.0f}",
    }
    notes = (
        "Training return: the mean over the episodes of the final windows, exploration included. "
        "Seconds: the sum over seeds; a seed's time is its share of the group it ran in.",
        *run.diverged_notes,
    )
    return make_table("seeds", "Table 6. What was run", cells, run.rows, notes)


def time_table(timing: Timing) -> Table:
    """Return the time per update beside the paper's, which was taken on another machine."""
    update, iteration = "ms per update", "ms per iteration"
    cells: Cells[TimingRow] = {
        _NAMES: lambda row: label_of(row.algorithm),
        Column("hidden"): lambda row: "-".join(map(str, row.hidden)),
        Column("batch"): lambda row: str(row.batch_size),
        Column("inner"): lambda row: str(row.inner_iterations),
        Column("ours", update): lambda row: f"{row.ms_per_update:.3f}",
        Column("range", update): _range,
        Column("paper", update): lambda row: number(_papers_time(row)[0], 2),
        Column("ours", iteration): lambda row: f"{row.ms_per_iteration:.3f}",
        Column("paper", iteration): lambda row: number(_papers_time(row)[1], 2),
    }
    notes = (
        f"Ours: {describe(timing.machine)}.",
        "The paper's times are from four cores of an AMD Epyc 7662; compare the rows of a column "
        "rather than the columns.",
    )
    return make_table("time", "Table 7. Time per update", cells, timing.rows, notes)


def standard_errors_apart(ours: PooledStatistics, theirs: paper.Figure) -> float | None:
    """Return (ours - paper's) in standard errors, both sides' joined where both are known.

    Ours has seeds as its unit; the paper's is its sd over the root of its 100 runs. ``None`` with
    fewer than two seeds.
    """
    if ours["mean"] is None or ours["se"] is None:
        return None
    error = math.hypot(ours["se"], theirs.se)
    return (ours["mean"] - theirs.mean) / error if error > 0 else None


def _compared(row: GridRow, action: str, metric: str) -> tuple[str, ...]:
    """Return the cells ours, paper, difference, cut."""
    ours, digits = row.trimmed(action, metric), _DIGITS[metric]
    source = paper.indoor_escape() if action in LIKELY else paper.all_actions()
    theirs = source.get(row.id, {}).get(action, {}).get(metric)
    cut = f"{ours['dropped']}/{ours['kept'] + ours['dropped']}"
    shown = _mean_sd(ours["mean"], ours["sd"], digits)
    if theirs is None:
        return shown, NONE, NONE, cut
    apart = standard_errors_apart(ours, theirs)
    difference = NONE if apart is None else f"{apart:+z.1f}"
    return shown, _mean_sd(theirs.mean, theirs.sd, digits), difference, cut


def _mean_sd(mean: float | None, sd: float | None, digits: int) -> str:
    return number(mean, digits) if sd is None else f"{number(mean, digits)} ({sd:.{digits}f})"


def _range(row: TimingRow) -> str:
    return NONE if row.low is None or row.high is None else f"{row.low:.3f} to {row.high:.3f}"


def _papers_time(row: TimingRow) -> tuple[float | None, float | None]:
    setting = (row.algorithm, row.hidden, row.batch_size)
    return paper.compute_time().get(setting, (None, None))


def _notes(run: Run, actions: Sequence[str]) -> tuple[str, ...]:
    """Return the notes that tables 1 to 4 share."""
    likely = tuple(actions) == LIKELY
    whose = "paper's: the sd of its table over √100" if likely else "authors' are not known"
    notes = [
        "Mean (sd) over the final windows of all seeds. As in the paper, a window is cut for all "
        "actions where its mean over the four actions lies beyond 1.5 interquartile ranges from "
        "the quartiles; the column cut says how many of all.",
        f"Δ/se: ours minus the paper's, in standard errors (ours: seeds as the unit; the {whose}). "
        "It takes at least two seeds.",
    ]
    if not likely:
        notes.append("The paper has no table for W and S: its column is the authors' public list.")
    elif run.row("qrdqn"):
        notes.append(_qrdqn_note(actions))
    return (*notes, *notes_on_the_run(run), *_missing_notes(run, actions))


def _qrdqn_note(actions: Sequence[str]) -> str:
    public = paper.all_actions()["qrdqn"]
    lists = [
        f"{_TITLES[metric]} {' and '.join(f'{public[a][metric].mean:g}' for a in actions)}"
        for metric in _TITLES
    ]
    return (
        f"QR-DQN: the authors' public results list {', '.join(lists)} for {' and '.join(actions)}, "
        "which differ from the paper's table."
    )


def notes_on_the_run(run: Run) -> list[str]:
    """Say where a run falls short of the paper's or of what was asked for, and what diverged."""
    asked = max(run.manifest.seeds.count, *(len(row.seeds) for row in run.rows))
    fewer = [f"{row.name} {len(row.seeds)}" for row in run.rows if len(row.seeds) < asked]
    short = f"This run has {run.steps:,} environment steps per seed, the paper's {paper.STEPS:,}."
    return [
        *([short] if run.steps < paper.STEPS else []),
        *([f"Fewer than {asked} seeds: {', '.join(fewer)}."] if fewer else []),
        *unfinished_notes(run.manifest, run.rows),
        *run.diverged_notes,
    ]


def _missing_notes(run: Run, actions: Sequence[str]) -> list[str]:
    """Name the rows from which values that are not finite had to be left out."""
    counts = {
        row.name: sum(
            row.metrics[action][metric]["untrimmed"]["dropped"]
            for action in actions
            for metric in _TITLES
        )
        for row in run.rows
    }
    found = [f"{name} {count}" for name, count in counts.items() if count]
    return [f"Values that are not finite, left out: {', '.join(found)}."] if found else []
