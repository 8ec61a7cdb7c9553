"""A run's folder: what was asked for, what came out, and where to resume.

::

    manifest.json                          what was asked for: see :mod:`valuetrack.io.manifest`
    units/<row>/<unit>/progress.jsonl      small records, appended while the unit runs
    units/<row>/<unit>/grid.json           what the maps of a grid are of, and the exact values
    units/<row>/<unit>/maps.jsonl          a few maps of a grid's values, appended like the records
    units/<row>/<unit>/checkpoint.vt       the state of an unfinished unit
    units/<row>/<unit>/*.parquet           the tables of a finished unit
    units/<row>/<unit>/unit.json           what came out, with the tables' checksums; written last

A unit is a group of seeds of one row, and is finished when its ``unit.json`` exists. Every file
except the two ``.jsonl`` is replaced as a whole, so a process killed at any moment leaves either
the old file or the new one. Checkpoints, tables and ``unit.json`` are verified when they are read.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from valuetrack.io import array_file, progress
from valuetrack.io.arrays import pack_text, unpack_text
from valuetrack.io.atomic import temporary_prefix, write_atomically
from valuetrack.io.checksums import is_sealed, seal
from valuetrack.io.errors import ModelFileError, StoreError, StrPath, reading, reason, shown
from valuetrack.io.manifest import check_manifest, is_file_name
from valuetrack.io.tables import Columns, read_table, stack_tables, unit_damaged, write_table
from valuetrack.types import Arrays, Json, NDArray

try:
    import fcntl
except ImportError:  # Windows; there two runs do not exclude each other
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "CHECKPOINT", "GRID", "MANIFEST", "MAPS", "PROGRESS", "UNIT", "UNITS", "Columns", "RunFolder",
    "StoreError",
]  # fmt: skip

MANIFEST = "manifest.json"
UNITS = "units"
UNIT = "unit.json"
PROGRESS = "progress.jsonl"
GRID = "grid.json"
MAPS = "maps.jsonl"
CHECKPOINT = "checkpoint.vt"
LOCK = ".lock"
WAIT_SECONDS = 0.2
"""How often to look whether a lock is free."""
TABLES = "tables"
"""The key in ``unit.json`` of the tables' checksums."""


class StopFlag(Protocol):
    """Whatever can say that it is time to stop, such as ``threading.Event``."""

    def is_set(self) -> bool:
        """Return whether to stop at the next safe place."""
        ...


class RunFolder:
    """One run on disk.

    Whatever is missing, damaged or in the way is a :class:`StoreError` in one sentence.

    Examples
    --------
    ::

        folder = RunFolder.create("runs/cartpole", manifest)
        with folder.lock(["lktd"]):
            folder.append_progress("lktd", "seeds-0000-0004", {"steps": 1000, "loss": 0.1})
            folder.finish_unit("lktd", "seeds-0000-0004", {"metrics": columns}, {"updates": 900})
        folder.table("metrics", columns=["row", "seed", "mse"])
    """

    def __init__(self, path: StrPath) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: StrPath, manifest: Mapping[str, object]) -> RunFolder:
        """Make a new run where there is no folder, an empty one, or one left by a failed start."""
        folder = cls(path)
        check_manifest(folder.path / MANIFEST, manifest)
        if folder.path.exists() and not folder.path.is_dir():
            raise StoreError.about(path, "is a file", "choose a folder with --out")
        _check_unused(folder.path)
        folder.path.mkdir(parents=True, exist_ok=True)
        with folder.changing():
            _check_unused(folder.path)  # again, as two processes may create it at once
            folder.write_json(MANIFEST, manifest)
        return folder

    @classmethod
    def open(cls, path: StrPath) -> RunFolder:
        """Open an existing run, whose manifest is checked."""
        folder = cls(path)
        if not (folder.path / MANIFEST).is_file():
            raise StoreError.about(path, f"holds no run: it has no {MANIFEST}")
        folder.manifest()
        return folder

    def manifest(self) -> Json:
        """Read the manifest; see :class:`valuetrack.io.manifest.Manifest` for what it says."""
        content = self.read_json(MANIFEST)
        check_manifest(self.path / MANIFEST, content)
        return content

    def read_json(self, name: str) -> Json:
        """Read a JSON file of the folder."""
        return _read_json(self.path / name)[1]

    def write_json(self, name: str, content: Mapping[str, object]) -> None:
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
        """Keep other processes from running the same rows meanwhile; refuse if one does."""
        with contextlib.ExitStack() as held:
            for row in sorted(set(rows)):
                path = self.path / UNITS / _checked(row)
                path.mkdir(parents=True, exist_ok=True)
                file = held.enter_context(open(path / LOCK, "wb"))
                _lock_now(file.fileno(), f"{row} in {shown(self.path)}")
            yield

    @contextlib.contextmanager
    def lock_unit(self, row: str, unit: str, stop: StopFlag) -> Iterator[bool]:
        """Keep other processes from running a unit meanwhile; wait for one that does.

        The lock of a row belongs to the process that plans its units. One that runs a unit for it
        elsewhere may outlive it for a moment. Yields whether the unit is locked: a stop ends the
        waiting.
        """
        with open(self._make_unit(row, unit) / LOCK, "wb") as file:
            yield _lock_in_time(file.fileno(), f"{row}, {unit} in {shown(self.path)}", stop)

    # -- units ------------------------------------------------------------------------------------

    def unit_path(self, row: str, unit: str) -> Path:
        """Return the folder of a unit."""
        return self.path / UNITS / _checked(row) / _checked(unit)

    def is_finished(self, row: str, unit: str) -> bool:
        """Return whether a unit has all its tables."""
        return (self.unit_path(row, unit) / UNIT).is_file()

    def finish_unit(
        self, row: str, unit: str, tables: Mapping[str, Arrays], info: Mapping[str, object]
    ) -> None:
        """Write a unit's tables, then ``unit.json`` with their checksums; drop its checkpoint.

        ``info`` is what else ``unit.json`` says, where NaN and infinity become null.
        """
        path = self._make_unit(row, unit)
        digests = {
            name: write_table(path / f"{name}.parquet", table) for name, table in tables.items()
        }
        text = seal({**progress.plain(info), TABLES: digests})
        write_atomically(path / UNIT, lambda file: file.write(text.encode()))
        (path / CHECKPOINT).unlink(missing_ok=True)

    def unit_info(self, row: str, unit: str) -> Json:
        """Read and verify what ``unit.json`` says."""
        path = self.unit_path(row, unit) / UNIT
        text, content = _read_json(path)
        if not isinstance(content.get(TABLES), dict) or not is_sealed(text, content):
            raise unit_damaged(path, "it is not what its digest says")
        return content

    def finished_units(self) -> Iterator[tuple[str, str, Json]]:
        """Go through the finished units: row, unit and what ``unit.json`` says."""
        for file in sorted(self.path.glob(f"{UNITS}/*/*/{UNIT}")):
            row, unit = file.parent.parent.name, file.parent.name
            yield row, unit, self.unit_info(row, unit)

    def table(self, name: str, columns: Iterable[str] = ()) -> Columns:
        """Read one table of all finished units that have it, one below the other.

        Every unit must have ``columns``. A column besides that some units lack is NaN there.
        """
        required, parts = list(columns), []
        for row, unit, info in self.finished_units():
            if name in info[TABLES]:
                path = self.unit_path(row, unit) / f"{name}.parquet"
                parts.append(read_table(path, str(info[TABLES][name]), required))
        return stack_tables(parts)

    def unit_table(self, row: str, unit: str, name: str) -> Columns:
        """Read one table of a finished unit."""
        digest = str(self.unit_info(row, unit)[TABLES].get(name))
        return read_table(self.unit_path(row, unit) / f"{name}.parquet", digest)

    # -- unfinished units -------------------------------------------------------------------------

    def save_checkpoint(
        self, row: str, unit: str, arrays: Arrays, description: Mapping[str, object]
    ) -> None:
        """Keep the state of an unfinished unit; if that fails, the one before is unchanged."""
        path = self._make_unit(row, unit) / CHECKPOINT
        try:
            array_file.save(path, pack_text(arrays), description)
        except ModelFileError as error:
            raise StoreError(str(error)) from error

    def load_checkpoint(self, row: str, unit: str) -> tuple[dict[str, NDArray], Json] | None:
        """Return the arrays and the description of an unfinished unit, or ``None``."""
        path = self.unit_path(row, unit) / CHECKPOINT
        if not path.exists():
            return None
        try:
            arrays, description = array_file.load(path, what="checkpoint")
            return unpack_text(arrays), description
        except ValueError as error:
            problem = getattr(error, "problem", "") or f"is damaged: {error}"
            raise StoreError.about(path, problem, "delete it to begin this unit again") from error

    def append_progress(self, row: str, unit: str, record: Mapping[str, object]) -> None:
        """Append a record to a unit's progress, which other processes may read at any time."""
        progress.append_record(self._make_unit(row, unit) / PROGRESS, record)

    def append_map(
        self, row: str, unit: str, grid: Mapping[str, object], frame: Mapping[str, object]
    ) -> None:
        """Append a map of a grid's values, and say what the grid is if nothing does yet."""
        path = self._make_unit(row, unit)
        if not (path / GRID).is_file():
            text = json.dumps(grid) + "\n"
            write_atomically(path / GRID, lambda file: file.write(text.encode()))
        progress.append_record(path / MAPS, frame)

    def read_progress(self, row: str, unit: str) -> list[Json]:
        """Return the records of a unit so far; a last line that is incomplete is left out."""
        return progress.read_records(self.unit_path(row, unit) / PROGRESS)

    def cut_progress(self, row: str, unit: str, steps: int) -> None:
        """Drop the records and maps with more ``"steps"`` than the checkpoint of a resumed unit.

        They come again. Without this the files would depend on how often a run was resumed.
        """
        for name in (PROGRESS, MAPS):
            progress.cut_records(self.unit_path(row, unit) / name, steps)

    def _make_unit(self, row: str, unit: str) -> Path:
        path = self.unit_path(row, unit)
        path.mkdir(parents=True, exist_ok=True)
        return path


def _checked(name: str) -> str:
    if not is_file_name(name):
        raise StoreError(f"{name!r} cannot be the name of a folder; choose another id.")
    return name


def _lock_now(handle: int, what: str) -> None:
    """Lock a file for as long as it is open, or say who has it."""
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StoreError(f"Another process is running {what}; wait for it or stop it.") from error
    except OSError as error:
        raise StoreError(
            f"{what} cannot be locked: {reason(error)}; choose a folder on another disk."
        ) from error


def _lock_in_time(handle: int, what: str, stop: StopFlag) -> bool:
    """Lock a file for as long as it is open, as soon as that is possible, unless stopped."""
    while not stop.is_set():
        try:
            _lock_now(handle, what)
            return True
        except StoreError as error:
            if not isinstance(error.__cause__, BlockingIOError):
                raise
            time.sleep(WAIT_SECONDS)
    return False


def _check_unused(path: Path) -> None:
    """Raise an error if a folder holds more than a failed start leaves behind.

    That is empty folders for units, lock files and temporary files.
    """
    for found in path.rglob("*") if path.is_dir() else ():
        place = found.relative_to(path).parts
        is_ours = found.is_dir() and place[0] == UNITS
        if not is_ours and not (found.is_file() and _is_leftover(found.name)):
            raise StoreError.about(path, "is not empty", "choose another folder with --out")


def _is_leftover(name: str) -> bool:
    written = (MANIFEST, UNIT, CHECKPOINT, PROGRESS)
    return name == LOCK or name.startswith(tuple(map(temporary_prefix, written)))


def _read_json(path: Path) -> tuple[str, Json]:
    """Return the text of a JSON file, and the object in it."""
    with reading(path, "check the name and its permissions"):
        data = path.read_bytes()
    try:
        text = data.decode()
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = "is damaged: it is not valid JSON"
        raise StoreError.about(path, problem, "take another copy") from error
    if not isinstance(content, dict):
        raise StoreError.about(path, "is damaged: it holds no JSON object", "take another copy")
    return text, content
