"""The tables of a search: the best settings on fresh seeds, and all trials."""

from __future__ import annotations

from functools import partial

from valuetrack.report.defaults.tables import mean_se, notes_on_seeds
from valuetrack.report.honest_values.tables import short
from valuetrack.report.statistics import LEVEL, RESAMPLES, Claim
from valuetrack.report.sweep.data import FINAL, SweepRow, improvement, train_command
from valuetrack.report.sweep.tables import compared, iqm, shown
from valuetrack.report.table import NONE, Best, Cells, Column, Table, make_table
from valuetrack.report.tuning.data import DEFAULTS, Trial, TuneRun

_ENDS = {"complete": "", "pruned": "stopped early"}


def tables(run: TuneRun) -> list[Table]:
    """Return the tables of all that has finished."""
    return [*fresh_table(run), trials_table(run)]


def fresh_table(run: TuneRun) -> list[Table]:
    """Return what the best settings and the defaults come to on seeds that no trial had."""
    rows = run.fresh
    if not rows:
        return []
    cells: Cells[SweepRow] = {
        Column("settings", words=True): lambda row: row.label,
        Column("seeds", words=True): lambda row: f"{min(row.seeds)} to {max(row.seeds)}",
        Column("diverged"): lambda row: str(len(row.diverged)),
        Column(f"IQM [{100 * LEVEL:g} %]"): iqm,
        Column("mean ± se"): lambda row: mean_se(row.numbers[FINAL]),
        Column("at the start"): lambda row: mean_se(row.numbers["value_error"]),
        Column("best is better"): lambda row: _better(rows[0], row),
    }
    notes = [
        "Greedy episodes at the end of the training, with seeds that the search has not seen. IQM: "
        f"with its {100 * LEVEL:g} % percentile bootstrap interval ({RESAMPLES:,} resamples). At "
        "the start: the value with which greedy episodes begin minus their discounted return. "
        "Better: the probability of improvement of the best, with its interval.",
        f"To train it: {train_command(rows[0].entry)}",
        *notes_on_seeds([(row.label, row) for row in rows]),
    ]
    return [make_table("fresh", "Table 1. The best settings on fresh seeds", cells, rows, notes)]


def trials_table(run: TuneRun) -> Table:
    """Return all finished trials, the best first."""
    cells: Cells[Trial] = {
        Column("trial"): lambda trial: str(trial.number),
        Column(run.search.objective): lambda trial: _value(run, trial),
        Column("points"): lambda trial: f"{len(trial.points)}/{run.search.points}",
        **{Column(name): partial(_setting, name) for name in run.search.space},
        Column("note", words=True): _note,
    }
    penalty = f", minus {run.search.penalty:g} times the distance between the value at the start"
    honest = f"{penalty} and the discounted return" if run.search.objective == "honest" else ""
    notes = [
        f"The mean final return over {run.search.seeds} seeds{honest}. The best of many trials "
        "flatters: it was chosen by these numbers.",
        *_failures(run),
    ]
    title = f"Table {2 if run.fresh else 1}. All trials"
    return make_table("trials", title, cells, run.ranked, notes)


def claims(run: TuneRun) -> list[Claim]:
    """Claim that the search was worth it."""
    rows = {row.id: row for row in run.fresh}
    statement = "On fresh seeds, the best settings are better than the defaults"
    best = next((row for row in run.fresh if row.id != DEFAULTS), None)
    if best is None or DEFAULTS not in rows:
        return [Claim(statement)]
    return [compared(statement, best, rows[DEFAULTS])]


def notes_on_the_run(run: TuneRun) -> list[str]:
    """Say what the claims rest on, and what is missing from the run."""
    early = sum(trial.state == "pruned" for trial in run.trials)
    matter = ", ".join(f"{name} {share:.0%}" for name, share in run.importances.items())
    return [
        f"{len(run.finished)} trials, {early} of them stopped early.",
        *([f"What matters among the finished trials (PED-ANOVA): {matter}."] if matter else []),
        *_failures(run),
    ]


def _better(best: SweepRow, row: SweepRow) -> str:
    return NONE if row is best else shown(improvement(best, row))


def _value(run: TuneRun, trial: Trial) -> str:
    if trial.value is None:
        return NONE
    return Best(short(trial.value)) if trial is run.best else short(trial.value)


def _setting(name: str, trial: Trial) -> str:
    value = trial.settings.get(name, NONE)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _note(trial: Trial) -> str:
    notes = [_ENDS.get(trial.state, trial.state)]
    notes += ["a seed diverged"] * bool(trial.diverged)
    notes += [f"went on with trial {trial.retries}"] * (trial.retries is not None)
    return ", ".join(filter(None, notes))


def _failures(run: TuneRun) -> list[str]:
    failed = [f"trial {t.number} ({t.error})" for t in run.trials if t.error is not None]
    return [f"Failed, and left out: {'; '.join(failed)}."] if failed else []
