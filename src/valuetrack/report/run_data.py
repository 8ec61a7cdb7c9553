"""What every report reads from a run: its manifest, its finished seeds and its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from valuetrack.io.manifest import Manifest
from valuetrack.io.manifest import Row as Entry
from valuetrack.io.run_folder import Columns, RunFolder, StoreError

_TEXTS = {"row", "action", "kind", "visits"}


@dataclass(frozen=True)
class Row:
    """A row of the run with its finished seeds.

    Attributes
    ----------
    entry
        What the manifest says about it.
    seeds
        Those that have finished, the diverged ones included.
    diverged
        The update at which each diverged seed did so.
    wall_seconds
        The time each seed took.
    """

    entry: Entry
    seeds: tuple[int, ...]
    diverged: Mapping[int, int]
    wall_seconds: Mapping[int, float]

    @property
    def id(self) -> str:
        """The row's id, such as ``lktd-10000``."""
        return self.entry.id

    @property
    def algorithm(self) -> str:
        """The algorithm's id, such as ``lktd``."""
        return self.entry.algorithm

    @property
    def label(self) -> str:
        """The row's name for readers, such as ``LKTD``."""
        return self.entry.label

    @property
    def used(self) -> tuple[int, ...]:
        """The seeds that count: those that did not diverge."""
        return tuple(seed for seed in self.seeds if seed not in self.diverged)

    @property
    def counts(self) -> dict[str, object]:
        """What a summary says of the seeds of any row."""
        return {"seeds_run": len(self.seeds), "seeds_diverged": sorted(self.diverged)}


Named = Sequence[tuple[str, Row]]
"""Rows, each with the name that readers are to see."""


def read_manifest(folder: RunFolder) -> Manifest:
    """Read a run's manifest; the folder has checked what it says."""
    return Manifest.model_validate(folder.manifest())


def planned(entry: Entry) -> int:
    """Return how many seeds a row was to have."""
    return sum(count for _, count in entry.units)


def finished_rows(
    folder: RunFolder, manifest: Manifest, *columns: str
) -> Iterator[tuple[Row, Columns]]:
    """Go through the rows with a finished seed, in the manifest's order, with their seeds' table.

    Parameters
    ----------
    folder, manifest
        The run.
    columns
        What the table must have besides seed, divergence and time.

    Raises
    ------
    StoreError
        If nothing is finished, a row is not in the manifest, or a column is missing or not whole.
    """
    tables = read_table(folder, "seeds", "diverged_at", "wall_seconds", *columns)
    if not tables:
        raise StoreError(
            f"{folder.path} has nothing to report yet: none of its units has finished. Continue "
            "the run, then ask again."
        )
    if strangers := sorted(tables.keys() - {entry.id for entry in manifest.rows}):
        raise StoreError(f"{folder.path} holds rows that its manifest does not name: {strangers}.")
    for name in ("seed", "diverged_at"):
        if not all(np.isfinite(table[name]).all() for table in tables.values()):
            raise StoreError(f"{folder.path}: some tables of seeds have no {name!r}.")
    for entry in manifest.rows:
        if table := tables.get(entry.id):
            seeds = table["seed"].astype(int).tolist()
            stopped = zip(seeds, table["diverged_at"].astype(int).tolist(), strict=True)
            diverged = {seed: update for seed, update in stopped if update >= 0}
            wall = dict(zip(seeds, table["wall_seconds"].astype(float).tolist(), strict=True))
            yield Row(entry, tuple(sorted(seeds)), diverged, wall), table


def read_table(folder: RunFolder, name: str, *columns: str) -> dict[str, Columns]:
    """Read a table and split it by row; texts become fixed-width, which compare fast.

    Raises
    ------
    StoreError
        If the table lacks ``row``, ``seed`` or one of the named columns, or a number is text.
    """
    table = folder.table(name)
    if not table:
        return {}
    for column in ("row", "seed", *columns):
        if column not in table:
            raise StoreError(f"{folder.path}: the tables of {name} have no column {column!r}.")
        if column not in _TEXTS and table[column].dtype.kind not in "biuf":
            raise StoreError(f"{folder.path}: {column!r} in the tables of {name} is not a number.")
    table = {
        column: values.astype(str) if values.dtype == object else values
        for column, values in table.items()
    }
    return {
        str(id): {column: values[table["row"] == id] for column, values in table.items()}
        for id in np.unique(table["row"])
    }


def diverged_notes(rows: Named) -> list[str]:
    """Name the seeds that count in no average."""
    return [
        f"{name}: diverged and left out: "
        + ", ".join(f"seed {seed} (update {row.diverged[seed]})" for seed in sorted(row.diverged))
        + "."
        for name, row in rows
        if row.diverged
    ]


def unfinished_notes(manifest: Manifest, rows: Sequence[Row], env: str | None = None) -> list[str]:
    """Name the rows, of one environment or all, of which no seed has finished."""
    finished = {row.id for row in rows}
    asked = (entry for entry in manifest.rows if env in {None, entry.env})
    missing = [entry.id for entry in asked if entry.id not in finished]
    return [f"Not finished: {', '.join(missing)}."] if missing else []
