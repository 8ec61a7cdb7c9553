"""``valuetrack reproduce``: run an experiment of the paper and report it beside the paper."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from valuetrack.experiments import provenance
from valuetrack.experiments import run as runs
from valuetrack.experiments.engines.local import call_in_process
from valuetrack.experiments.spec import Experiment, load
from valuetrack.experiments.timing import CONFIGURATIONS, time_updates, timed_rows
from valuetrack.interrupts import handled_by
from valuetrack.io.run_folder import MANIFEST, RunFolder
from valuetrack.report import write_report

DEFAULT_SEEDS = 100
SECONDS_BETWEEN_LINES = 60.0


def reproduce(
    experiment: str,
    *,
    rows: str | None,
    env: str | None,
    seeds: int | None,
    first_seed: int,
    steps: int | None,
    preset: str,
    quick: bool,
    out: Path | None,
    resume: bool,
    timing: bool,
    console: Console,
) -> bool:
    """Run, or go on with, an experiment; return False if it was stopped before its end."""
    request = _request(experiment, rows, env, seeds, first_seed, steps, preset, quick=quick)
    path = out or Path("runs") / (f"{experiment}-quick" if quick else experiment)
    folder = runs.open_or_create(path, request, resume=resume)
    started = time.monotonic()
    with _stoppable() as stop, _progress(console) as progress:
        finished = _run(folder, request, stop, progress, console)
    with folder.changing():
        manifest = folder.manifest()
        manifest["wall_seconds"] = manifest.get("wall_seconds", 0.0) + time.monotonic() - started
        folder.write_json(MANIFEST, manifest)
    if not finished:
        _say(console, f"Stopped. The same command goes on from here; the run is in {path}.")
        return False
    if timing and not quick and request.spec.measure["kind"] == "values":
        _measure_times(folder, request.spec, console)
    page = write_report(folder, console)
    _say(console, f"Report: {page}")
    return True


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _rows_in(spec: Experiment, env: str) -> tuple[str, ...]:
    """Return the ids of the rows in one environment."""
    chosen = tuple(row.id for row in spec.rows if row.env == env)
    if not chosen:
        known = ", ".join(dict.fromkeys(row.env for row in spec.rows))
        raise ValueError(f"{spec.name} has no task {env!r}; there are {known}.")
    return chosen


def _request(
    experiment: str,
    rows: str | None,
    env: str | None,
    seeds: int | None,
    first_seed: int,
    steps: int | None,
    preset: str,
    *,
    quick: bool,
) -> runs.Request:
    """Turn the options into what is to be run; what is given wins over ``--quick``."""
    if rows is not None and env is not None:
        raise ValueError("--env and --rows both choose rows; give one of them.")
    spec = load(experiment, preset=preset, steps=steps)
    first_look = spec.quick if quick else None
    if first_look is not None:
        spec = load(
            experiment,
            preset=preset,
            steps=steps or first_look.steps,
            seeds_per_unit=first_look.seeds_per_unit,
        )
    chosen = tuple(row.id for row in spec.rows) if first_look is None else first_look.rows
    if rows is not None:
        chosen = tuple(part.strip() for part in rows.split(","))
    elif env is not None:
        chosen = _rows_in(spec, env)
    for row in chosen:
        spec.row(row)  # which refuses an unknown one
    default_seeds = DEFAULT_SEEDS if first_look is None else first_look.seeds
    return runs.Request(
        spec, preset, chosen, first_seed, seeds or default_seeds, seeds_by_default=seeds is None
    )


def _run(
    folder: RunFolder,
    request: runs.Request,
    stop: threading.Event,
    progress: Progress,
    console: Console,
) -> bool:
    """Run the requested rows of a folder with a bar for each row."""
    manifest = folder.manifest()
    spec = runs.from_manifest(manifest)
    tasks: dict[str, TaskID] = {}
    for unit in runs.planned_units(manifest):
        if unit.row in request.rows and not folder.is_finished(unit.row, unit.name):
            steps = spec.row(unit.row).steps * unit.seeds
            if unit.row not in tasks:
                tasks[unit.row] = progress.add_task(unit.row, total=0, seeds=0)
            task = progress.tasks[tasks[unit.row]]
            progress.update(
                task.id,
                total=(task.total or 0) + steps,
                seeds=task.fields["seeds"] + unit.seeds,
            )
    overall = progress.add_task(
        "all", total=sum(task.total or 0 for task in progress.tasks), seeds=""
    )

    log = _log_lines(console)

    def advance(row: str, steps: int) -> None:
        progress.advance(tasks[row], steps)
        progress.advance(overall, steps)
        log(progress.tasks[overall])

    return runs.run(folder, rows=request.rows, advance=advance, stop=stop)


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


def _log_lines(console: Console) -> Callable[[Task], None]:
    """Return what says, where no bar can be drawn, once a minute how far the run is."""
    last = time.monotonic()

    def log(task: Task) -> None:
        nonlocal last
        if console.is_terminal or time.monotonic() - last < SECONDS_BETWEEN_LINES:
            return
        last = time.monotonic()
        speed = f", {task.speed:,.0f} steps/s" if task.speed else ""
        left = (
            ""
            if task.time_remaining is None
            else f", {timedelta(seconds=task.time_remaining)} left"
        )
        console.print(f"{task.percentage:.0f} % of {task.total:,.0f} steps{speed}{left}")

    return log


@contextmanager
def _stoppable() -> Iterator[threading.Event]:
    """Let Ctrl-C and SIGTERM ask for a stop at the next safe place; a second Ctrl-C is at once."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    with handled_by(ask):
        yield stop


def _measure_times(folder: RunFolder, spec: Experiment, console: Console) -> None:
    """Add the table of computation costs to a run that does not have it yet."""
    if (folder.path / "timing.json").is_file():
        return
    total = len(CONFIGURATIONS) * len(timed_rows(spec))
    columns = (TextColumn("time per update"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=total)
        # On one core, with one thread: two threads only get into each other's way at these sizes.
        rows = call_in_process(time_updates, spec, advance=lambda: progress.advance(task))
    folder.write_json(
        "timing.json",
        {
            "machine": {**provenance.machine(), "workers": 1},
            "commit": provenance.commit(),
            "rows": rows,
        },
    )
