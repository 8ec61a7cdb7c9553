r"""A run's folder: what was asked for, what came out, and where to go on.

::

    manifest.json                    the spec, its hash, seeds, versions, times
    units/<row>/<unit>/metrics.parquet ...   tables of a finished unit, a group of seeds of a row
    units/<row>/<unit>/unit.json     its seeds, wall time, diverged seeds; written last
    units/<row>/<unit>/checkpoint.npz        the state of an unfinished unit
    summary.json, report.html, ...   made from the above

Every file is written under a temporary name and then renamed, so that a process killed at any
moment leaves either the old file or the new one. A unit is finished when its ``unit.json`` is
there. Nothing is ever overwritten that belongs to another spec.
"""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from valuetrack.files import write_atomically

try:
    import fcntl
except ImportError:  # Windows has none, and no two runs there exclude each other
    fcntl = None  # type: ignore[assignment]

Columns = dict[str, npt.NDArray[Any]]
"""A table as columns of equal length."""

MANIFEST = "manifest.json"
UNIT = "unit.json"
LOCK = ".lock"
CHECKPOINT = "checkpoint.npz"


class StoreError(ValueError):
    """A run's folder cannot be used as asked; the message says why and what to do."""


class RunFolder:
    """One run on disk."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: str | os.PathLike[str], manifest: Mapping[str, Any]) -> RunFolder:
        """Make a new run in an empty or absent folder."""
        folder = cls(path)
        if folder.path.exists() and not folder.path.is_dir():
            raise StoreError(f"{path} is a file; choose a folder with --out.")
        if folder.path.is_dir() and any(folder.path.iterdir()):
            raise StoreError(f"{path} is not empty; choose another folder with --out.")
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.write_json(MANIFEST, manifest)
        return folder

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunFolder:
        """Open a run that is there."""
        folder = cls(path)
        if not (folder.path / MANIFEST).is_file():
            raise StoreError(f"{path} holds no run: there is no {MANIFEST} in it.")
        folder.manifest()
        return folder

    def manifest(self) -> dict[str, Any]:
        """Read the manifest."""
        return self.read_json(MANIFEST)

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a JSON file of the folder."""
        try:
            content = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise StoreError(f"{self.path / name} is damaged: it is not valid JSON.") from error
        if not isinstance(content, dict):
            raise StoreError(f"{self.path / name} is damaged: it holds no JSON object.")
        return content

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file of the folder."""
        text = json.dumps(content, indent=2) + "\n"
        write_atomically(self.path / name, lambda file: file.write(text.encode()))

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Let no other process change the manifest meanwhile; wait for one that does."""
        with open(self.path / LOCK, "wb") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def lock(self, rows: Iterable[str]) -> Iterator[None]:
        """Keep other processes from running the same rows meanwhile."""
        with contextlib.ExitStack() as held:
            for row in rows:
                path = self.path / "units" / row
                path.mkdir(parents=True, exist_ok=True)
                file = held.enter_context(open(path / LOCK, "wb"))
                try:
                    if fcntl is not None:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    raise StoreError(
                        f"Another process is running {row} in {self.path}; wait for it or stop it."
                    ) from error
            yield

    def unit_path(self, row: str, unit: str) -> Path:
        """Return where a unit's files are."""
        return self.path / "units" / row / unit

    def is_finished(self, row: str, unit: str) -> bool:
        """Return whether a unit has all its tables."""
        return (self.unit_path(row, unit) / UNIT).is_file()

    def finish_unit(
        self, row: str, unit: str, tables: Mapping[str, Columns], info: Mapping[str, Any]
    ) -> None:
        """Write a unit's tables, then what says it is finished, then drop its checkpoint."""
        path = self.unit_path(row, unit)
        path.mkdir(parents=True, exist_ok=True)
        for name, columns in tables.items():
            write_table(path / f"{name}.parquet", columns)
        self.write_json(str((path / UNIT).relative_to(self.path)), info)
        (path / CHECKPOINT).unlink(missing_ok=True)

    def save_checkpoint(self, row: str, unit: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Keep the state of an unfinished unit, in place of the one before."""
        path = self.unit_path(row, unit)
        path.mkdir(parents=True, exist_ok=True)
        write_atomically(
            path / CHECKPOINT, lambda file: np.savez(file, allow_pickle=False, **arrays)
        )

    def load_checkpoint(self, row: str, unit: str) -> Columns | None:
        """Return the state of an unfinished unit, if there is one."""
        path = self.unit_path(row, unit) / CHECKPOINT
        if not path.is_file():
            return None
        try:
            # Opened here, for NumPy leaves a file that it cannot read open.
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise StoreError(f"{path} is damaged; delete it to begin this unit again.") from error

    def finished_units(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Go through the finished units: row, unit and what ``unit.json`` says."""
        for file in sorted(self.path.glob(f"units/*/*/{UNIT}")):
            row, unit = file.parent.parent.name, file.parent.name
            yield row, unit, self.read_json(str(file.relative_to(self.path)))

    def table(self, name: str) -> Columns:
        """Read one table of all finished units, one after the other.

        A column that some units lack, as an earlier version made them, is NaN there.
        """
        paths = (
            self.unit_path(row, unit) / f"{name}.parquet" for row, unit, _ in self.finished_units()
        )
        parts = [part for path in paths if path.is_file() and (part := read_table(path))]
        if not parts:
            return {}
        lengths = [len(next(iter(part.values()))) for part in parts]
        return {
            key: np.concatenate(
                [
                    part.get(key, np.full(length, np.nan))
                    for part, length in zip(parts, lengths, strict=True)
                ]
            )
            for key in dict.fromkeys(key for part in parts for key in part)
        }


def write_table(path: Path, columns: Columns) -> None:
    """Write columns to a Parquet file."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.parquet as pq  # noqa: PLC0415

    table = pa.table(columns)
    write_atomically(path, lambda file: pq.write_table(table, file, compression="zstd"))


def read_table(path: Path) -> Columns:
    """Read the columns of a Parquet file."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreError(f"{path} is damaged: it is not a Parquet file.") from error
    return {name: table[name].to_numpy() for name in table.column_names}
