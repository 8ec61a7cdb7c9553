"""Run one unit of the classic control experiment: some seeds of one algorithm on one task."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from valuetrack.algorithms import ALGORITHMS
from valuetrack.experiments.control_spec import ControlSpec
from valuetrack.experiments.spec import PresetName
from valuetrack.experiments.unit import StopFlag, Unit
from valuetrack.io.arrays import from_arrays, to_arrays
from valuetrack.store import Columns, RunFolder, StoreError
from valuetrack.training.update import Learned

CHECKPOINT_SECONDS = 60.0
PIECES = 20
"""In how many pieces a training goes from point to point: a stop is obeyed between two."""
BEST = "best.vt"


def plan_points(cycles: int, points: int) -> list[int]:
    """Return after how many cycles a policy is tried out: ``points`` times, evenly, the last last.

    A training of fewer cycles has a point after each.
    """
    points = min(points, cycles)
    return [round(cycles * (index + 1) / points) for index in range(points)]


class ControlRun:
    """One unit's training, from its checkpoint if there is one, to its tables.

    At every point the policy plays its evaluation episodes, and the parameters of the best mean
    so far are kept.
    """

    def __init__(
        self, unit: Unit, spec: ControlSpec, preset: PresetName, folder: RunFolder
    ) -> None:
        del preset  # there is one set of settings
        self.unit, self.spec, self.folder = unit, spec, folder
        row = spec.row(unit.row.id)
        self.agent = ALGORITHMS[row.algorithm](
            row.env, seed=unit.first_seed, seeds=unit.seeds, samples=1, **row.options
        )
        per_cycle = self.agent.trainer.settings.transitions_per_cycle
        self.points = plan_points(-(-row.steps // per_cycle), spec.evaluation.points)
        self.best = np.full(unit.seeds, -np.inf)
        self.best_params = jax.tree.map(np.array, self.agent.trainer.states.sampler.params)
        # Of the training episodes since the last point: the sum of their returns, their number.
        self.returns = np.zeros(unit.seeds)
        self.episodes = np.zeros(unit.seeds, np.int64)
        self.records: Columns = {}
        self.seconds = 0.0

    def run(self, stop: StopFlag, advance: Callable[[int], None]) -> bool:
        """Train to the end and write the tables; keep the state and return False if stopped."""
        done = self._load()
        began = saved = time.monotonic()
        spent = self.seconds
        advance(self.agent.num_timesteps * self.unit.seeds)
        while done < len(self.points):
            before = self.agent.num_timesteps
            if self._train_a_piece(done):
                self._try_out(done)
                done += 1
            now = time.monotonic()
            self.seconds = spent + now - began
            advance((self.agent.num_timesteps - before) * self.unit.seeds)
            stopped = stop.is_set()  # once: it may be set between two looks
            if stopped or now - saved > CHECKPOINT_SECONDS:
                self._save(done)
                saved = now
            if stopped:
                return False
        self._finish()
        return True

    def _train_a_piece(self, index: int) -> bool:
        """Train on towards a point, and return whether it is reached.

        A piece has a length of its own, not one of time, so that sums over them have the same bits
        in every run.
        """
        trainer = self.agent.trainer
        first, last = (0, *self.points)[index], self.points[index]
        piece = -(-(last - first) // PIECES)
        trace, _ = trainer.run(min(piece, last - trainer.clock.cycles))
        self.returns += np.asarray(trace.returns)
        self.episodes += np.asarray(trace.episodes, np.int64)
        return bool(trainer.clock.cycles == last)

    def _try_out(self, index: int) -> None:
        """Play with the policy of a point, and write down how it has gone since the last one."""
        trainer = self.agent.trainer
        played = self.agent.play(self.spec.evaluation.episodes, seed=index + 1)
        returns, discounted, expected = (part.mean(axis=1) for part in played)
        # A seed that has diverged plays on with whatever its network says; that is no result.
        mean = np.where(trainer.diverged >= 0, -np.inf, returns)
        better = mean > self.best
        self.best = np.where(better, mean, self.best)
        params = trainer.states.sampler.params
        self.best_params = jax.tree.map(
            lambda old, new: np.where(
                better.reshape(-1, *(1,) * (old.ndim - 1)), np.asarray(new), old
            ),
            self.best_params,
            params,
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            training = self.returns / self.episodes
        count = self.unit.seeds
        self._append(
            {
                "row": np.full(count, self.unit.row.id),
                "seed": self._seeds,
                "point": np.full(count, index + 1),
                "step": np.full(count, self.agent.num_timesteps),
                "training_return": training,
                "training_episodes": self.episodes.copy(),
                "evaluation_return": returns,
                "discounted_return": discounted,
                "start_value": expected,
                "best_return": np.where(np.isfinite(self.best), self.best, np.nan),
                "diverged": trainer.diverged >= 0,
            }
        )
        self.returns[:], self.episodes[:] = 0.0, 0

    def _finish(self) -> None:
        diverged = self.agent.trainer.diverged.astype(np.int64)
        seeds = {
            "row": np.full(self.unit.seeds, self.unit.row.id),
            "seed": self._seeds,
            "diverged_at": diverged,
            "best_return": np.where(np.isfinite(self.best), self.best, np.nan),
            "wall_seconds": np.full(self.unit.seeds, self.seconds / self.unit.seeds),
        }
        info = {
            "row": self.unit.row.id,
            "first_seed": self.unit.first_seed,
            "seeds": self.unit.seeds,
            "wall_seconds": round(self.seconds, 3),
            "updates": self.agent.trainer.clock.updates,
            "diverged": [int(seed) for seed in self._seeds[diverged >= 0]],
        }
        path = self.folder.unit_path(self.unit.row.id, self.unit.name)
        path.mkdir(parents=True, exist_ok=True)
        self._save_best(path / BEST)
        tables = {"points": self.records, "seeds": seeds}
        self.folder.finish_unit(self.unit.row.id, self.unit.name, tables, info)

    def _save_best(self, path: Path) -> None:
        """Write the best parameters as an agent; all else of it is as the training ends."""
        trainer = self.agent.trainer
        learned = trainer.learned
        state = learned.learner._replace(
            sampler=learned.learner.sampler._replace(params=self.best_params)
        )
        samples = jax.tree.map(lambda leaf: leaf[:, None], self.best_params)
        pool = learned.pool._replace(samples=samples) if learned.pool else ()
        trainer.adopt(Learned(state, pool, learned.diverged), trainer.clock)
        self.agent.save(path, replay=False)

    def _append(self, rows: Columns) -> None:
        if not self.records:
            self.records = rows
            return
        self.records = {name: np.concatenate([self.records[name], rows[name]]) for name in rows}

    def _save(self, done: int) -> None:
        arrays = {
            **{f"trainer.{name}": array for name, array in self.agent.trainer.arrays().items()},
            **{f"records.{name}": column for name, column in self.records.items()},
            **to_arrays(self.best_params, "best_params"),
            "best": self.best,
            "returns": self.returns,
            "episodes": self.episodes,
            "place": np.array([done, self.seconds]),
        }
        self.folder.save_checkpoint(self.unit.row.id, self.unit.name, arrays)

    def _load(self) -> int:
        """Take up the saved state, if there is one; return how many points are done."""
        saved = self.folder.load_checkpoint(self.unit.row.id, self.unit.name)
        if saved is None:
            return 0
        try:
            self.agent.trainer.restore(_part(saved, "trainer."))
            self.best_params = from_arrays(saved, self.best_params, "best_params")
            self.best = saved["best"]
            self.returns, self.episodes = saved["returns"], saved["episodes"]
            self.records = _part(saved, "records.")
            self.seconds = float(saved["place"][1])
            return int(saved["place"][0])
        except (ValueError, KeyError) as error:
            path = self.folder.unit_path(self.unit.row.id, self.unit.name)
            raise StoreError(f"The checkpoint in {path} does not fit; delete it.") from error

    @property
    def _seeds(self) -> Any:
        return np.arange(self.unit.first_seed, self.unit.first_seed + self.unit.seeds)


def _part(arrays: Columns, prefix: str) -> Columns:
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
