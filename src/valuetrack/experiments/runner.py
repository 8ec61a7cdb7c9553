"""Run one unit of any experiment: some seeds of one row, from its checkpoint to its tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from valuetrack.api.agent import Agent
from valuetrack.api.pieces import run_pieces
from valuetrack.experiments.measure import build_measure
from valuetrack.experiments.spec import Experiment
from valuetrack.io.run_folder import Columns, RunFolder, StoreError
from valuetrack.registry import agent_type
from valuetrack.training.seed_groups import limited_to
from valuetrack.types import NDArray

CHECKPOINT_SECONDS = 60.0


class StopFlag(Protocol):
    """Whatever can say that it is time to stop, such as ``threading.Event``."""

    def is_set(self) -> bool:
        """Return whether to stop at the next safe place."""
        ...


class Unit(NamedTuple):
    """A group of seeds of a row: what one process runs at a time."""

    row: str
    first_seed: int
    seeds: int

    @property
    def name(self) -> str:
        """The unit's folder."""
        return f"seeds-{self.first_seed:04d}-{self.first_seed + self.seeds - 1:04d}"


class UnitRun:
    """One unit's training, from its checkpoint if there is one, to its tables.

    Parameters
    ----------
    unit, spec
        What to run.
    folder
        Where its files go.
    """

    def __init__(self, unit: Unit, spec: Experiment, folder: RunFolder) -> None:
        self.unit, self.folder = unit, folder
        row = spec.row(unit.row)
        options = {"samples": 1, **row.options}  # a measure has its own pool, of values
        with limited_to(1):  # wherever it runs, so that a unit has the same bits everywhere
            self.agent: Agent[Any] = agent_type(row.algorithm)(
                row.env,
                seed=unit.first_seed,
                seeds=unit.seeds,
                env_options=row.env_options,
                **options,
            )
        self.measure = build_measure(spec, row, self.agent)
        self.agent.trainer.track(self.measure.tracked)
        self.looks = 0
        self.seconds = 0.0

    def run(self, stop: StopFlag, advance: Callable[[int], None]) -> bool:
        """Train to the end and write the tables; keep the state and return False if stopped.

        ``advance`` is told how many environment steps were taken, over all seeds.
        """
        self._load()
        trainer, points = self.agent.trainer, self.measure.points
        began = saved = time.monotonic()
        spent, told = self.seconds, 0

        def next_point(cycle: int) -> int:
            return next(point for point in points if point > cycle)

        def look() -> None:
            self.seconds = spent + time.monotonic() - began
            self._record(self.measure.look(self.looks))
            self.looks += 1

        def heartbeat() -> bool:
            nonlocal saved, told
            now = time.monotonic()
            self.seconds = spent + now - began
            steps = self.agent.num_timesteps * self.unit.seeds
            advance(steps - told)
            told = steps
            stopped = stop.is_set()  # once: it may be set between two looks
            if stopped or now - saved > CHECKPOINT_SECONDS:
                self._save()
                saved = now
            return not stopped

        if not run_pieces(
            trainer,
            points[-1],
            next_point=next_point,
            at_point=look,
            heartbeat=heartbeat,
            sink=self.measure.collect,
        ):
            return False
        self._finish()
        return True

    def _record(self, measured: Mapping[str, Any]) -> None:
        """Append a small record for whoever follows the run."""
        trainer = self.agent.trainer
        rate = trainer.steps * self.unit.seeds / max(self.seconds, 1e-9)
        record = {"steps": trainer.steps, "updates": trainer.clock.updates, "rate": round(rate, 1)}
        self.folder.append_progress(self.unit.row, self.unit.name, {**record, **measured})

    def _finish(self) -> None:
        diverged = np.asarray(self.agent.trainer.learned.diverged, np.int64)
        tables = self.measure.tables()
        seeds = np.asarray(self.agent.seeds)
        tables["seeds"] = {
            "seed": seeds,
            "diverged_at": diverged,
            "wall_seconds": np.full(len(seeds), self.seconds / len(seeds)),
            **tables.get("seeds", {}),
        }
        info = {
            "row": self.unit.row,
            "first_seed": self.unit.first_seed,
            "seeds": self.unit.seeds,
            "wall_seconds": round(self.seconds, 3),
            "updates": self.agent.trainer.clock.updates,
            "diverged": [int(seed) for seed in seeds[diverged >= 0]],
        }
        path = self.folder.unit_path(self.unit.row, self.unit.name)
        path.mkdir(parents=True, exist_ok=True)
        self.measure.write_files(path)
        labelled = {name: self._labelled(table) for name, table in tables.items()}
        self.folder.finish_unit(self.unit.row, self.unit.name, labelled, info)

    def _labelled(self, table: Columns) -> Columns:
        """Return a table whose first column is the row's name."""
        if not table:
            return table
        return {"row": np.full(len(table["seed"]), self.unit.row), **table}

    def _save(self) -> None:
        arrays: dict[str, NDArray] = {
            **self.agent.trainer.arrays(),
            **{f"measure.{name}": array for name, array in self.measure.arrays().items()},
        }
        self.folder.save_checkpoint(
            self.unit.row, self.unit.name, arrays, {"looks": self.looks, "seconds": self.seconds}
        )

    def _load(self) -> None:
        """Take up the saved state, if there is one."""
        saved = self.folder.load_checkpoint(self.unit.row, self.unit.name)
        steps = 0
        if saved is not None:
            arrays, description = saved
            start = "measure."
            own = {k.removeprefix(start): a for k, a in arrays.items() if k.startswith(start)}
            try:
                self.agent.trainer.restore(arrays)
                self.measure.restore(own)
                self.looks = int(description["looks"])
                self.seconds = float(description["seconds"])
            except (ValueError, KeyError, TypeError) as error:
                path = self.folder.unit_path(self.unit.row, self.unit.name)
                raise StoreError(
                    f"The checkpoint in {path} does not fit; delete it to begin this unit again."
                ) from error
            steps = self.agent.num_timesteps
        self.folder.cut_progress(self.unit.row, self.unit.name, steps)


def run_unit(
    unit: Unit, spec: Experiment, folder: RunFolder, advance: Callable[[int], None], stop: StopFlag
) -> bool:
    """Run a unit to its end; return False if it was stopped before."""
    return UnitRun(unit, spec, folder).run(stop, advance)
