"""What a report is made from: the tables of a run, split by row, without diverged seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from valuetrack.envs.indoor_escape import IndoorEscape
from valuetrack.io.run_folder import Columns, RunFolder, StoreError

ACTIONS = ("E", "N", "W", "S")
METRICS = ("mse", "coverage", "credible_coverage", "width", "legal_width")
SAMPLERS = ("lktd", "sgld", "sghmc")
"""The algorithms that draw from a posterior and have a pseudo-population."""

TIMING = "timing.json"


@dataclass(frozen=True)
class Row:
    """One row of the experiment, an algorithm with its settings.

    Attributes
    ----------
    id, algorithm, label : str
        Such as ``lktd-10000``, ``lktd`` and ``LKTD``.
    step_size : float or None
        Of the algorithm.
    pseudo_population : int or None
        The N of the samplers.
    seeds : tuple of int
        Those that were run to the end, the diverged ones included.
    diverged : mapping of int to int
        The update at which each diverged seed did so.
    training_return : float or None
        Mean over the final windows of the other seeds.
    wall_seconds : float
        Sum over all seeds.
    """

    id: str
    algorithm: str
    label: str
    step_size: float | None
    pseudo_population: int | None
    seeds: tuple[int, ...]
    diverged: Mapping[int, int]
    training_return: float | None
    wall_seconds: float

    @property
    def name(self) -> str:
        """The label with N, as it stands in tables and figures."""
        if self.pseudo_population is None:
            return self.label
        return f"{self.label} N={self.pseudo_population}"


@dataclass(frozen=True)
class Run:
    """A run read from its folder.

    ``metrics``, ``calibration`` and ``policy`` map a row's id to its columns, from which diverged
    seeds have been taken out; a row without others has no entry. ``rows`` are those with a
    finished unit, in the manifest's order.
    """

    manifest: Mapping[str, Any]
    rows: tuple[Row, ...]
    metrics: Mapping[str, Columns]
    calibration: Mapping[str, Columns]
    policy: Mapping[str, Columns]
    timing: Mapping[str, Any] | None

    @property
    def steps(self) -> int:
        """Environment steps of each seed."""
        training = self.manifest.get("spec", {}).get("training", {})
        measured = (int(part["step"].max()) for part in self.metrics.values())
        return int(training.get("steps", 0)) or max(measured, default=0)

    def row(self, id: str) -> Row | None:
        """Return the row with an id, if it has a finished unit."""
        return next((row for row in self.rows if row.id == id), None)

    def family(self, algorithm: str) -> list[Row]:
        """Return an algorithm's rows, N rising."""
        rows = [row for row in self.rows if row.algorithm == algorithm]
        return sorted(rows, key=lambda row: row.pseudo_population or 0)

    def largest(self, algorithm: str) -> Row | None:
        """Return an algorithm's row with the largest N that has a seed to show."""
        rows = [row for row in self.family(algorithm) if len(row.seeds) > len(row.diverged)]
        return rows[-1] if rows else None

    def final(self, row: Row, action: str, metric: str) -> tuple[npt.NDArray[Any], ...]:
        """Return the final windows' values of a row's seeds, and the seed of each value."""
        part = self.metrics.get(row.id)
        if part is None:
            return np.empty(0), np.empty(0, dtype=int)
        chosen = part["final"].astype(bool) & (part["action"] == action)
        return part[metric][chosen].astype(float), part["seed"][chosen]


def load(folder: RunFolder) -> Run:
    """Read what is finished of a run.

    Raises
    ------
    StoreError
        If no unit is finished, or one belongs to a row that the manifest does not name.
    """
    manifest = folder.manifest()
    seeds = finished_seeds(folder, manifest)
    diverged = {id: part["seed"][part["diverged_at"] >= 0] for id, part in seeds.items()}
    metrics, calibration, policy = (
        _survivors(by_row(folder.table(name)), diverged)
        for name in ("metrics", "calibration", "policy")
    )
    rows = tuple(
        _row(entry, seeds[entry["id"]], metrics.get(entry["id"], {}))
        for entry in manifest["rows"]
        if entry["id"] in seeds
    )
    timing = folder.read_json(TIMING) if (folder.path / TIMING).is_file() else None
    return Run(manifest, rows, metrics, calibration, policy, timing)


def finished_seeds(folder: RunFolder, manifest: Mapping[str, Any]) -> dict[str, Columns]:
    """Return the table of seeds, split by row.

    Raises
    ------
    StoreError
        If no unit is finished, or one belongs to a row that the manifest does not name.
    """
    seeds = by_row(folder.table("seeds"))
    if not seeds:
        raise StoreError(
            f"{folder.path} has nothing to report yet: no unit of it is finished. Go on with the "
            "run and ask again."
        )
    known = {row["id"] for row in manifest["rows"]}
    if strangers := sorted(seeds.keys() - known):
        raise StoreError(f"{folder.path} holds rows its manifest does not name: {strangers}.")
    return seeds


def environment(run: Run) -> IndoorEscape:
    """Return the environment of a run; keys of the spec that are no options of it are not read."""
    options = dict(run.manifest.get("spec", {}).get("environment", {}))
    names = IndoorEscape.__dataclass_fields__.keys() & options.keys()
    return IndoorEscape(**{name: options[name] for name in names})


def policies(run: Run, row: Row) -> dict[int, npt.NDArray[np.float64]]:
    """Return each seed's policy probabilities, (cells, 4), with zero where none is stored."""
    part = run.policy.get(row.id)
    if part is None:
        return {}
    env = environment(run)
    found = {}
    for seed in np.unique(part["seed"]):
        chosen = part["seed"] == seed
        actions = [ACTIONS.index(action) for action in part["action"][chosen]]
        probabilities = np.zeros((env.width * env.height, len(ACTIONS)))
        probabilities[part["cell"][chosen].astype(int), actions] = part["probability"][chosen]
        found[int(seed)] = np.nan_to_num(probabilities)
    return found


def _row(entry: Mapping[str, Any], part: Columns, metrics: Columns) -> Row:
    population = entry.get("pseudo_population")
    pairs = zip(part["seed"], part["diverged_at"], strict=True)
    return Row(
        id=entry["id"],
        algorithm=entry["algorithm"],
        label=entry["label"],
        step_size=entry.get("step_size"),
        pseudo_population=None if population is None else round(population),
        seeds=tuple(sorted(int(seed) for seed in part["seed"])),
        diverged={int(seed): int(update) for seed, update in pairs if update >= 0},
        training_return=_mean_return(metrics),
        wall_seconds=float(part["wall_seconds"].sum()),
    )


def _mean_return(metrics: Columns) -> float | None:
    """Average the training return over final windows in which an episode ended."""
    if "training_return" not in metrics:
        return None
    returns = metrics["training_return"][metrics["final"].astype(bool)]
    returns = returns[np.isfinite(returns)]
    return float(returns.mean()) if returns.size else None


def by_row(columns: Columns) -> dict[str, Columns]:
    """Split a table by its ``row`` column; texts become fixed-width, which compare fast."""
    if not columns:
        return {}
    columns = {
        name: values.astype(str) if values.dtype == object else values
        for name, values in columns.items()
    }
    return {
        str(id): {name: values[columns["row"] == id] for name, values in columns.items()}
        for id in np.unique(columns["row"])
    }


def _survivors(
    parts: Mapping[str, Columns], diverged: Mapping[str, npt.NDArray[Any]]
) -> dict[str, Columns]:
    """Take the diverged seeds out of each row, and the rows that have no others."""
    found = {}
    for id, part in parts.items():
        kept = ~np.isin(part["seed"], diverged.get(id, []))
        if kept.any():
            found[id] = {name: values[kept] for name, values in part.items()}
    return found
