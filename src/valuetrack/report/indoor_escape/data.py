"""A run of the indoor escape: its tables split by row, without diverged seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypedDict

import numpy as np
import pydantic

from valuetrack.envs.indoor_escape import IndoorEscape
from valuetrack.io.manifest import Line, Manifest
from valuetrack.io.run_folder import Columns, RunFolder, StoreError
from valuetrack.report.run_data import Row, diverged_notes, finished_rows, read_table
from valuetrack.report.statistics import PooledStatistics, pooled_statistics
from valuetrack.types import Floats, NDArray

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


class FinalWindows(NamedTuple):
    """The final windows of a row, one entry each: the value of an action, and the seed.

    ``means`` is the mean over all actions, by which the paper judges whether to cut a window.
    """

    values: Floats
    seeds: NDArray
    means: Floats


class MetricSummary(TypedDict):
    """One metric with and without the windows outside 1.5 interquartile ranges."""

    trimmed: PooledStatistics
    untrimmed: PooledStatistics


@dataclass(frozen=True, eq=False)
class GridRow(Row):
    """A row of this experiment, which may have a pseudo-population N.

    ``measured``, ``calibration`` and ``policy`` are its tables without the diverged seeds, empty
    if no seed is left.
    """

    measured: Columns
    calibration: Columns
    policy: Columns

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

    def final(self, action: str, metric: str) -> FinalWindows:
        """Return the final windows."""
        if not self.measured:
            return FinalWindows(np.empty(0), np.empty(0, dtype=int), np.empty(0))
        part, final = self.measured, self.measured["final"].astype(bool)
        values, seeds = part[metric][final].astype(float), part["seed"][final]
        windows = np.stack([seeds, part["step"][final]])
        _, window = np.unique(windows, axis=1, return_inverse=True)
        means = np.bincount(window, values) / np.bincount(window)
        chosen = part["action"][final] == action
        return FinalWindows(values[chosen], seeds[chosen], means[window][chosen])

    @cached_property
    def metrics(self) -> dict[str, dict[str, MetricSummary]]:
        """Action -> metric -> figures of the final windows of all seeds, pooled."""
        return {
            action: {metric: _summary(self.final(action, metric)) for metric in METRICS}
            for action in ACTIONS
        }

    def trimmed(self, action: str, metric: str) -> PooledStatistics:
        """Return the figures that stand beside the paper's, which are trimmed too."""
        return self.metrics[action][metric]["trimmed"]

    @property
    def training_return(self) -> float | None:
        """The mean training return of the final windows in which an episode ended."""
        if not self.measured:
            return None
        returns = self.measured["training_return"][self.measured["final"].astype(bool)]
        returns = returns[np.isfinite(returns)]
        return float(returns.mean()) if returns.size else None


def _summary(windows: FinalWindows) -> MetricSummary:
    return MetricSummary(
        trimmed=pooled_statistics(*windows),
        untrimmed=pooled_statistics(windows.values, windows.seeds),
    )


class TimingRow(pydantic.BaseModel):
    """The measured time of one update of an algorithm with one network and batch size."""

    algorithm: Line
    hidden: tuple[int, ...]
    batch_size: int
    inner_iterations: int
    ms_per_update: float
    ms_per_iteration: float
    low: float | None = None
    high: float | None = None


class Timing(pydantic.BaseModel):
    """The content of ``timing.json``."""

    machine: object = None
    rows: tuple[TimingRow, ...] = ()


@dataclass(frozen=True)
class Run:
    """A run read from its folder; its rows are those with a finished unit, in their order."""

    manifest: Manifest
    rows: tuple[GridRow, ...]
    timing: Timing | None

    @property
    def steps(self) -> int:
        """The environment steps of each seed."""
        return max(row.entry.steps for row in self.rows)

    @property
    def named(self) -> list[tuple[str, GridRow]]:
        """The rows with their names."""
        return [(row.name, row) for row in self.rows]

    @property
    def environment(self) -> IndoorEscape:
        """The grid; options in the manifest that the grid does not have are not read."""
        options = self.rows[0].entry.env_options
        known = IndoorEscape.__dataclass_fields__.keys() & options.keys()
        return IndoorEscape(**{name: options[name] for name in known})

    @property
    def diverged_notes(self) -> list[str]:
        """Sentences that name the diverged seeds."""
        return diverged_notes(self.named)

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

    def policies(self, row: GridRow) -> dict[int, Floats]:
        """Return each seed's policy probabilities, (cells, 4), with zero where none is stored."""
        part, env = row.policy, self.environment
        if not part:
            return {}
        actions = (part["action"][:, None] == np.array(ACTIONS)).argmax(axis=1)
        found: dict[int, Floats] = {}
        for seed in np.unique(part["seed"]):
            chosen = part["seed"] == seed
            probabilities = np.zeros((env.width * env.height, len(ACTIONS)))
            cells = part["cell"][chosen].astype(int)
            probabilities[cells, actions[chosen]] = part["probability"][chosen]
            found[int(seed)] = np.nan_to_num(probabilities)
        return found


def load(folder: RunFolder, manifest: Manifest) -> Run:
    """Read what has finished of a run.

    Raises
    ------
    StoreError
        If no unit has finished, or a table or the timing is damaged.
    """
    finished = [row for row, _ in finished_rows(folder, manifest)]
    measured = read_table(folder, "metrics", *_MEASURED)
    calibration = read_table(folder, "calibration", *_CALIBRATED)
    policy = read_table(folder, "policy", "action", "cell", "probability")
    rows = (
        GridRow(
            **vars(row),
            measured=_survivors(measured, row),
            calibration=_survivors(calibration, row),
            policy=_survivors(policy, row),
        )
        for row in finished
    )
    run = Run(manifest, tuple(rows), _read_timing(folder))
    _check_policy(folder, run)
    return run


def summarise(run: Run) -> dict[str, object]:
    """Return the content of ``summary.json``: each row's seeds and its figures over them."""
    return {row.id: {**row.counts, "metrics": row.metrics} for row in run.rows}


def _survivors(table: Mapping[str, Columns], row: Row) -> Columns:
    """Return a row's part of a table without the diverged seeds; empty if there are no others."""
    part = table.get(row.id, {})
    kept = ~np.isin(part.get("seed", ()), list(row.diverged))
    return {name: values[kept] for name, values in part.items()} if kept.any() else {}


def _read_timing(folder: RunFolder) -> Timing | None:
    if not (folder.path / TIMING).is_file():
        return None
    try:
        return Timing.model_validate(folder.read_json(TIMING))
    except pydantic.ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise StoreError(f"{folder.path / TIMING} is damaged at {place}.") from None


def _check_policy(folder: RunFolder, run: Run) -> None:
    """Refuse cells and actions that are not on the grid."""
    try:
        cells = run.environment.width * run.environment.height
    except (TypeError, ValueError) as error:
        raise StoreError(f"{folder.path}: its environment is wrong: {error}.") from None
    for part in (row.policy for row in run.rows if row.policy):
        inside = (part["cell"] >= 0) & (part["cell"] < cells) & np.isin(part["action"], ACTIONS)
        if not inside.all():
            raise StoreError(f"{folder.path}: the tables of policy leave the grid.")
