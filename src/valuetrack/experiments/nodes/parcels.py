"""A unit's files on their way between a node and the run's folder, where no disk is shared.

Each is checked against its SHA-256 when it arrives, and replaces the old one as a whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from valuetrack.io.atomic import write_atomically
from valuetrack.io.run_folder import GRID, MAPS

UNIT, PROGRESS, CHECKPOINT = "unit.json", "progress.jsonl", "checkpoint.vt"
STATE = (GRID, MAPS, CHECKPOINT)
"""What travels when a unit has been saved."""


class DamagedError(RuntimeError):
    """A file has changed on its way."""


class Parcel(NamedTuple):
    """A file of a unit, or what was appended to it from ``begin`` on."""

    name: str
    data: bytes
    digest: str
    begin: int = 0


def pack(path: Path, begin: int = 0) -> Parcel:
    """Return a file, or its end, as a parcel."""
    with open(path, "rb") as file:
        file.seek(begin)
        data = file.read()
    return Parcel(path.name, data, hashlib.sha256(data).hexdigest(), begin)


def pack_unfinished(folder: Path) -> list[Parcel]:
    """Return what an unfinished unit goes on from, if there is anything."""
    return [pack(folder / name) for name in (PROGRESS, *STATE) if (folder / name).is_file()]


def pack_finished(folder: Path) -> list[Parcel]:
    """Return all files of a finished unit; the one that says so comes last."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name[0] != "."]
    return [pack(path) for path in sorted(files, key=lambda path: path.name == UNIT)]


def unpack(parcels: Sequence[Parcel], folder: Path) -> None:
    """Write files into a unit's folder; a finished unit has no checkpoint.

    Raises
    ------
    DamagedError
        Before anything is written, if a parcel is not what was sent.
    """
    for parcel in parcels:
        name = parcel.name
        if hashlib.sha256(parcel.data).hexdigest() != parcel.digest or Path(name).name != name:
            raise DamagedError(f"{name} has changed on its way; run it again.")
    folder.mkdir(parents=True, exist_ok=True)
    for parcel in parcels:
        _write(parcel, folder / parcel.name)
        if parcel.name == UNIT:
            (folder / CHECKPOINT).unlink(missing_ok=True)


def _write(parcel: Parcel, path: Path) -> None:
    if not parcel.begin:
        write_atomically(path, lambda file: file.write(parcel.data))
        return
    with open(path, "r+b") as file:
        file.truncate(parcel.begin)  # what a killed process left behind
        file.seek(parcel.begin)
        file.write(parcel.data)


class Courier:
    """Notices what is new in the folder of a unit that runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sent: tuple[int, int] | None = None  # which file of progress, up to where
        self._saved = self._state()

    def news(self) -> list[Parcel]:
        """Return new lines of progress, and the unit's state if it was saved since."""
        parcels = []
        with contextlib.suppress(FileNotFoundError):
            parcels += self._progress()
        saved = self._state()
        if saved not in (None, self._saved):
            with contextlib.suppress(FileNotFoundError):  # the unit has finished meanwhile
                state = [self._folder / name for name in STATE]
                parcels += [pack(path) for path in state if path.is_file()]
                self._saved = saved
        return parcels

    def _progress(self) -> list[Parcel]:
        """Return the lines since the last time; all of them if the file was replaced."""
        found = os.stat(self._folder / PROGRESS)
        file, end = self._sent or (0, 0)
        begin = end if file == found.st_ino and end <= found.st_size else 0
        if self._sent is not None and begin == found.st_size:
            return []
        parcel = pack(self._folder / PROGRESS, begin)
        self._sent = (found.st_ino, begin + len(parcel.data))
        return [parcel]

    def _state(self) -> int | None:
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self._folder / CHECKPOINT).st_mtime_ns
        return None
