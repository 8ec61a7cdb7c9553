"""``valuetrack sweep``: a user's own sweep through the engines, with a report."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from valuetrack.commands import INTERRUPTED
from valuetrack.commands.arguments import import_modules
from valuetrack.commands.reproduce import run_and_time
from valuetrack.commands.search_options import Sweep as Given
from valuetrack.commands.session import engine_choice, say
from valuetrack.commands.watch import watched
from valuetrack.experiments import run as runs
from valuetrack.experiments.sweep import Sweep, check_environments, load
from valuetrack.io.atomic import write_atomically
from valuetrack.io.run_folder import RunFolder
from valuetrack.report import write_report

SOURCE = "sweep.toml"
"""The file's copy in the run's folder."""


def sweep(given: Given, console: Console) -> int:
    """Run, or go on with, a sweep, and report it, unless it was stopped before its end."""
    import_modules(given.import_)
    choice, wanted = engine_choice(given), _wanted(given)
    say(console, plan(wanted))
    if given.dry_run:
        _list_rows(wanted, console)
        return 0
    path = given.out or Path("runs") / f"sweep-{wanted.name}"
    folder = runs.open_or_create(path, _request(wanted), resume=given.resume)
    _keep_file(folder, given.file)
    pending = runs.pending_units(folder, wanted.rows)
    planned = [unit for unit in runs.planned_units(folder.manifest()) if unit.row in wanted.rows]
    if len(pending) < len(planned):
        say(console, f"{len(planned) - len(pending)} of {len(planned)} units are finished already.")
    with watched(path, given.port, console, wanted=given.watch) as page:
        if not run_and_time(folder, wanted.rows, choice, console):
            return INTERRUPTED
        say(console, f"Report: {write_report(folder, console)}")
        page.stay()
    return 0


def plan(wanted: Sweep) -> str:
    """Say how large a sweep is.

    Examples
    --------
    ``8 rows x 5 seeds = 8 units, 40 trainings, 2,000,000 environment steps.``
    """
    rows, seeds = wanted.spec.rows, wanted.seeds
    units = len(runs.split_seeds(0, seeds, wanted.spec.seeds_per_unit)) * len(rows)
    steps = sum(row.steps for row in rows) * seeds
    return (
        f"{_count(len(rows), 'row')} x {_count(seeds, 'seed')} = {_count(units, 'unit')}, "
        f"{_count(len(rows) * seeds, 'training')}, {_count(steps, 'environment step')}."
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _wanted(given: Given) -> Sweep:
    """Read the file, let options replace what it says, and refuse what cannot run."""
    found = load(given.file, steps=given.steps)
    if given.seeds is not None:
        found = found._replace(seeds=given.seeds)
    if given.seed is not None:
        found = found._replace(first_seed=given.seed)
    check_environments(found)
    return found


def _request(wanted: Sweep) -> runs.Request:
    seeds = wanted.first_seed, wanted.seeds
    return runs.Request(wanted.spec, wanted.name, wanted.rows, *seeds)


def _keep_file(folder: RunFolder, file: Path) -> None:
    """Put the file into the run's folder, unless it is there."""
    copy = folder.path / SOURCE
    content = file.read_bytes()
    if not copy.is_file() or copy.read_bytes() != content:
        write_atomically(copy, lambda target: target.write(content))


def _list_rows(wanted: Sweep, console: Console) -> None:
    table = Table("row", "environment", "settings", Column("steps", justify="right"))
    for row in wanted.spec.rows:
        table.add_row(row.id, escape(row.env), escape(row.label), f"{row.steps:,}")
    console.print(table)
