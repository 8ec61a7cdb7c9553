"""Files of a run folder that somebody else may have made: bounded reading, no links."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from valuetrack.io.errors import StoreError, StrPath, reason
from valuetrack.types import Json

MOST_JSON = 16_000_000
"""The largest JSON document that is read, in bytes."""
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a pipe in the place of a file would never open
FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
HAS_HANDLES = os.open in os.supports_dir_fd
Names = Sequence[str]


class Stamp(NamedTuple):
    """What differs when a file was replaced, appended to or written again."""

    inode: int
    size: int
    modified: int


class Folder:
    """A run folder, of which files are read by their names in it.

    Whatever is wrong with one of them is a :class:`StoreError` in one sentence.
    """

    def __init__(self, path: StrPath) -> None:
        self.path = Path(path).resolve()

    def stamp(self, names: Names) -> Stamp | None:
        """Return what the file is like now, or ``None`` if there is none."""
        try:
            found = os.lstat(self.path.joinpath(*names))
        except (OSError, ValueError):
            return None
        return Stamp(found.st_ino, found.st_size, found.st_mtime_ns)

    def read(self, names: Names, most: int) -> bytes:
        """Return a whole file of at most ``most`` bytes."""
        with self.opened(names) as handle:
            data = read_at(handle, 0, most + 1)
        if len(data) > most:
            raise self.error(names, f"is larger than {most / 1e6:.0f} MB, too large to be shown")
        return data

    def read_json(self, names: Names, most: int = MOST_JSON) -> Json:
        """Return the JSON object in a file."""
        try:
            content = json.loads(self.read(names, most).decode())
        except (ValueError, RecursionError) as error:
            if isinstance(error, StoreError):
                raise
            raise self.error(names, "is damaged: it is not valid JSON") from error
        if not isinstance(content, dict):
            raise self.error(names, "is damaged: it holds no JSON object")
        return content

    @contextlib.contextmanager
    def opened(self, names: Names) -> Iterator[int]:
        """Open a regular file; no part of its path may be a link."""
        with contextlib.ExitStack() as held:
            try:
                handle = self._open(names, held)
                is_file = stat.S_ISREG(os.fstat(handle).st_mode)
            except (OSError, ValueError) as error:
                why = reason(error) if isinstance(error, OSError) else "its name is none"
                if self._has_link(names):
                    why = "a link is in its path, and the page follows none"
                raise self.error(names, f"cannot be read: {why}") from error
            if not is_file:
                raise self.error(names, "cannot be read: it is not a file")
            yield handle

    def error(self, names: Names, problem: str) -> StoreError:
        """Return the error about a file, named as it is in the folder."""
        return StoreError.about("/".join(names), problem)

    def _open(self, names: Names, held: contextlib.ExitStack) -> int:
        def keep(handle: int) -> int:
            held.callback(os.close, handle)
            return handle

        flags = os.O_RDONLY | NO_LINK | NO_WAIT
        if not HAS_HANDLES:  # Windows
            path = self.path.joinpath(*names)
            if not path.resolve().is_relative_to(self.path):
                raise OSError("it is outside the folder")
            return keep(os.open(path, flags | getattr(os, "O_BINARY", 0)))
        place = keep(os.open(self.path, FOLDER))
        for name in names[:-1]:
            place = keep(os.open(name, FOLDER | NO_LINK, dir_fd=place))
        return keep(os.open(names[-1], flags, dir_fd=place))

    def _has_link(self, names: Names) -> bool:
        paths = (self.path.joinpath(*names[: i + 1]) for i in range(len(names)))
        with contextlib.suppress(OSError, ValueError):
            return any(path.is_symlink() for path in paths)
        return False


def read_at(handle: int, start: int, most: int) -> bytes:
    """Return up to ``most`` bytes of an open file, from a place in it."""
    parts, left = [], most
    os.lseek(handle, start, os.SEEK_SET)
    while left > 0 and (part := os.read(handle, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
