"""The tables of a report: ours beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from valuetrack.report import paper
from valuetrack.report.claims import Claim
from valuetrack.report.data import Row, Run
from valuetrack.report.render import NO, NONE, YES, Column, Table
from valuetrack.report.summary import Statistics, Summary

_DIGITS = {"mse": 5, "coverage": 3, "credible_coverage": 3, "width": 3}
_TITLES = {"mse": "MSE", "coverage": "coverage", "width": "width"}
_NAMES = Column("algorithm", words=True)
_LIKELY, _RARE = ("E", "N"), ("W", "S")
_ROUNDS_TO_END = 0.99


def tables(run: Run, summary: Summary) -> list[Table]:
    """Return all tables of a run that can be made from what is finished."""
    made = [
        mse_table(run, summary, "Table 1. Mean squared error", _LIKELY),
        interval_table(run, summary, "Table 2. Coverage and width of 95 % intervals", _LIKELY),
        mse_table(run, summary, "Table 3. Mean squared error, actions W and S", _RARE),
        interval_table(run, summary, "Table 4. Coverage and width, actions W and S", _RARE),
        untrimmed_table(run, summary),
        seeds_table(run),
    ]
    return made if run.timing is None else [*made, time_table(run, run.timing)]


def mse_table(run: Run, summary: Summary, title: str, actions: Sequence[str]) -> Table:
    """Return the table of mean squared errors, the actions side by side."""
    columns = [_NAMES, Column("seeds")]
    for action in actions:
        columns += [Column(name, action) for name in ("ours", "paper", "Δ/se", "cut")]
    lines = tuple(
        (row.name, _used(row), *(
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
            _used(row),
            action,
            *_compared(summary, row, action, "coverage"),
            _number(_ours(summary, row, action, "credible_coverage")["mean"], 3),
            *_compared(summary, row, action, "width"),
            _number(_ours(summary, row, action, "legal_width")["mean"], 3),
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
    metrics = ("mse", "coverage", "width")
    columns = (_NAMES, *(Column(_TITLES[metric], a) for a in _LIKELY for metric in metrics))
    lines = tuple(
        (row.name, *(
            _mean_sd(summary[row.id]["metrics"][action][metric]["untrimmed"], _DIGITS[metric])
            for action in _LIKELY for metric in metrics
        ))
        for row in run.rows
    )  # fmt: skip
    note = "Mean (sd) of every final window of every seed that did not diverge."
    return Table(
        "untrimmed", "Table 5. With nothing cut", columns, lines, (note, *_diverged_notes(run))
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
            _number(row.training_return, 2),
            f"{row.wall_seconds:.0f}",
        )
        for row in run.rows
    )
    notes = (
        "Training return: the episodes' mean over the final windows, exploration included. "
        "Seconds: summed over the seeds, each with its share of the group it ran in.",
        *_diverged_notes(run),
    )
    columns = (_NAMES, *map(Column, titles))
    return Table("seeds", "Table 6. What was run", columns, lines, notes)


def time_table(run: Run, timing: Mapping[str, Any]) -> Table:
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
    labels = {row["algorithm"]: row["label"] for row in run.manifest["rows"]}
    lines = tuple(_time_line(entry, labels) for entry in timing.get("rows", []))
    notes = (
        f"Ours: {describe(timing.get('machine'))}.",
        "The paper's times are from four cores of an AMD Epyc 7662; compare the rows of a column "
        "rather than the columns.",
    )
    return Table("time", "Table 7. Time per update", columns, lines, notes)


def claims_table(run: Run, claims: Sequence[Claim]) -> Table:
    """Return a run's claims with what was measured and whether it bears them out."""
    return verdicts(claims, (*_steps_notes(run), *_seeds_notes(run), *_diverged_notes(run)))


def verdicts(claims: Sequence[Claim], notes: tuple[str, ...]) -> Table:
    """Return any claims as a table."""
    marks = {True: YES, False: NO, None: NONE}
    columns = (Column("", words=True), Column("claim", words=True), Column("measured", words=True))
    lines = tuple((marks[claim.holds], claim.statement, claim.measured) for claim in claims)
    return Table("claims", "What the run shows", columns, lines, notes)


def standard_errors_apart(ours: Statistics, theirs: paper.Figure) -> float | None:
    """Return (ours - paper's) in standard errors, both sides' joined where both are known.

    Ours has seeds as its unit; the paper's is its sd over the root of its 100 runs. ``None`` with
    fewer than two seeds.
    """
    if ours["mean"] is None or ours["se"] is None:
        return None
    error = math.hypot(ours["se"], (theirs.sd or 0.0) / math.sqrt(paper.RUNS))
    return (ours["mean"] - theirs.mean) / error if error > 0 else None


def describe(content: object) -> str:
    """Return a value of the manifest as text, a mapping as ``key: value`` pairs."""
    if isinstance(content, Mapping):
        return ", ".join(f"{key}: {describe(value)}" for key, value in content.items())
    if isinstance(content, (list, tuple)):
        return " ".join(map(describe, content))
    return NONE if content is None else str(content)


def _compared(summary: Summary, row: Row, action: str, metric: str) -> tuple[str, ...]:
    """Return the cells ours, paper, difference, cut."""
    ours, digits = _ours(summary, row, action, metric), _DIGITS[metric]
    source = paper.indoor_escape() if action in _LIKELY else paper.all_actions()
    theirs = source.get(row.id, {}).get(action, {}).get(metric)
    cut = f"{ours['dropped']}/{ours['kept'] + ours['dropped']}"
    if theirs is None:
        return _mean_sd(ours, digits), NONE, NONE, cut
    apart = standard_errors_apart(ours, theirs)
    figure = _number(theirs.mean, digits)
    if theirs.sd is not None:
        figure += f" ({theirs.sd:.{digits}f})"
    return _mean_sd(ours, digits), figure, NONE if apart is None else f"{apart:+z.1f}", cut


def _ours(summary: Summary, row: Row, action: str, metric: str) -> Statistics:
    return summary[row.id]["metrics"][action][metric]["trimmed"]


def _mean_sd(ours: Statistics, digits: int) -> str:
    if ours["sd"] is None:
        return _number(ours["mean"], digits)
    return f"{_number(ours['mean'], digits)} ({ours['sd']:.{digits}f})"


def _number(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def _used(row: Row) -> str:
    return str(len(row.seeds) - len(row.diverged))


def _time_line(entry: Mapping[str, Any], labels: Mapping[str, str]) -> tuple[str, ...]:
    hidden = tuple(entry["hidden"])
    theirs = paper.compute_time().get((entry["algorithm"], hidden, entry["batch_size"]))
    low, high = entry.get("low"), entry.get("high")
    return (
        labels.get(entry["algorithm"], entry["algorithm"]),
        "-".join(map(str, hidden)),
        str(entry["batch_size"]),
        str(entry["inner_iterations"]),
        f"{entry['ms_per_update']:.3f}",
        NONE if low is None or high is None else f"{low:.3f} to {high:.3f}",
        NONE if theirs is None else f"{theirs.ms_per_update:.2f}",
        f"{entry['ms_per_iteration']:.3f}",
        NONE if theirs is None else f"{theirs.ms_per_iteration:.2f}",
    )


def _notes(run: Run, summary: Summary, actions: Sequence[str]) -> tuple[str, ...]:
    """Return the notes that tables 1 to 4 share."""
    likely = tuple(actions) == _LIKELY
    whose = "paper's: the sd of its table over √100" if likely else "authors' are not known"
    notes = [
        "Mean (sd) over the final windows of all seeds. As in the paper, values beyond 1.5 "
        "interquartile ranges from the quartiles are cut: how many of how many stands under cut.",
        f"Δ/se: ours minus the paper's, in standard errors (ours: seeds as the unit; the {whose}). "
        "It takes two seeds to tell.",
    ]
    if not likely:
        notes.append("The paper has no table for W and S: its column is the authors' public list.")
    elif run.row("qrdqn"):
        notes.append(_qrdqn_note(actions))
    notes += _steps_notes(run) + _seeds_notes(run) + _diverged_notes(run)
    return tuple(notes + _missing_notes(run, summary, actions))


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


def _steps_notes(run: Run) -> list[str]:
    if run.steps >= _ROUNDS_TO_END * paper.STEPS:
        return []
    return [f"This run has {run.steps:,} environment steps, the paper's {paper.STEPS:,}."]


def _seeds_notes(run: Run) -> list[str]:
    """Name the rows with fewer seeds than asked for, and those not there at all."""
    asked = max(
        run.manifest.get("seeds", {}).get("count", 0), *(len(row.seeds) for row in run.rows)
    )
    fewer = [f"{row.name} {len(row.seeds)}" for row in run.rows if len(row.seeds) < asked]
    there = {row.id for row in run.rows}
    absent = [row["id"] for row in run.manifest["rows"] if row["id"] not in there]
    notes = [f"Fewer than {asked} seeds: {', '.join(fewer)}."] if fewer else []
    return notes + ([f"Not finished: {', '.join(absent)}."] if absent else [])


def _diverged_notes(run: Run) -> list[str]:
    return [
        f"{row.name}: diverged and left out: "
        + ", ".join(f"seed {seed} (update {row.diverged[seed]})" for seed in sorted(row.diverged))
        + "."
        for row in run.rows
        if row.diverged
    ]


def _missing_notes(run: Run, summary: Summary, actions: Sequence[str]) -> list[str]:
    """Name the rows in which values that are no numbers had to be left out."""
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
