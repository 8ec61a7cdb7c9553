"""A run on control tasks: each row's curves, without diverged seeds, and their summary."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from valuetrack.io.run_folder import Columns, RunFolder
from valuetrack.report.run_data import Manifest, Row, finished_rows, read_table, seeds_of
from valuetrack.report.statistics import Floats, SeedStatistics, seed_statistics

LAST = 10
"""How many points at the end count as the final ones: a tenth of the experiment's hundred."""

_MEASURED = ("point", "step", "training_return", "training_episodes", "evaluation_return")


class Known(NamedTuple):
    """What is known about one of the paper's tasks.

    ``solved`` is Gymnasium's reward threshold, ``steps`` the experiment's environment steps, and
    ``note`` a sentence to print with the task's numbers.
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
class ControlRow(Row):
    """One algorithm on one task.

    Attributes
    ----------
    best : mapping of int to float
        The mean return of the best model of every seed that did not diverge.
    curves : Curves or None
        ``None`` if no seed is left.
    """

    best: Mapping[int, float]
    curves: Curves | None = field(compare=False)

    @property
    def env(self) -> str:
        """The task, such as ``CartPole-v1``."""
        return self.entry.env

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

    @property
    def labels(self) -> list[str]:
        """The names of the rows within the task."""
        return [row.label for row in self.rows]


@dataclass(frozen=True)
class ControlRun:
    """A run read from its folder, with the tasks that have a finished row."""

    manifest: Manifest
    tasks: tuple[Task, ...]

    @property
    def rows(self) -> tuple[ControlRow, ...]:
        """All rows with a finished unit, task by task."""
        return tuple(row for task in self.tasks for row in task.rows)

    def row(self, env: str, algorithm: str) -> ControlRow | None:
        """Return an algorithm's row on a task, if it has a finished unit."""
        found = (row for row in self.rows if (row.env, row.algorithm) == (env, algorithm))
        return next(found, None)

    @property
    def points(self) -> tuple[int, int]:
        """How many points a training has, and how many greedy episodes each point has."""
        measure = self.manifest.spec.measure
        return int(measure.get("points", 100)), int(measure.get("episodes", 5))


class RowSummary(TypedDict):
    """One row: how many seeds, which diverged, which solved the task, and metric -> figures."""

    seeds_run: int
    seeds_diverged: list[int]
    seeds_solved: list[int] | None
    metrics: dict[str, SeedStatistics]


Summary = dict[str, RowSummary]
"""Row id -> figures; the content of ``summary.json``."""


def load(folder: RunFolder, manifest: Manifest) -> ControlRun:
    """Read what has finished of a run.

    Raises
    ------
    StoreError
        If no unit has finished, or a table is damaged.
    """
    rows = list(_rows(folder, manifest))
    envs = list(dict.fromkeys(row.env for row in rows))
    tasks = (
        Task(env, key, tuple(row for row in rows if row.env == env))
        for env, key in zip(envs, _keys(envs), strict=True)
    )
    return ControlRun(manifest, tuple(tasks))


def summarise(run: ControlRun) -> Summary:
    """Summarise a run, with seeds as the unit."""
    return {
        row.id: RowSummary(
            seeds_run=len(row.seeds),
            seeds_diverged=sorted(row.diverged),
            seeds_solved=None if row.solved is None else list(row.solved),
            metrics={name: seed_statistics(values) for name, values in seed_values(row).items()},
        )
        for row in run.rows
    }


def seed_values(row: ControlRow) -> dict[str, dict[int, float]]:
    """Return one number per seed for each metric, NaN where a seed has none.

    ``training_return`` is the mean over all episodes of the training, ``final_training_return``
    over those of its last tenth, ``final_evaluation_return`` the mean over the last 10 points,
    and ``best_return`` that of the best model. Over the same points, ``final_start_value`` is the
    mean Q-value with which greedy episodes begin, ``final_discounted_return`` the return that
    follows, and ``final_value_error`` the first minus the second.
    """
    values = {name: dict.fromkeys(row.used, np.nan) for name in _METRICS}
    values["best_return"] |= row.best
    if row.curves is not None:
        for line, seed in enumerate(row.curves.seeds):
            for name, value in _of_seed(row.curves, line).items():
                values[name][seed] = value
    return values


_METRICS = (
    "training_return", "final_training_return", "final_evaluation_return", "best_return",
    "final_start_value", "final_discounted_return", "final_value_error",
)  # fmt: skip


def _of_seed(curves: Curves, line: int) -> dict[str, float]:
    """Return what the points of one seed come to."""
    tenth = max(1, curves.steps.size // 10)
    returns, episodes = curves.training[line], curves.episodes[line]
    expected, discounted = (
        float(values[line, -LAST:].mean()) for values in (curves.expected, curves.discounted)
    )
    return {
        "training_return": _per_episode(returns, episodes),
        "final_training_return": _per_episode(returns[-tenth:], episodes[-tenth:]),
        "final_evaluation_return": float(curves.evaluation[line, -LAST:].mean()),
        "final_start_value": expected,
        "final_discounted_return": discounted,
        "final_value_error": expected - discounted,
    }


def _per_episode(returns: Floats, episodes: Floats) -> float:
    """Average over episodes from the averages of points, some of which saw no episode end."""
    ended = episodes > 0
    if not ended.any():
        return float("nan")
    return float(np.average(returns[ended], weights=episodes[ended]))


def forward_filled(values: Floats) -> Floats:
    """Return (seeds, points) with each NaN replaced by the last number before it, if any."""
    places = np.where(np.isnan(values), 0, np.arange(values.shape[1]))
    filled: Floats = np.take_along_axis(values, np.maximum.accumulate(places, axis=1), axis=1)
    return filled


def _rows(folder: RunFolder, manifest: Manifest) -> Iterator[ControlRow]:
    points = read_table(folder, "points", *_MEASURED)
    for entry, part in finished_rows(folder, manifest, "best_return"):
        seeds, diverged, wall = seeds_of(part)
        best = dict(zip(map(int, part["seed"]), map(float, part["best_return"]), strict=True))
        used = sorted(set(seeds) - diverged.keys())
        curves = _curves(points.get(entry.id, {}), used)
        best = {seed: best[seed] for seed in used}
        yield ControlRow(entry, seeds, diverged, wall, best, curves)


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


def _keys(envs: Sequence[str]) -> list[str]:
    """Return short names, each once, that are safe in paths and attributes."""
    keys: list[str] = []
    for env in envs:
        name = re.sub(r"-v\d+$", "", env).lower()
        key = re.sub(r"[^a-z0-9]+", "-", name).strip("-") or "task"
        keys.append(key if key not in keys else f"{key}-{len(keys) + 1}")
    return keys
