"""A run that scored intervals: each row's scores by seed, without diverged seeds, and summary."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from valuetrack.io.manifest import Manifest
from valuetrack.io.run_folder import Columns, RunFolder
from valuetrack.report.run_data import Row, finished_rows, read_table
from valuetrack.types import Bools, Floats

ALL = "all"
"""The group of all actions, or of all bins of visits."""
LEVELS = (50, 80, 90, 95, 99)
"""Of the intervals whose coverage is known, in per cent."""
KINDS = ("value", "calibrated", "credible", "prediction", "heads", "quantiles")
"""The kinds of interval, in the order of the tables."""
BINS = ("0", "1+", "1-9", "10-99", "100+")
"""The bins of visits: never, at all, and how often."""
VISITED = "1+"
NUMBERS = (
    *(f"coverage_{level}" for level in LEVELS),
    "width", "interval_score", "crps", "rank", "rmse", "bias", "truth_se", "count",
)  # fmt: skip
"""The scores of a group."""
RETURN_NUMBERS = ("coverage", "width")
"""What is known of the intervals for the return, at each level."""
_OF_STATES = ("state", "truth", "centre", "low", "high")
ESCAPE = "valuetrack/IndoorEscape-v0"


class Mean(NamedTuple):
    """A mean over seeds, its standard error, and how many seeds there are; NaN where unknown."""

    mean: float
    se: float
    seeds: int


@dataclass(frozen=True)
class ScoredRow(Row):
    """One algorithm on one task.

    Attributes
    ----------
    scores
        The table of scores of all seeds that count: a line for each seed, kind, action and bin.
    states
        Every interval of one seed, or nothing.
    returns
        What held-out episodes say of the intervals for the return: a line for each seed and level.
    """

    scores: Columns = field(compare=False)
    states: Columns = field(compare=False)
    returns: Columns = field(compare=False)

    @property
    def task(self) -> str:
        """The task's name in the experiment's file."""
        return self.id.removesuffix(f"-{self.algorithm}")

    @property
    def kinds(self) -> list[str]:
        """The kinds of interval that it has, in the order of the tables."""
        found = set(self.scores.get("kind", ()))
        return [kind for kind in KINDS if kind in found]

    def actions(self) -> list[str]:
        """Return the actions that it has scores of, by their numbers."""
        found = {str(action) for action in self.scores.get("action", ())} - {ALL}
        return sorted(found, key=int)

    def over_seeds(self, number: str, kind: str, action: str = ALL, visits: str = ALL) -> Mean:
        """Return a number over the seeds, of one group of state-actions."""
        by_seed = self.by_seed(number, kind, action, visits)
        return over_seeds(np.array(list(by_seed.values())))

    def by_seed(
        self, number: str, kind: str, action: str = ALL, visits: str = ALL
    ) -> dict[int, float]:
        """Return a number of each seed, of one group of state-actions."""
        table = self.scores
        if not table:
            return {}
        mine: Bools = (table["kind"] == kind) & (table["action"] == action)
        mine &= table["visits"] == visits
        return dict(zip(table["seed"][mine].tolist(), table[number][mine].tolist(), strict=True))

    def of_returns(self, number: str, level: int) -> Mean:
        """Return a number over the seeds of the intervals for the return, by level in per cent."""
        table = self.returns
        mine: Bools = np.round(100 * table["level"]) == level if table else np.zeros(0, bool)
        return over_seeds(table[number][mine] if table else np.zeros(0))


@dataclass(frozen=True)
class Task:
    """A task and its rows."""

    name: str
    env: str
    rows: tuple[ScoredRow, ...]

    @property
    def title(self) -> str:
        """Its name for readers."""
        return f"{self.env}, {self.name}" if self.env == ESCAPE else self.env

    @property
    def bins(self) -> list[str]:
        """The bins of visits in which it has scores; none where states do not come again."""
        found = {str(name) for row in self.rows for name in row.scores.get("visits", ())}
        return [name for name in BINS if name in found]

    @property
    def lines(self) -> list[tuple[ScoredRow, str]]:
        """Its rows with each of their kinds."""
        return [(row, kind) for row in self.rows for kind in row.kinds]


@dataclass(frozen=True)
class ScoredRun:
    """A run read from its folder, with the tasks that have a finished row."""

    manifest: Manifest
    tasks: tuple[Task, ...]

    @property
    def rows(self) -> list[ScoredRow]:
        """All rows with a finished unit, task by task."""
        return [row for task in self.tasks for row in task.rows]

    def row(self, row_id: str) -> ScoredRow | None:
        """Return a row by its id, if it has a finished unit."""
        return next((row for row in self.rows if row.id == row_id), None)


def over_seeds(values: Floats) -> Mean:
    """Return the mean of one number per seed; those that are not finite do not count.

    Examples
    --------
    >>> over_seeds(np.array([1.0, 3.0, np.nan]))
    Mean(mean=2.0, se=1.0, seeds=2)
    """
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known)]
    if not known.size:
        return Mean(math.nan, math.nan, 0)
    se = known.std(ddof=1) / math.sqrt(known.size) if known.size > 1 else math.nan
    return Mean(float(known.mean()), float(se), int(known.size))


def load(folder: RunFolder, manifest: Manifest) -> ScoredRun:
    """Read what has finished of a run.

    Raises
    ------
    StoreError
        If no unit has finished, or a table is damaged.
    """
    scores = read_table(folder, "intervals", "kind", "action", "visits", *NUMBERS)
    states = read_table(folder, "states", "kind", "action", "visits", *_OF_STATES)
    returns = read_table(folder, "returns", "level", *RETURN_NUMBERS)
    tasks: dict[str, list[ScoredRow]] = {}
    for row, _ in finished_rows(folder, manifest):
        kept = _of_seeds(scores.get(row.id, {}), row.used)
        drawn = _of_seeds(states.get(row.id, {}), row.used[:1])
        held_out = _of_seeds(returns.get(row.id, {}), row.used)
        scored = ScoredRow(**vars(row), scores=kept, states=drawn, returns=held_out)
        tasks.setdefault(scored.task, []).append(scored)
    made = (Task(name, rows[0].entry.env, tuple(rows)) for name, rows in tasks.items())
    return ScoredRun(manifest, tuple(made))


def summarise(run: ScoredRun) -> dict[str, object]:
    """Return the content of ``summary.json``: each row's seeds, and its scores over them."""
    return {
        row.id: {
            **row.counts,
            "intervals": {kind: _summary(row, kind) for kind in row.kinds},
            "returns": {
                str(level): {name: _plain(row.of_returns(name, level)) for name in RETURN_NUMBERS}
                for level in (LEVELS if row.returns else ())
            },
        }
        for row in run.rows
    }


def _summary(row: ScoredRow, kind: str) -> dict[str, Mapping[str, float | int | None]]:
    groups = {"": ALL} | ({"visited_": VISITED} if VISITED in row.scores["visits"] else {})
    return {
        f"{prefix}{number}": _plain(row.over_seeds(number, kind, visits=visits))
        for prefix, visits in groups.items()
        for number in NUMBERS
    }


def _plain(found: Mean) -> Mapping[str, float | int | None]:
    mean, se, seeds = found
    return {
        "mean": mean if math.isfinite(mean) else None,
        "se": se if math.isfinite(se) else None,
        "seeds": seeds,
    }


def _of_seeds(table: Columns, seeds: Sequence[int]) -> Columns:
    if not table:
        return {}
    kept = np.isin(table["seed"], seeds)
    return {name: column[kept] for name, column in table.items()} if kept.any() else {}
