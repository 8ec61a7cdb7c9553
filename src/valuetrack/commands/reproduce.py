"""``valuetrack reproduce`` and ``report``: experiments of the paper, reported beside the paper."""

from __future__ import annotations

import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from valuetrack.commands import INTERRUPTED
from valuetrack.commands.options import Report, Reproduce
from valuetrack.commands.session import Stop, engine_choice, say, stoppable
from valuetrack.commands.watch import watched
from valuetrack.experiments import provenance
from valuetrack.experiments import run as runs
from valuetrack.experiments.engines import EngineChoice
from valuetrack.experiments.engines.local import call_in_process
from valuetrack.experiments.spec import Experiment, from_manifest, load
from valuetrack.experiments.timing import CONFIGURATIONS, time_updates, timed_rows
from valuetrack.io.run_folder import MANIFEST, RunFolder
from valuetrack.report import write_report

DEFAULT_SEEDS = 100
SECONDS_BETWEEN_LINES = 60.0
TIMING = "timing.json"


def reproduce(given: Reproduce, console: Console) -> int:
    """Run, or go on with, an experiment, and report it, unless it was stopped before its end."""
    request, choice = _request(given), engine_choice(given)
    name = f"{given.experiment}-quick" if given.quick else given.experiment
    path = given.out or Path("runs") / name
    folder = runs.open_or_create(path, request, resume=given.resume)
    with watched(path, given.port, console, wanted=given.watch) as page:
        code = _run_and_report(folder, request, given, choice, console)
        if code == 0:
            page.stay()
    return code


def _run_and_report(
    folder: RunFolder,
    request: runs.Request,
    given: Reproduce,
    choice: EngineChoice,
    console: Console,
) -> int:
    if not run_and_time(folder, request.rows, choice, console):
        return INTERRUPTED
    if given.timing and not given.quick and request.spec.measure["kind"] == "values":
        _measure_times(folder, request.spec, console)
    say(console, f"Report: {write_report(folder, console)}")
    return 0


def run_and_time(
    folder: RunFolder, rows: tuple[str, ...], choice: EngineChoice, console: Console
) -> bool:
    """Run some rows, and add the time to that of the run; say so if it was stopped."""
    started = time.monotonic()
    with stoppable() as stop:
        finished = run_units(folder, rows, stop, console, choice)
    with folder.changing():
        manifest = folder.manifest()
        manifest["wall_seconds"] = manifest.get("wall_seconds", 0.0) + time.monotonic() - started
        folder.write_json(MANIFEST, manifest)
    if not finished:
        say(console, f"Stopped. The same command goes on from here; the run is in {folder.path}.")
    return finished


def report(given: Report, console: Console) -> None:
    """Make the report of a run again."""
    say(console, f"Report: {write_report(RunFolder.open(given.run), console)}")


def _request(given: Reproduce) -> runs.Request:
    """Turn the options into what is to be run; what is given wins over ``--quick``."""
    if given.rows is not None and given.env is not None:
        raise ValueError("--env and --rows both choose rows; give one of them.")
    seeds = DEFAULT_SEEDS
    spec = load(given.experiment, preset=given.preset, steps=given.steps)
    chosen = tuple(row.id for row in spec.rows)
    if given.quick and spec.quick is not None:
        first_look, chosen, seeds = spec.quick, spec.quick.rows, spec.quick.seeds
        spec = load(
            given.experiment,
            preset=given.preset,
            steps=given.steps or first_look.steps,
            seeds_per_unit=first_look.seeds_per_unit,
        )
    if given.rows is not None:
        chosen = tuple(part.strip() for part in given.rows.split(","))
    elif given.env is not None:
        chosen = _rows_in(spec, given.env)
    for row in chosen:
        spec.row(row)  # which refuses an unknown one
    is_default = given.seeds is None
    return runs.Request(spec, given.preset, chosen, given.seed, given.seeds or seeds, is_default)


def _rows_in(spec: Experiment, env: str) -> tuple[str, ...]:
    """Return the ids of the rows in one environment."""
    chosen = tuple(row.id for row in spec.rows if row.env == env)
    if not chosen:
        known = ", ".join(dict.fromkeys(row.env for row in spec.rows))
        raise ValueError(f"{spec.name} has no task {env!r}; there are {known}.")
    return chosen


def run_units(
    folder: RunFolder, rows: tuple[str, ...], stop: Stop, console: Console, choice: EngineChoice
) -> bool:
    """Run some rows of a folder, with a bar for each and one for all."""
    if not runs.pending_units(folder, rows):
        return True
    spec = from_manifest(folder.manifest())
    seeds: Counter[str] = Counter()
    for unit in runs.pending_units(folder, rows):
        seeds[unit.row] += unit.seeds
    steps = Counter({row: spec.row(row).steps * count for row, count in seeds.items()})
    log = _Log(console)
    with _progress(console) as progress:
        tasks = {
            row: progress.add_task(row, total=steps[row], seeds=count)
            for row, count in seeds.items()
        }
        overall = progress.add_task("all", total=steps.total(), seeds="")

        def advance(row: str, taken: int) -> None:
            progress.advance(tasks[row], taken)
            progress.advance(overall, taken)
            log(progress.tasks[overall])

        engine = choice.make(folder)
        return runs.run(folder, rows=rows, advance=advance, stop=stop, engine=engine)


class _StepsPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} steps/s" if speed else "", style="progress.data.speed")


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<12}"),
        TextColumn("{task.fields[seeds]:>3} seeds"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        _StepsPerSecond(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        refresh_per_second=2,
    )


class _Log:
    """Where no bar can be drawn, says once a minute how far the run is."""

    def __init__(self, console: Console) -> None:
        self.console, self.last = console, time.monotonic()

    def __call__(self, task: Task) -> None:
        now, left = time.monotonic(), task.time_remaining
        if self.console.is_terminal or now - self.last < SECONDS_BETWEEN_LINES:
            return
        self.last = now
        speed = f", {task.speed:,.0f} steps/s" if task.speed else ""
        end = "" if left is None else f", {timedelta(seconds=left)} left"
        self.console.print(f"{task.percentage:.0f} % of {task.total:,.0f} steps{speed}{end}")


def _measure_times(folder: RunFolder, spec: Experiment, console: Console) -> None:
    """Add the table of computation costs to a run that does not have it yet."""
    if (folder.path / TIMING).is_file():
        return
    total = len(CONFIGURATIONS) * len(timed_rows(spec))
    columns = (TextColumn("time per update"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=total)
        # On one core, with one thread: two threads only get into each other's way at these sizes.
        rows = call_in_process(time_updates, spec, advance=lambda: progress.advance(task))
    machine = {**provenance.machine(), "workers": 1}
    folder.write_json(TIMING, {"machine": machine, "commit": provenance.commit(), "rows": rows})
