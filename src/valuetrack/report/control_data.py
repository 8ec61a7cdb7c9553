"""What the report of the control tasks is made from: each row's curves, without diverged seeds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from valuetrack.io.run_folder import Columns, RunFolder
from valuetrack.report.data import by_row, finished_seeds
from valuetrack.report.html import planned

Floats = npt.NDArray[np.float64]


class Known(NamedTuple):
    """What is known of one of the paper's tasks.

    ``solved`` is Gymnasium's reward threshold, ``steps`` the experiment's environment steps, and
    ``note`` a sentence to stand beside the task's numbers.
    """

    solved: float
    steps: int
    note: str = ""


TASKS: Mapping[str, Known] = {
    "CartPole-v1": Known(475.0, 100_000),
    "MountainCar-v0": Known(-110.0, 200_000),
    "LunarLander-v3": Known(
        200.0,
        200_000,
        "LunarLander-v3 stands for the paper's LunarLander-v2, which Gymnasium no longer has.",
    ),
    "Acrobot-v1": Known(-100.0, 100_000),
}


@dataclass(frozen=True)
class Curves:
    """What was measured at the points of a training, each array (seeds, points).

    Attributes
    ----------
    seeds : tuple of int
        Those that did not diverge, one for each line of the arrays.
    steps : array
        The environment steps of each point, (points,).
    training, episodes : array
        The mean return of the training episodes that ended since the point before, NaN where
        none did, and how many these are.
    evaluation, best : array
        The mean return of the greedy episodes at a point, and the largest of these so far.
    discounted, expected : array
        The mean discounted return of the greedy episodes at a point, and the mean Q-value with
        which they began; NaN in runs of versions that did not keep them.
    """

    seeds: tuple[int, ...]
    steps: npt.NDArray[np.int64]
    training: Floats
    episodes: Floats
    evaluation: Floats
    best: Floats
    discounted: Floats
    expected: Floats


@dataclass(frozen=True)
class ControlRow:
    """One algorithm on one task.

    Attributes
    ----------
    id, algorithm, label, env : str
        Such as ``cartpole-qrdqn``, ``qrdqn``, ``QR-DQN`` and ``CartPole-v1``.
    steps, planned : int
        Environment steps of each seed; how many seeds were asked for.
    seeds : tuple of int
        Those that were run to the end, the diverged ones included.
    diverged : mapping of int to int
        The update at which each diverged seed did so.
    wall_seconds : mapping of int to float
        Of every seed.
    best : mapping of int to float
        The mean return of the best model of every seed that did not diverge.
    curves : Curves or None
        ``None`` if no seed is left.
    """

    id: str
    algorithm: str
    label: str
    env: str
    steps: int
    planned: int
    seeds: tuple[int, ...]
    diverged: Mapping[int, int]
    wall_seconds: Mapping[int, float]
    best: Mapping[int, float]
    curves: Curves | None = field(compare=False)

    @property
    def used(self) -> tuple[int, ...]:
        """The seeds that count: those that did not diverge."""
        return tuple(seed for seed in self.seeds if seed not in self.diverged)

    @property
    def solved(self) -> tuple[int, ...] | None:
        """The seeds whose best model reaches the task's threshold; ``None`` if it has none."""
        if self.env not in TASKS:
            return None
        return tuple(s for s in self.used if self.best.get(s, -np.inf) >= TASKS[self.env].solved)


@dataclass(frozen=True)
class Task:
    """One task with its finished rows; ``key`` is a name for files and links."""

    env: str
    key: str
    rows: tuple[ControlRow, ...]


@dataclass(frozen=True)
class ControlRun:
    """A run of the control tasks read from its folder; tasks without finished rows are not in."""

    manifest: Mapping[str, Any]
    tasks: tuple[Task, ...]

    @property
    def rows(self) -> tuple[ControlRow, ...]:
        """All rows with a finished unit, task by task."""
        return tuple(row for task in self.tasks for row in task.rows)

    def row(self, env: str, algorithm: str) -> ControlRow | None:
        """Return an algorithm's row on a task, if it has a finished unit."""
        found = (row for row in self.rows if (row.env, row.algorithm) == (env, algorithm))
        return next(found, None)

    def unfinished(self, env: str | None = None) -> list[str]:
        """Return the ids of the asked rows, of one task or all, that have no finished unit."""
        there = {row.id for row in self.rows}
        asked = (row for row in self.manifest["rows"] if env in {None, row["env"]})
        return [row["id"] for row in asked if row["id"] not in there]

    @property
    def points(self) -> tuple[int, int]:
        """How many points a training has, and how many greedy episodes a point."""
        evaluation = self.manifest.get("spec", {}).get("evaluation", {})
        return int(evaluation.get("points", 100)), int(evaluation.get("episodes", 5))


def load_control(folder: RunFolder) -> ControlRun:
    """Read what is finished of a run.

    Raises
    ------
    StoreError
        If no unit is finished, or one belongs to a row that the manifest does not name.
    """
    manifest = folder.manifest()
    seeds = finished_seeds(folder, manifest)
    points = by_row(folder.table("points"))
    rows = [
        _row(manifest, entry, seeds[entry["id"]], points.get(entry["id"], {}))
        for entry in manifest["rows"]
        if entry["id"] in seeds
    ]
    envs = list(dict.fromkeys(row.env for row in rows))
    keys = _keys(envs)
    tasks = (Task(env, key, _of(rows, env)) for env, key in zip(envs, keys, strict=True))
    return ControlRun(manifest, tuple(tasks))


def forward_filled(values: Floats) -> Floats:
    """Return (seeds, points) with each NaN replaced by the last number before it, if any."""
    places = np.where(np.isnan(values), 0, np.arange(values.shape[1]))
    filled: Floats = np.take_along_axis(values, np.maximum.accumulate(places, axis=1), axis=1)
    return filled


def _row(
    manifest: Mapping[str, Any], entry: Mapping[str, Any], part: Columns, points: Columns
) -> ControlRow:
    seeds = [int(seed) for seed in part["seed"]]
    diverged = {s: int(at) for s, at in zip(seeds, part["diverged_at"], strict=True) if at >= 0}
    best = dict(zip(seeds, map(float, part["best_return"]), strict=True))
    return ControlRow(
        id=entry["id"],
        algorithm=entry["algorithm"],
        label=entry["label"],
        env=entry["env"],
        steps=int(entry["steps"]),
        planned=planned(manifest, entry),
        seeds=tuple(sorted(seeds)),
        diverged=diverged,
        wall_seconds=dict(zip(seeds, map(float, part["wall_seconds"]), strict=True)),
        best={seed: value for seed, value in best.items() if seed not in diverged},
        curves=_curves(points, sorted(set(seeds) - diverged.keys())),
    )


def _curves(points: Columns, seeds: Sequence[int]) -> Curves | None:
    """Lay a row's points out as (seeds, points), whatever their order in the table."""
    if not points or not seeds:
        return None
    kept = np.isin(points["seed"], seeds)
    if not kept.any():
        return None
    lines = np.searchsorted(seeds, points["seed"][kept])
    places = points["point"][kept].astype(int) - 1
    shape = (len(seeds), int(places.max()) + 1)

    def grid(name: str, empty: float = np.nan) -> Floats:
        values = np.full(shape, empty)
        if name in points:
            values[lines, places] = points[name][kept]
        return values

    steps = grid("step", 0.0).max(axis=0).astype(np.int64)
    return Curves(
        seeds=tuple(seeds),
        steps=steps,
        training=grid("training_return"),
        episodes=grid("training_episodes", 0.0),
        evaluation=grid("evaluation_return"),
        best=grid("best_return"),
        discounted=grid("discounted_return"),
        expected=grid("start_value"),
    )


def _of(rows: Sequence[ControlRow], env: str) -> tuple[ControlRow, ...]:
    return tuple(row for row in rows if row.env == env)


def _keys(envs: Sequence[str]) -> list[str]:
    """Return short names, each once, that are safe in paths and attributes."""
    keys: list[str] = []
    for env in envs:
        name = re.sub(r"-v\d+$", "", env).lower()
        key = re.sub(r"[^a-z0-9]+", "-", name).strip("-") or "task"
        keys.append(key if key not in keys else f"{key}-{len(keys) + 1}")
    return keys
