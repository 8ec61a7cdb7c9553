"""The tables of the indoor escape: ours beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Sequence

from valuetrack.report.indoor_escape import paper
from valuetrack.report.indoor_escape.data import (
    LIKELY,
    RARE,
    GridRow,
    Run,
    Summary,
    Timing,
    TimingRow,
)
from valuetrack.report.page import describe
from valuetrack.report.run_data import unfinished_notes
from valuetrack.report.statistics import PooledStatistics, number
from valuetrack.report.style import label_of
from valuetrack.report.table import NONE, Column, Table

_DIGITS = {"mse": 5, "coverage": 3, "width": 3}
_TITLES = {"mse": "MSE", "coverage": "coverage", "width": "width"}
_NAMES = Column("algorithm", words=True)


def tables(run: Run, summary: Summary) -> list[Table]:
    """Return all tables of a run that can be made from what is finished."""
    made = [
        mse_table(run, summary, "Table 1. Mean squared error", LIKELY),
        interval_table(run, summary, "Table 2. Coverage and width of 95 % intervals", LIKELY),
        mse_table(run, summary, "Table 3. Mean squared error, actions W and S", RARE),
        interval_table(run, summary, "Table 4. Coverage and width, actions W and S", RARE),
        untrimmed_table(run, summary),
        seeds_table(run),
    ]
    return made if run.timing is None else [*made, time_table(run.timing)]


def mse_table(run: Run, summary: Summary, title: str, actions: Sequence[str]) -> Table:
    """Return the table of mean squared errors, the actions side by side."""
    columns = [_NAMES, Column("seeds")]
    for action in actions:
        columns += [Column(name, action) for name in ("ours", "paper", "Δ/se", "cut")]
    lines = tuple(
        (row.name, str(len(row.used)), *(
            cell for action in actions for cell in _compared(summary, row, action, "mse")
        ))
        for row in run.rows
    )  # fmt: skip
    key = f"mse-{''.join(actions)}"
    return Table(key, title, tuple(columns), lines, _notes(run, summary, actions))


def interval_table(run: Run, summary: Summary, title: str, actions: Sequence[str]) -> Table:
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
            *_compared(summary, row, action, "coverage"),
            number(_ours(summary, row, action, "credible_coverage")["mean"], 3),
            *_compared(summary, row, action, "width"),
            number(_ours(summary, row, action, "legal_width")["mean"], 3),
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
        *_notes(run, summary, actions),
    )
    return Table(f"intervals-{''.join(actions)}", title, columns, lines, notes)


def untrimmed_table(run: Run, summary: Summary) -> Table:
    """Return what the first two tables would be if nothing were cut."""
    columns = (_NAMES, *(Column(title, a) for a in LIKELY for title in _TITLES.values()))
    lines = tuple(
        (row.name, *(
            _mean_sd(summary[row.id]["metrics"][action][metric]["untrimmed"], _DIGITS[metric])
            for action in LIKELY for metric in _TITLES
        ))
        for row in run.rows
    )  # fmt: skip
    note = "Mean (sd) of every final window of every seed that did not diverge."
    return Table(
        "untrimmed", "Table 5. With nothing cut", columns, lines, (note, *run.diverged_notes)
    )


def seeds_table(run: Run) -> Table:
    """Return what was run: seeds, returns and time."""
    titles = ("step size", "seeds run", "diverged", "training return", "seconds")
    lines = tuple(
        (
            row.name,
            NONE if row.step_size is None else f"{row.step_size:g}",
            str(len(row.seeds)),
            str(len(row.diverged)),
            number(run.training_return(row), 2),
            f"{sum(row.wall_seconds.values()):.0f}",
        )
        for row in run.rows
    )
    notes = (
        "Training return: the mean over the episodes of the final windows, exploration included. "
        "Seconds: the sum over seeds; a seed's time is its share of the group it ran in.",
        *run.diverged_notes,
    )
    columns = (_NAMES, *map(Column, titles))
    return Table("seeds", "Table 6. What was run", columns, lines, notes)


def time_table(timing: Timing) -> Table:
    """Return the time per update beside the paper's, which was taken on another machine."""
    titles = ("hidden", "batch", "inner")
    groups = [
        ("ms per update", ("ours", "range", "paper")),
        ("ms per iteration", ("ours", "paper")),
    ]
    columns = (
        _NAMES,
        *map(Column, titles),
        *(Column(name, group) for group, names in groups for name in names),
    )
    lines = tuple(_time_line(entry) for entry in timing.rows)
    notes = (
        f"Ours: {describe(timing.machine)}.",
        "The paper's times are from four cores of an AMD Epyc 7662; compare the rows of a column "
        "rather than the columns.",
    )
    return Table("time", "Table 7. Time per update", columns, lines, notes)


def standard_errors_apart(ours: PooledStatistics, theirs: paper.Figure) -> float | None:
    """Return (ours - paper's) in standard errors, both sides' joined where both are known.

    Ours has seeds as its unit; the paper's is its sd over the root of its 100 runs. ``None`` with
    fewer than two seeds.
    """
    if ours["mean"] is None or ours["se"] is None:
        return None
    error = math.hypot(ours["se"], (theirs.sd or 0.0) / math.sqrt(paper.RUNS))
    return (ours["mean"] - theirs.mean) / error if error > 0 else None


def _compared(summary: Summary, row: GridRow, action: str, metric: str) -> tuple[str, ...]:
    """Return the cells ours, paper, difference, cut."""
    ours, digits = _ours(summary, row, action, metric), _DIGITS[metric]
    source = paper.indoor_escape() if action in LIKELY else paper.all_actions()
    theirs = source.get(row.id, {}).get(action, {}).get(metric)
    cut = f"{ours['dropped']}/{ours['kept'] + ours['dropped']}"
    if theirs is None:
        return _mean_sd(ours, digits), NONE, NONE, cut
    apart = standard_errors_apart(ours, theirs)
    figure = number(theirs.mean, digits)
    if theirs.sd is not None:
        figure += f" ({theirs.sd:.{digits}f})"
    return _mean_sd(ours, digits), figure, NONE if apart is None else f"{apart:+z.1f}", cut


def _ours(summary: Summary, row: GridRow, action: str, metric: str) -> PooledStatistics:
    return summary[row.id]["metrics"][action][metric]["trimmed"]


def _mean_sd(ours: PooledStatistics, digits: int) -> str:
    if ours["sd"] is None:
        return number(ours["mean"], digits)
    return f"{number(ours['mean'], digits)} ({ours['sd']:.{digits}f})"


def _time_line(entry: TimingRow) -> tuple[str, ...]:
    theirs = paper.compute_time().get((entry.algorithm, entry.hidden, entry.batch_size))
    low, high = entry.low, entry.high
    return (
        label_of(entry.algorithm),
        "-".join(map(str, entry.hidden)),
        str(entry.batch_size),
        str(entry.inner_iterations),
        f"{entry.ms_per_update:.3f}",
        NONE if low is None or high is None else f"{low:.3f} to {high:.3f}",
        number(theirs and theirs.ms_per_update, 2),
        f"{entry.ms_per_iteration:.3f}",
        number(theirs and theirs.ms_per_iteration, 2),
    )


def _notes(run: Run, summary: Summary, actions: Sequence[str]) -> tuple[str, ...]:
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
    return (*notes, *notes_on_the_run(run), *_missing_notes(run, summary, actions))


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
    return [
        *([] if run.steps >= paper.STEPS else [_steps_note(run.steps)]),
        *([f"Fewer than {asked} seeds: {', '.join(fewer)}."] if fewer else []),
        *unfinished_notes(run.manifest, run.rows),
        *run.diverged_notes,
    ]


def _steps_note(steps: int) -> str:
    return f"This run has {steps:,} environment steps per seed, the paper's {paper.STEPS:,}."


def _missing_notes(run: Run, summary: Summary, actions: Sequence[str]) -> list[str]:
    """Name the rows from which values that are not finite had to be left out."""
    counts = {
        row.name: sum(
            summary[row.id]["metrics"][action][metric]["untrimmed"]["dropped"]
            for action in actions
            for metric in _TITLES
        )
        for row in run.rows
    }
    found = [f"{name} {count}" for name, count in counts.items() if count]
    return [f"Values that are not finite, left out: {', '.join(found)}."] if found else []
