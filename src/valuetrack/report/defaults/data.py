"""A run of the defaults: what came of each row's seeds, without diverged ones, and summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from valuetrack.envs.gym.rewards import CHANGED_REWARDS_ID
from valuetrack.io.manifest import Manifest
from valuetrack.io.run_folder import Columns, RunFolder
from valuetrack.report.control.data import MEASURED, ControlRow, Task, curves_of
from valuetrack.report.defaults.sb3 import sb3_rows
from valuetrack.report.run_data import Row, finished_rows, read_table
from valuetrack.report.statistics import SeedStatistics, seed_statistics

NUMBERS = (
    "final_return", "discounted_return", "start_value", "value_rmse", "value_bias", "acted_rmse",
    "policy_value",
)  # fmt: skip
"""Columns that the tables of seeds have."""
OPTIONAL = ("best_value", "halvings", "looking_seconds")
"""Columns that SB3's rows lack."""
NETWORKS = "networks"
"""What the names of tasks end with whose rows differ in their networks."""
DEFAULT_NETWORK = "256-256"
COMPARED = ("lktd", "dqn")
"""The algorithms whose networks are varied."""


@dataclass(frozen=True)
class OutcomeRow(ControlRow):
    """One algorithm on one task.

    Attributes
    ----------
    outcomes
        What came of each seed that did not diverge: a name -> seed -> its number, NaN where
        nothing is known. Besides the columns of the tables there are ``value_error``, the value at
        the start minus what came of it, ``curve_return``, the mean greedy return over the points
        of the training, and ``seconds`` per 1,000 steps of training.
    """

    outcomes: Mapping[str, Mapping[int, float]] = field(compare=False)

    @property
    def task(self) -> str:
        """The task's name in the experiment's file; with ``-networks`` if options are given."""
        task, _, variant = self.id.rpartition(f"-{self.algorithm}")
        return f"{task}-{NETWORKS}" if variant else task

    @property
    def scale(self) -> float:
        """What rewards are multiplied by."""
        return float(self.entry.env_options.get("scale", 1.0))

    @cached_property
    def numbers(self) -> dict[str, SeedStatistics]:
        """What came of it over the seeds."""
        return {name: seed_statistics(values) for name, values in self.outcomes.items()}

    def over(self, divisor: float, name: str = "final_return") -> SeedStatistics:
        """Return a number over the seeds, in other units."""
        return seed_statistics({s: v / divisor for s, v in self.outcomes[name].items()})


@dataclass(frozen=True)
class OutcomeRun:
    """A run read from its folder, with the tasks that have a finished row."""

    manifest: Manifest
    rows: tuple[OutcomeRow, ...]

    def row(self, row_id: str) -> OutcomeRow | None:
        """Return a row by its id, if it has a finished unit."""
        return next((row for row in self.rows if row.id == row_id), None)

    def rows_of(self, task: str) -> tuple[OutcomeRow, ...]:
        """Return a task's rows; those with other networks beside those with the default."""
        base = task.removesuffix(f"-{NETWORKS}")
        usual = [row for row in self.rows if row.task == base and row.algorithm in COMPARED]
        own = [row for row in self.rows if row.task == task]
        if base == task:
            return tuple(own)
        return tuple(sorted([*map(_with_network, usual), *own], key=_by_algorithm))

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, those of the comparison first."""
        names = dict.fromkeys(row.task for row in self.rows)
        ordered = sorted(names, key=lambda name: is_variation(self.rows_of(name)))
        return tuple(Task(name, name, self.rows_of(name)) for name in ordered)

    @property
    def compared(self) -> tuple[Task, ...]:
        """The tasks on which algorithms are compared as they are."""
        return tuple(task for task in self.tasks if not is_variation(self.rows_of(task.env)))


def _with_network(row: OutcomeRow) -> OutcomeRow:
    """Return a row of the default network with that in its name."""
    label = f"{row.label}, {DEFAULT_NETWORK}"
    return replace(row, entry=row.entry.model_copy(update={"label": label}))


def _by_algorithm(row: OutcomeRow) -> int:
    return COMPARED.index(row.algorithm)


def is_in_units(row: OutcomeRow) -> bool:
    """Return whether a row has rewards in other units."""
    return row.entry.env == CHANGED_REWARDS_ID


def is_variation(rows: tuple[OutcomeRow, ...]) -> bool:
    """Return whether rows have rewards in other units, or other networks."""
    return any(is_in_units(row) or row.task.endswith(NETWORKS) for row in rows)


def load(folder: RunFolder, manifest: Manifest) -> OutcomeRun:
    """Read what has finished of a run, and SB3's rows if they lie beside it.

    Raises
    ------
    StoreError
        If no unit has finished, or a table is damaged.
    """
    made = [outcome_row(*found) for found in _found(folder, manifest)]
    return OutcomeRun(manifest, tuple(made))


def _found(folder: RunFolder, manifest: Manifest) -> Iterator[tuple[Row, Columns, Columns]]:
    points = read_table(folder, "points", "point", *MEASURED)
    for row, seeds in finished_rows(folder, manifest, *NUMBERS, *OPTIONAL):
        yield row, seeds, points.get(row.id, {})
    yield from sb3_rows(folder)


def outcome_row(row: Row, seeds: Columns, points: Columns) -> OutcomeRow:
    """Return a row with what its tables of seeds and of points say."""
    unknown = np.full(len(seeds["seed"]), np.nan)
    columns = {name: seeds.get(name, unknown) for name in (*NUMBERS, *OPTIONAL)}
    columns["value_error"] = columns["start_value"] - columns["discounted_return"]
    wall = np.array([row.wall_seconds[seed] for seed in seeds["seed"].tolist()])
    training = wall - np.nan_to_num(columns["looking_seconds"])
    columns["seconds"] = 1_000 * training / row.entry.steps
    found = {
        name: {s: float(v) for s, v in zip(seeds["seed"].tolist(), column, strict=True)}
        for name, column in columns.items()
    }
    outcomes = {name: {seed: by_seed[seed] for seed in row.used} for name, by_seed in found.items()}
    curves = curves_of(points, list(row.used))
    returns = curves["evaluation_return"].mean(axis=1).tolist() if curves else []
    outcomes["curve_return"] = dict(zip(row.used, returns, strict=bool(curves)))
    return OutcomeRow(**vars(row), best={}, curves=curves, outcomes=outcomes)


def summarise(run: OutcomeRun) -> dict[str, object]:
    """Return the content of ``summary.json``: each row's seeds, and what came of them."""
    return {row.id: {**row.counts, "outcome": row.numbers} for row in run.rows}
