"""What every report reads from a run: its manifest, its finished seeds and its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pydantic

from valuetrack.io.run_folder import MANIFEST, Columns, RunFolder, StoreError

FORMAT = 2
_TEXTS = {"row", "action"}

Count = Annotated[int, pydantic.Field(ge=0)]
Options = dict[str, Any]


class _Part(pydantic.BaseModel):
    """A part of the manifest; what a report does not use is not read."""

    model_config = pydantic.ConfigDict(extra="ignore", frozen=True)


class SpecRow(_Part):
    """A row of the experiment: one algorithm with its options in one environment."""

    id: Annotated[str, pydantic.Field(min_length=1)]
    algorithm: str
    env: str
    steps: Count
    env_options: Options = pydantic.Field(default_factory=dict)
    options: Options = pydantic.Field(default_factory=dict)


class RowEntry(SpecRow):
    """A row of the run: also its name for readers, its groups of seeds and its source."""

    label: str
    units: tuple[tuple[Count, Count], ...]
    commit: str | None = None

    @property
    def planned(self) -> int:
        """How many seeds the row was to have."""
        return sum(count for _, count in self.units)


class Spec(_Part):
    """The experiment: how it measures, and all its rows, run or not."""

    measure: Options
    rows: tuple[SpecRow, ...]


class Seeds(_Part):
    """The seeds that were asked for last."""

    first: Count = 0
    count: Count = 0


class Manifest(_Part):
    """A run's ``manifest.json``, format 2, as far as reports need it."""

    format: Literal[2]
    experiment: str
    preset: str
    spec: Spec
    rows: tuple[RowEntry, ...]
    seeds: Seeds = Seeds()
    spec_hash: str | None = None
    versions: Options | None = None
    commit: str | None = None
    machine: Options | None = None
    created: str | None = None
    wall_seconds: float | None = None
    command: str | list[str] | None = None


@dataclass(frozen=True)
class Row:
    """A row of the run with its finished seeds.

    Attributes
    ----------
    entry : RowEntry
        What the manifest says about it.
    seeds : tuple of int
        Those that have finished, the diverged ones included.
    diverged : mapping of int to int
        The update at which each diverged seed did so.
    wall_seconds : mapping of int to float
        The time each seed took.
    """

    entry: RowEntry
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


def clean(content: Any) -> Any:
    """Return JSON data whose texts can be printed anywhere.

    Line breaks become spaces; escape sequences, which a terminal would obey, and other characters
    that print nothing become a replacement character.
    """
    if isinstance(content, str):
        return "".join(_printable(character) for character in content)
    if isinstance(content, dict):
        return {clean(key): clean(value) for key, value in content.items()}
    return [clean(part) for part in content] if isinstance(content, list) else content


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else "\N{REPLACEMENT CHARACTER}"


def read_manifest(folder: RunFolder) -> Manifest:
    """Read a run's manifest.

    Raises
    ------
    StoreError
        If it has another format, or something in it is missing or wrong.
    """
    return parse_manifest(folder.manifest(), str(folder.path / MANIFEST))


def parse_manifest(content: Mapping[str, Any], source: str) -> Manifest:
    """Check the content of a manifest; ``source`` names it in the error."""
    if content.get("format") != FORMAT:
        raise StoreError(
            f"{source} has format {content.get('format')!r}, but this version reads format "
            f"{FORMAT}: repeat the run, or report it with the version that made it."
        )
    try:
        return Manifest.model_validate(clean(dict(content)))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise StoreError(f"{source} is damaged: {place}: {first['msg']}.") from None


def finished_rows(
    folder: RunFolder, manifest: Manifest, *columns: str
) -> Iterator[tuple[RowEntry, Columns]]:
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
    seeds = read_table(folder, "seeds", "diverged_at", "wall_seconds", *columns)
    if not seeds:
        raise StoreError(
            f"{folder.path} has nothing to report yet: none of its units has finished. Continue "
            "the run, then ask again."
        )
    if strangers := sorted(seeds.keys() - {entry.id for entry in manifest.rows}):
        raise StoreError(f"{folder.path} holds rows that its manifest does not name: {strangers}.")
    for name in ("seed", "diverged_at"):
        if not all(np.isfinite(part[name]).all() for part in seeds.values()):
            raise StoreError(f"{folder.path}: some tables of seeds have no {name!r}.")
    return ((entry, seeds[entry.id]) for entry in manifest.rows if entry.id in seeds)


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
        clean(str(id)): {column: values[table["row"] == id] for column, values in table.items()}
        for id in np.unique(table["row"])
    }


def seeds_of(part: Columns) -> tuple[tuple[int, ...], dict[int, int], dict[int, float]]:
    """Return what a `Row` holds besides its entry, from its table of seeds."""
    seeds = [int(seed) for seed in part["seed"]]
    diverged = {s: int(at) for s, at in zip(seeds, part["diverged_at"], strict=True) if at >= 0}
    wall = dict(zip(seeds, map(float, part["wall_seconds"]), strict=True))
    return tuple(sorted(seeds)), diverged, wall


def diverged_notes(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """Name the seeds that count in no average."""
    return [
        f"{name}: diverged and left out: "
        + ", ".join(f"seed {seed} (update {row.diverged[seed]})" for seed in sorted(row.diverged))
        + "."
        for row, name in zip(rows, names, strict=True)
        if row.diverged
    ]


def unfinished_notes(manifest: Manifest, rows: Sequence[Row], env: str | None = None) -> list[str]:
    """Name the rows, of one environment or all, of which no seed has finished."""
    finished = {row.id for row in rows}
    asked = (entry for entry in manifest.rows if env in {None, entry.env})
    missing = [entry.id for entry in asked if entry.id not in finished]
    return [f"Not finished: {', '.join(missing)}."] if missing else []
