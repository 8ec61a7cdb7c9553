"""Run one unit of any experiment: some seeds of one row, from its checkpoint to its tables."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from valuetrack.api.agent import AnyAgent
from valuetrack.api.pieces import run_pieces
from valuetrack.experiments.measure import build_measure, pool_options
from valuetrack.experiments.measure.base import below, placed_below
from valuetrack.experiments.spec import Experiment
from valuetrack.experiments.units import Unit
from valuetrack.io.run_folder import RunFolder, StopFlag, StoreError
from valuetrack.registry import agent_type
from valuetrack.training.seed_groups import limited_to
from valuetrack.types import Json

__all__ = ["MEASURE", "Unit", "UnitRun", "run_unit"]

CHECKPOINT_SECONDS = 60.0
MEASURE = "measure"
"""What the names of a measure's arrays in a checkpoint begin with."""


class UnitRun:
    """One unit's training, from its checkpoint if there is one, to its tables.

    Parameters
    ----------
    unit, spec
        What to run.
    folder
        Where its files go.
    kind_of
        The class of an algorithm by its name; a study may have one of its own.
    checkpoint_seconds
        How often its state is saved; every minute by default.
    told
        Called with every record, when it is in the folder.
    """

    def __init__(
        self,
        unit: Unit,
        spec: Experiment,
        folder: RunFolder,
        kind_of: Callable[[str], type[AnyAgent]] = agent_type,
        checkpoint_seconds: float | None = None,
        told: Callable[[Json], object] = lambda record: None,
    ) -> None:
        self.told = told
        self.patience = CHECKPOINT_SECONDS if checkpoint_seconds is None else checkpoint_seconds
        self.unit, self.folder, self.place = unit, folder, (unit.row, unit.name)
        row = spec.row(unit.row)
        options = {**pool_options(spec), **row.options}
        with limited_to(1):  # wherever it runs, so that a unit has the same bits everywhere
            self.agent: AnyAgent = kind_of(row.algorithm)(
                row.env,
                seed=unit.first_seed,
                seeds=unit.seeds,
                env_options=row.env_options,
                **options,
            )
        self.measure = build_measure(spec, row, self.agent)
        self.agent.trainer.track(self.measure.tracked)
        self.steps = row.steps
        self.looks, self.seconds = 0, 0.0

    def run(self, stop: StopFlag, advance: Callable[[int], None]) -> bool:
        """Train to the end and write the tables; keep the state and return False if stopped.

        ``advance`` is told how many environment steps were taken, over all seeds.
        """
        self._load()
        points, told, saved = self.measure.points, 0, time.monotonic()
        began = saved - self.seconds

        def next_point(cycle: int) -> int:
            return next(point for point in points if point > cycle)

        def look() -> bool:
            self.seconds = time.monotonic() - began
            self._look()
            return not self.measure.done

        def heartbeat() -> bool:
            nonlocal saved, told
            now = time.monotonic()
            self.seconds = now - began
            steps = self.agent.num_timesteps * self.unit.seeds
            advance(steps - told)
            told = steps
            stopped = stop.is_set()  # once: it may be set between two looks
            if stopped or now - saved > self.patience:
                self._save()
                saved = now
            return not stopped

        finished = run_pieces(
            self.agent.trainer,
            points[-1],
            next_point=next_point,
            at_point=look,
            heartbeat=heartbeat,
            sink=self.measure.collect,
        )
        if self.measure.done:  # ahead of time: the steps that are left count as taken
            advance(max(0, self.steps * self.unit.seeds - told))
            finished = True
        if finished:
            self._finish()
        return finished

    def _look(self) -> None:
        """Measure, and append a small record for whoever follows the run."""
        trainer = self.agent.trainer
        rate = trainer.steps * self.unit.seeds / max(self.seconds, 1e-9)
        record: Json = {
            "steps": trainer.steps,
            "updates": trainer.clock.updates,
            "rate": round(rate, 1),
        }
        if diverged := self.agent.diverged:
            record["diverged"] = diverged
        record |= self.measure.look(self.looks)
        self.folder.append_progress(*self.place, record)
        frame = self.measure.map(self.looks)
        if frame is not None and self.measure.grid is not None:
            place = {"steps": trainer.steps, "updates": trainer.clock.updates}
            self.folder.append_map(*self.place, self.measure.grid, {**place, **frame})
        self.looks += 1
        self.told(record)

    def _finish(self) -> None:
        """Write the tables, each with the row's name in its first column."""
        seeds, tables = np.asarray(self.agent.seeds), self.measure.tables()
        tables["seeds"] = {
            "seed": seeds,
            "diverged_at": np.asarray(self.agent.trainer.learned.diverged, np.int64),
            "wall_seconds": np.full(len(seeds), self.seconds / len(seeds)),
            **tables.get("seeds", {}),
        }
        for name, table in tables.items():
            if table:
                tables[name] = {"row": np.full(len(table["seed"]), self.unit.row), **table}
        info = {
            **self.unit._asdict(),
            "wall_seconds": round(self.seconds, 3),
            "updates": self.agent.trainer.clock.updates,
            "diverged": list(self.agent.diverged),
        }
        path = self.folder.unit_path(*self.place)
        path.mkdir(parents=True, exist_ok=True)
        self.measure.write_files(path)
        self.folder.finish_unit(*self.place, tables, info)

    def _save(self) -> None:
        arrays = {**self.agent.trainer.arrays(), **placed_below(MEASURE, self.measure.arrays())}
        counts = {"looks": self.looks, "seconds": self.seconds}
        self.folder.save_checkpoint(*self.place, arrays, counts)

    def _load(self) -> None:
        """Take up the saved state, if there is one."""
        saved = self.folder.load_checkpoint(*self.place)
        if saved is not None:
            arrays, counts = saved
            try:
                self.agent.trainer.restore(arrays)
                self.measure.restore(below(MEASURE, arrays))
                self.looks, self.seconds = int(counts["looks"]), float(counts["seconds"])
            except (ValueError, KeyError, TypeError) as error:
                raise StoreError(
                    f"The checkpoint in {self.folder.unit_path(*self.place)} does not fit; delete "
                    "it to begin this unit again."
                ) from error
        self.folder.cut_progress(*self.place, 0 if saved is None else self.agent.num_timesteps)


def run_unit(
    unit: Unit,
    spec: Experiment,
    folder: RunFolder,
    advance: Callable[[int], None],
    stop: StopFlag,
    checkpoint_seconds: float | None = None,
) -> bool:
    """Run a unit to its end; return False if it was stopped before."""
    made = UnitRun(unit, spec, folder, checkpoint_seconds=checkpoint_seconds)
    return made.run(stop, advance)
