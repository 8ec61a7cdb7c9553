"""A search read from its folder: what was searched, its trials, and rows on fresh seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from valuetrack.io.errors import StoreError
from valuetrack.io.manifest import Line, Manifest
from valuetrack.io.run_folder import RunFolder
from valuetrack.report.sweep import data as sweeps
from valuetrack.report.sweep.data import SweepRow, SweepTask
from valuetrack.types import Json

ABOUT, TRIALS = "tune.json", "trials.json"
FRESH, DEFAULTS = "fresh-", "fresh-defaults"


class _Read(BaseModel):
    """What is read from a file; it may say more."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class About(_Read):
    """What was searched."""

    algorithm: Line
    env: Line
    env_options: Json
    options: Json
    steps: int
    first_seed: int
    seeds: int
    search_seed: int
    objective: Line
    penalty: float
    pruner: Line
    points: int
    space: dict[Line, Json]


class Trial(_Read):
    """One trial: its settings, the objective at its points, and how it ended."""

    number: int
    state: Literal["complete", "pruned", "fail", "running", "waiting"]
    value: float | None
    settings: dict[Line, object]
    points: dict[int, float]
    seconds: float | None
    row: Line | None
    retries: int | None
    error: Line | None
    diverged: bool | None


class _Trials(_Read):
    trials: list[Trial]
    importances: dict[Line, float]


@dataclass(frozen=True)
class TuneRun:
    """A search with its trials in their order, and what the best came to on fresh seeds."""

    manifest: Manifest
    search: About
    trials: tuple[Trial, ...]
    importances: dict[str, float]
    tasks: tuple[SweepTask, ...]

    @property
    def finished(self) -> list[Trial]:
        """The trials that came to their end, or were stopped early."""
        return [trial for trial in self.trials if trial.state in {"complete", "pruned"}]

    @property
    def ranked(self) -> list[Trial]:
        """The finished trials, the best first; those without a value by how far they came."""

        def rank(trial: Trial) -> tuple[float, int]:
            return -(-math.inf if trial.value is None else trial.value), -len(trial.points)

        return sorted(self.finished, key=rank)

    @property
    def best(self) -> Trial | None:
        """The best trial, if one came to its end."""
        return next((trial for trial in self.ranked if trial.value is not None), None)

    @property
    def fresh(self) -> list[SweepRow]:
        """The rows on fresh seeds: the best settings of now, then the defaults."""
        rows = {row.id: row for task in self.tasks for row in task.rows}
        best = self.best
        wanted = [DEFAULTS]
        if best is not None and best.row is not None:
            wanted.insert(0, f"{FRESH}{best.row.removeprefix('trial-')}")
        return [rows[row] for row in wanted if row in rows]


def load(folder: RunFolder, manifest: Manifest) -> TuneRun:
    """Read what has finished of a search.

    Raises
    ------
    StoreError
        If no trial has finished, or a file is damaged.
    """
    if not (folder.path / TRIALS).is_file():
        raise StoreError(
            f"{folder.path} has nothing to report yet: none of its trials has finished. Continue "
            "the search, then ask again."
        )
    try:
        about = About.model_validate(folder.read_json(ABOUT))
        read = _Trials.model_validate(folder.read_json(TRIALS))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise StoreError(f"{folder.path} is damaged: {where} in {TRIALS} or {ABOUT}.") from error
    has_fresh = any(row.startswith(FRESH) for row, _, _ in folder.finished_units())
    tasks = sweeps.load(folder, manifest, FRESH).tasks if has_fresh else ()
    return TuneRun(manifest, about, tuple(read.trials), read.importances, tasks)


def summarise(run: TuneRun) -> dict[str, object]:
    """Return the content of ``summary.json``."""
    best = run.best
    return {
        "best": None if best is None else best.model_dump(mode="json"),
        "finished": len(run.finished),
        "stopped_early": sum(trial.state == "pruned" for trial in run.trials),
        "failed": sum(trial.state == "fail" and trial.error is not None for trial in run.trials),
        "importances": run.importances,
        "fresh": {row.id: {**row.counts, "outcome": row.numbers} for row in run.fresh},
    }
