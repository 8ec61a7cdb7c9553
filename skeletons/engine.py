"""An engine to copy: units in any ``concurrent.futures`` executor.

Executors exist for processes, MPI, Dask, Ray and most batch systems. Units share nothing but the
run's folder, which every machine must see.

1. Copy this to ``src/valuetrack/experiments/engines/<name>.py``.
2. Hand it to ``experiments.run.run(folder, engine=...)``.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from pathlib import Path
from typing import Self

from valuetrack.experiments import spec as specs
from valuetrack.experiments.engines.base import Engine, Event, WorkerError
from valuetrack.experiments.runner import Unit, run_unit
from valuetrack.io.run_folder import RunFolder

STOP = ".stop"
"""While this file exists in the run's folder, units save their state and end."""


class ExecutorEngine(Engine):
    """Runs units in an executor."""

    def __init__(self, folder: RunFolder, executor: Executor) -> None:
        self._path, self._executor = folder.path, executor
        self._running: dict[Future[int], Unit] = {}

    def __enter__(self) -> Self:
        """Forget a stop of an earlier run."""
        (self._path / STOP).unlink(missing_ok=True)
        return self

    def __exit__(self, kind: object, error: object, traceback: object, /) -> None:
        """Ask units to save and end, and wait until they have."""
        if self._running:
            self.stop()
            wait(self._running)
        (self._path / STOP).unlink(missing_ok=True)

    def submit(self, unit: Unit) -> None:
        """Add a unit."""
        self._running[self._executor.submit(run_here, str(self._path), unit)] = unit

    def follow(self, seconds: float) -> Iterable[Event]:
        """Return which units have ended, waiting up to this long for one to do so."""
        done, _ = wait(self._running, timeout=seconds, return_when=FIRST_COMPLETED)
        events = []
        for future in done:
            unit = self._running.pop(future)
            if failure := future.exception():
                raise WorkerError(f"{unit.row}, {unit.name}: {failure}") from failure
            events.append(Event(unit.row, future.result()))
        return events

    def is_busy(self) -> bool:
        """Return whether units run or wait."""
        return bool(self._running)

    def stop(self) -> None:
        """Ask all units to save their state and end."""
        (self._path / STOP).touch()


class StopFile:
    """A file that says stop, on any machine that sees the folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_set(self) -> bool:
        """Return whether to stop at the next safe place."""
        return self.path.exists()


def run_here(path: str, unit: Unit) -> int:
    """Run a unit in the process that this is called in; return its environment steps."""
    folder, steps = RunFolder.open(path), 0

    def advance(taken: int) -> None:
        nonlocal steps
        steps += taken

    spec = specs.from_manifest(folder.manifest())
    run_unit(unit, spec, folder, advance, StopFile(folder.path / STOP))
    return steps
