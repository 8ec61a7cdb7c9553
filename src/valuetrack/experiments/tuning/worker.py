"""A process that runs trials until there are enough, and those who start some and follow them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from ctypes import c_byte
from multiprocessing.process import BaseProcess
from queue import Empty
from typing import Any, NamedTuple, Self

import numpy as np

from valuetrack.experiments.engines.base import WorkerError, explained
from valuetrack.experiments.engines.local import (
    CONTEXT,
    Flag,
    Messages,
    read_message,
    start_process,
)
from valuetrack.experiments.runner import UnitRun
from valuetrack.experiments.spec import from_manifest
from valuetrack.experiments.tuning.study import DIVERGED, ERROR, Claimed, TuneStudy
from valuetrack.experiments.units import Unit
from valuetrack.io.errors import StoreError
from valuetrack.io.run_folder import CHECKPOINT, RunFolder, StopFlag
from valuetrack.types import Json

PATIENCE_SECONDS = 0.5


class News(NamedTuple):
    """What a worker says: a trial has gone on by some steps of all its seeds, or has ended.

    ``state`` is ``None`` while it runs, and ``"STOPPED"`` if it is to be resumed.
    """

    number: int
    steps: int = 0
    state: str | None = None
    value: float | None = None
    settings: Json | None = None


class TrialRun:
    """One trial from its checkpoint, if there is one, to its value."""

    def __init__(self, study: TuneStudy, claimed: Claimed, stop: StopFlag) -> None:
        self.study, self.trial, self._stop = study, claimed.trial, stop
        self.folder, self.search = study.folder, study.search
        self.unit = Unit(claimed.row, self.search.first_seed, self.search.seeds)
        self.reported = 0
        self.ends: str | None = None

    def is_set(self) -> bool:
        """Return whether the training is to end: all are to stop, or this one is not worth it."""
        return self.ends is not None or self._stop.is_set()

    def run(self, advance: Callable[[int], None]) -> tuple[str, float | None]:
        """Train and return the trial's state and value; ``"STOPPED"`` if it was not finished."""
        place = (self.unit.row, self.unit.name)
        if not self.folder.is_finished(*place):
            spec = from_manifest(self.folder.manifest())
            made = UnitRun(self.unit, spec, self.folder, told=self._look)
            if not made.run(self, advance) and self.ends is None:
                return "STOPPED", None
            if not self.folder.is_finished(*place):
                (self.folder.unit_path(*place) / CHECKPOINT).unlink(missing_ok=True)
                return "PRUNED", None
        self._report()  # all points, of a unit that another process has finished
        seeds = self.folder.unit_table(*place, "seeds")
        value = self.search.score(
            seeds["final_return"], seeds["start_value"], seeds["discounted_return"]
        )
        if (seeds["diverged_at"] >= 0).any() or not np.isfinite(value):
            self.trial.set_user_attr(DIVERGED, True)
            return "PRUNED", None
        return "COMPLETE", value

    def _look(self, record: Json) -> None:
        """Report what is new, and let the pruner decide."""
        self._report()
        if record.get("diverged"):
            self.trial.set_user_attr(DIVERGED, True)
            self.ends = "diverged"
        elif self.trial.should_prune():
            self.ends = "pruned"

    def _report(self) -> None:
        """Report the points that are not reported yet, those before a resume among them."""
        records = self.folder.read_progress(self.unit.row, self.unit.name)
        for point, told in enumerate(records[self.reported :], self.reported + 1):
            parts = (told[name] for name in ("evaluation", "start_value", "discounted_return"))
            value = self.search.score(*parts)
            if np.isfinite(value):
                self.trial.report(value, point)
            self.reported = point


def run_trials(folder: RunFolder, wanted: int, stop: StopFlag, say: Callable[[News], None]) -> None:
    """Run trials until as many as wanted are finished, or others run the last of them."""
    study = TuneStudy(folder)
    while not stop.is_set() and (claimed := study.claim(wanted)) is not None:
        number = claimed.trial.number

        def advance(steps: int, number: int = number) -> None:
            say(News(number, steps))

        with claimed.held:
            try:
                state, value = TrialRun(study, claimed, stop).run(advance)
            except StoreError:
                raise  # of the folder, not of the trial
            except Exception as error:  # of these settings, or of the environment
                claimed.trial.set_user_attr(ERROR, explained(error))
                state, value = "FAIL", None
            if state != "STOPPED":
                study.tell(claimed.trial, state, value)
        say(News(number, 0, state, value, claimed.settings))


class Workers:
    """Processes that run trials of one study side by side, each on a core of its own."""

    def __init__(
        self, folder: RunFolder, wanted: int, count: int, imports: tuple[str, ...] = ()
    ) -> None:
        self._messages: Messages = CONTEXT.Queue()
        self._halt = CONTEXT.Value("b", 0, lock=False)
        self._job = (str(folder.path), wanted, imports, self._messages, self._halt)
        self._count, self._left = count, count
        self._processes: list[BaseProcess] = []

    def __enter__(self) -> Self:
        for _ in range(self._count):
            self._processes.append(start_process(None, self._messages, _work, self._job))
        return self

    def __exit__(self, kind: object, error: object, traceback: object, /) -> None:
        """Let the workers save and end, and wait for them; a second Ctrl-C kills them."""
        if isinstance(error, KeyboardInterrupt):
            for process in self._processes:
                process.kill()
        self.stop()
        for process in self._processes:
            process.join()

    def stop(self) -> None:
        """Ask all workers to save their trial and end."""
        self._halt.value = 1

    def is_busy(self) -> bool:
        """Return whether a worker still runs."""
        return self._left > 0

    def follow(self) -> list[News]:
        """Return what has happened; raise what a worker raised."""
        alive = any(process.is_alive() for process in self._processes)
        news: list[News] = []
        timeout = PATIENCE_SECONDS if alive else 0.01
        try:
            while True:
                kind, content = read_message(self._messages, timeout)
                if kind == "done":
                    self._left -= 1
                else:
                    news.append(content)
                timeout = 0.0
        except Empty:
            pass
        if not alive and not news and self._left:
            codes = [process.exitcode for process in self._processes]
            raise WorkerError(f"A worker ended with the exit codes {codes}; run it again.")
        return news


def _work(
    path: str, wanted: int, imports: tuple[str, ...], messages: Messages, halt: c_byte
) -> None:
    """Be a worker."""
    for module in imports:
        importlib.import_module(module)

    def say(news: News) -> None:
        messages.put(("news", news))

    run_trials(RunFolder.open(path), wanted, Flag(halt), say)
    done: Any = ("done", None)
    messages.put(done)
