"""A run of the indoor escape: its tables split by row, without diverged seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import pydantic

from valuetrack.envs.indoor_escape import IndoorEscape
from valuetrack.io.run_folder import Columns, RunFolder, StoreError
from valuetrack.report.run_data import (
    Manifest,
    Row,
    clean,
    diverged_notes,
    finished_rows,
    read_table,
    seeds_of,
)
from valuetrack.report.statistics import PooledStatistics, pooled_statistics

ACTIONS = ("E", "N", "W", "S")
LIKELY = ("E", "N")
"""The actions that lead to the goal; the paper's tables are about these."""
RARE = ("W", "S")
"""Those that lead away from it."""
METRICS = ("mse", "coverage", "credible_coverage", "width", "legal_width")
SAMPLERS = ("lktd", "sgld", "sghmc")
"""The algorithms that the paper has rows of for several pseudo-populations, in its order."""

TIMING = "timing.json"

_MEASURED = ("action", "step", "final", "training_return", *METRICS)
_CALIBRATED = ("action", "level", "coverage", "credible_coverage")


class GridRow(Row):
    """A row of this experiment, which may have a pseudo-population N."""

    @property
    def step_size(self) -> float | None:
        """The sampler's step size, or the optimiser's learning rate."""
        options = self.entry.options
        found = options.get("step_size", options.get("learning_rate"))
        return None if found is None else float(found)

    @property
    def pseudo_population(self) -> int | None:
        """The N of the samplers."""
        found = self.entry.options.get("pseudo_population")
        return None if found is None else round(found)

    @property
    def name(self) -> str:
        """The label with N, as tables and figures show it."""
        if self.pseudo_population is None:
            return self.label
        return f"{self.label} N={self.pseudo_population}"


class TimingRow(pydantic.BaseModel):
    """The measured time of one update of an algorithm with one network and batch size."""

    algorithm: str
    hidden: tuple[int, ...]
    batch_size: int
    inner_iterations: int
    ms_per_update: float
    ms_per_iteration: float
    low: float | None = None
    high: float | None = None


class Timing(pydantic.BaseModel):
    """The content of ``timing.json``."""

    machine: dict[str, Any] | None = None
    rows: tuple[TimingRow, ...] = ()


@dataclass(frozen=True)
class Run:
    """A run read from its folder.

    ``metrics``, ``calibration`` and ``policy`` map a row's id to its columns without the diverged
    seeds; a row in which all seeds diverged has no entry. ``rows`` are those with a finished
    unit, in the manifest's order.
    """

    manifest: Manifest
    rows: tuple[GridRow, ...]
    metrics: Mapping[str, Columns]
    calibration: Mapping[str, Columns]
    policy: Mapping[str, Columns]
    timing: Timing | None

    @property
    def steps(self) -> int:
        """The environment steps of each seed."""
        return max(row.entry.steps for row in self.rows)

    @property
    def names(self) -> list[str]:
        """The names of the rows."""
        return [row.name for row in self.rows]

    @property
    def environment(self) -> IndoorEscape:
        """The grid; options in the manifest that the grid does not have are not read."""
        options = self.rows[0].entry.env_options
        known = IndoorEscape.__dataclass_fields__.keys() & options.keys()
        return IndoorEscape(**{name: options[name] for name in known})

    @property
    def diverged_notes(self) -> list[str]:
        """Sentences that name the diverged seeds."""
        return diverged_notes(self.rows, self.names)

    def row(self, id: str) -> GridRow | None:
        """Return the row with an id, if it has a finished unit."""
        return next((row for row in self.rows if row.id == id), None)

    def family(self, algorithm: str) -> list[GridRow]:
        """Return an algorithm's rows, N rising."""
        rows = [row for row in self.rows if row.algorithm == algorithm]
        return sorted(rows, key=lambda row: row.pseudo_population or 0)

    def largest(self, algorithm: str) -> GridRow | None:
        """Return an algorithm's row with the largest N among those with a seed to show."""
        rows = [row for row in self.family(algorithm) if row.used]
        return rows[-1] if rows else None

    def final(self, row: GridRow, action: str, metric: str) -> tuple[npt.NDArray[Any], ...]:
        """Return the values of a row's final windows, and the seed of each value."""
        part = self.metrics.get(row.id)
        if part is None:
            return np.empty(0), np.empty(0, dtype=int)
        chosen = part["final"].astype(bool) & (part["action"] == action)
        return part[metric][chosen].astype(float), part["seed"][chosen]

    def window_means(self, row: GridRow, action: str, metric: str) -> npt.NDArray[Any]:
        """Return, for each value of :meth:`final`, the mean over all actions of its window."""
        part = self.metrics.get(row.id)
        if part is None:
            return np.empty(0)
        final = part["final"].astype(bool)
        windows = np.stack([part["seed"][final], part["step"][final]])
        _, window = np.unique(windows, axis=1, return_inverse=True)
        means = np.bincount(window, part[metric][final]) / np.bincount(window)
        return np.asarray(means[window][part["action"][final] == action])

    def training_return(self, row: GridRow) -> float | None:
        """Average the training return over the final windows in which an episode ended."""
        part = self.metrics.get(row.id)
        if part is None:
            return None
        returns = part["training_return"][part["final"].astype(bool)]
        returns = returns[np.isfinite(returns)]
        return float(returns.mean()) if returns.size else None

    def policies(self, row: GridRow) -> dict[int, npt.NDArray[np.float64]]:
        """Return each seed's policy probabilities, (cells, 4), with zero where none is stored."""
        part, env = self.policy.get(row.id), self.environment
        if part is None:
            return {}
        order = np.argsort(ACTIONS)
        actions = order[np.searchsorted(np.array(ACTIONS)[order], part["action"])]
        found = {}
        for seed in np.unique(part["seed"]):
            chosen = part["seed"] == seed
            probabilities = np.zeros((env.width * env.height, len(ACTIONS)))
            cells = part["cell"][chosen].astype(int)
            probabilities[cells, actions[chosen]] = part["probability"][chosen]
            found[int(seed)] = np.nan_to_num(probabilities)
        return found


class MetricSummary(TypedDict):
    """One metric with and without the windows outside 1.5 interquartile ranges."""

    trimmed: PooledStatistics
    untrimmed: PooledStatistics


class RowSummary(TypedDict):
    """One row: how many seeds, which of them diverged, and action -> metric -> figures."""

    seeds_run: int
    seeds_diverged: list[int]
    metrics: dict[str, dict[str, MetricSummary]]


Summary = dict[str, RowSummary]
"""Row id -> figures; the content of ``summary.json``."""


def load(folder: RunFolder, manifest: Manifest) -> Run:
    """Read what has finished of a run.

    Raises
    ------
    StoreError
        If no unit has finished, or a table or the timing is damaged.
    """
    rows = tuple(GridRow(entry, *seeds_of(part)) for entry, part in finished_rows(folder, manifest))
    tables = (
        read_table(folder, "metrics", *_MEASURED),
        read_table(folder, "calibration", *_CALIBRATED),
        read_table(folder, "policy", "action", "cell", "probability"),
    )
    metrics, calibration, policy = (_survivors(parts, rows) for parts in tables)
    run = Run(manifest, rows, metrics, calibration, policy, _read_timing(folder))
    _check_policy(folder, run)
    return run


def summarise(run: Run) -> Summary:
    """Summarise a run: the final windows of all seeds that did not diverge, pooled."""
    return {
        row.id: RowSummary(
            seeds_run=len(row.seeds),
            seeds_diverged=sorted(row.diverged),
            metrics={
                action: {metric: _metric(run, row, action, metric) for metric in METRICS}
                for action in ACTIONS
            },
        )
        for row in run.rows
    }


def _metric(run: Run, row: GridRow, action: str, metric: str) -> MetricSummary:
    values, seeds = run.final(row, action, metric)
    return MetricSummary(
        trimmed=pooled_statistics(values, seeds, run.window_means(row, action, metric)),
        untrimmed=pooled_statistics(values, seeds),
    )


def _survivors(parts: Mapping[str, Columns], rows: Sequence[Row]) -> dict[str, Columns]:
    """Take the diverged seeds out of each row, and the rows that have no others."""
    diverged = {row.id: list(row.diverged) for row in rows}
    found = {}
    for id, part in parts.items():
        kept = ~np.isin(part["seed"], diverged.get(id, []))
        if kept.any():
            found[id] = {name: values[kept] for name, values in part.items()}
    return found


def _read_timing(folder: RunFolder) -> Timing | None:
    if not (folder.path / TIMING).is_file():
        return None
    try:
        return Timing.model_validate(clean(folder.read_json(TIMING)))
    except pydantic.ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise StoreError(f"{folder.path / TIMING} is damaged at {place}.") from None


def _check_policy(folder: RunFolder, run: Run) -> None:
    """Refuse cells and actions that are not on the grid."""
    try:
        cells = run.environment.width * run.environment.height
    except (TypeError, ValueError) as error:
        raise StoreError(f"{folder.path}: its environment is wrong: {error}.") from None
    for part in run.policy.values():
        inside = (part["cell"] >= 0) & (part["cell"] < cells) & np.isin(part["action"], ACTIONS)
        if not inside.all():
            raise StoreError(f"{folder.path}: the tables of policy leave the grid.")
