"""A run on control tasks: each row's curves, without diverged seeds, and their summary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from valuetrack.io.manifest import Manifest
from valuetrack.io.run_folder import Columns, RunFolder
from valuetrack.report.run_data import Row, finished_rows, read_table
from valuetrack.report.statistics import SeedStatistics, seed_statistics
from valuetrack.types import Floats

LAST = 10
"""How many points at the end count as the final ones: a tenth of the experiment's hundred."""

MEASURED = ("step", "training_return", "training_episodes", "evaluation_return")
"""Columns that the table of points has."""
_OPTIONAL = ("best_return", "discounted_return", "start_value")
"""Columns that the table of points may lack; NaN stands for them."""


class Known(NamedTuple):
    """What is known about a task.

    ``solved`` is Gymnasium's reward threshold, ``steps`` the experiment's environment steps, and
    ``note`` a sentence to print with the task's numbers.
    """

    solved: float | None = None
    steps: int | None = None
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
"""The paper's tasks."""

Curves = Mapping[str, Floats]
"""A column of the table of points -> its values, (seeds, points); no column if no seed is left."""


@dataclass(frozen=True)
class ControlRow(Row):
    """One algorithm on one task.

    Attributes
    ----------
    best
        The mean return of the best model of every seed that did not diverge, seeds rising.
    curves
        What was measured at the points of these seeds: the mean return of the training episodes
        that ended since the point before, NaN where none did, and how many these are; of greedy
        episodes the mean return, the largest of these so far, the discounted return, and the
        Q-value with which they began. Runs of versions that did not keep a number have NaN.
    """

    best: Mapping[int, float]
    curves: Curves = field(compare=False)

    @property
    def env(self) -> str:
        """The task, such as ``CartPole-v1``."""
        return self.entry.env

    @property
    def known(self) -> Known:
        """What is known about the task."""
        return TASKS.get(self.env, Known())

    @property
    def solved(self) -> list[int] | None:
        """The seeds whose best model reaches the task's threshold; ``None`` if it has none."""
        threshold = self.known.solved
        if threshold is None:
            return None
        return [seed for seed in self.used if self.best[seed] >= threshold]

    @cached_property
    def seed_values(self) -> dict[str, dict[int, float]]:
        """One number per seed for each metric, NaN where a seed has none.

        ``training_return`` is the mean over all episodes of the training, ``final_training_return``
        over those of its last tenth, ``final_evaluation_return`` the mean over the last 10 points,
        and ``best_return`` that of the best model. Over the same points, ``final_start_value`` is
        the mean Q-value with which greedy episodes begin, ``final_discounted_return`` the return
        that follows, and ``final_value_error`` the first minus the second.
        """
        values = {name: dict.fromkeys(self.used, np.nan) for name in _METRICS}
        values["best_return"] |= self.best
        for line, seed in enumerate(self.best if self.curves else ()):
            points = {name: grid[line] for name, grid in self.curves.items()}
            for name, value in _of_seed(points).items():
                values[name][seed] = value
        return values | self.own_values

    @property
    def own_values(self) -> dict[str, dict[int, float]]:
        """More numbers per seed, of rows that have some."""
        return {}

    @cached_property
    def metrics(self) -> dict[str, SeedStatistics]:
        """Each metric over the seeds."""
        return {name: seed_statistics(values) for name, values in self.seed_values.items()}


@dataclass(frozen=True)
class Task:
    """One task with its finished rows; ``key`` is a name for files and links."""

    env: str
    key: str
    rows: tuple[ControlRow, ...]

    @property
    def known(self) -> Known:
        """What is known about it."""
        return self.rows[0].known

    @property
    def named(self) -> list[tuple[str, ControlRow]]:
        """The rows with their names within the task."""
        return [(row.label, row) for row in self.rows]


@dataclass(frozen=True)
class ControlRun:
    """A run read from its folder, with the tasks that have a finished row."""

    manifest: Manifest
    tasks: tuple[Task, ...]

    @property
    def rows(self) -> list[ControlRow]:
        """All rows with a finished unit, task by task."""
        return [row for task in self.tasks for row in task.rows]

    def row(self, env: str, algorithm: str) -> ControlRow | None:
        """Return an algorithm's row on a task, if it has a finished unit."""
        found = (row for row in self.rows if (row.env, row.algorithm) == (env, algorithm))
        return next(found, None)

    @property
    def points(self) -> tuple[int, int]:
        """How many points a training has, and how many greedy episodes each point has."""
        measure = self.manifest.spec.measure.model_extra or {}
        return int(measure.get("points", 100)), int(measure.get("episodes", 5))


def load(folder: RunFolder, manifest: Manifest) -> ControlRun:
    """Read what has finished of a run.

    Raises
    ------
    StoreError
        If no unit has finished, or a table is damaged.
    """
    points = read_table(folder, "points", "point", *MEASURED)
    rows: dict[str, list[ControlRow]] = {}
    for row, table in finished_rows(folder, manifest, "best_return"):
        returns = dict(zip(table["seed"].tolist(), table["best_return"].tolist(), strict=True))
        best = {seed: returns[seed] for seed in row.used}
        curves = curves_of(points.get(row.id, {}), list(best))
        rows.setdefault(row.entry.env, []).append(ControlRow(**vars(row), best=best, curves=curves))
    keys = _keys(rows)
    return ControlRun(manifest, tuple(Task(env, keys[env], tuple(rows[env])) for env in rows))


def summarise(run: ControlRun) -> dict[str, object]:
    """Return the content of ``summary.json``: each row's seeds and its figures over them."""
    return {
        row.id: {**row.counts, "seeds_solved": row.solved, "metrics": row.metrics}
        for row in run.rows
    }


_METRICS = (
    "training_return", "final_training_return", "final_evaluation_return", "best_return",
    "final_start_value", "final_discounted_return", "final_value_error",
)  # fmt: skip


def _of_seed(points: Columns) -> dict[str, float]:
    """Return what the points of one seed come to."""
    returns, episodes = points["training_return"], points["training_episodes"]
    tenth = max(1, len(returns) // 10)
    names = ("evaluation_return", "start_value", "discounted_return")
    evaluation, expected, discounted = (float(points[name][-LAST:].mean()) for name in names)
    return {
        "training_return": _per_episode(returns, episodes),
        "final_training_return": _per_episode(returns[-tenth:], episodes[-tenth:]),
        "final_evaluation_return": evaluation,
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


def curves_of(points: Columns, seeds: Sequence[int]) -> Curves:
    """Lay a row's points out as (seeds, points), whatever their order in the table."""
    kept = np.isin(points.get("seed", ()), seeds)
    if not kept.any():
        return {}
    lines = np.searchsorted(seeds, points["seed"][kept])
    places = points["point"][kept].astype(int) - 1
    shape = (len(seeds), places.max() + 1)
    curves = {name: np.full(shape, np.nan) for name in (*MEASURED, *_OPTIONAL)}
    for name in curves.keys() & points.keys():
        curves[name][lines, places] = points[name][kept]
    return curves


def _keys(envs: Iterable[str]) -> dict[str, str]:
    """Return short names, each once, that are safe in paths and attributes."""
    keys: dict[str, str] = {}
    for env in envs:
        name = re.sub(r"-v\d+$", "", env).lower()
        key = re.sub(r"[^a-z0-9]+", "-", name).strip("-") or "task"
        keys[env] = key if key not in keys.values() else f"{key}-{len(keys) + 1}"
    return keys
