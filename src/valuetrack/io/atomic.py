"""Files that are written completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file so that readers see the old content or the new, even after a power failure.

    The content goes to a temporary file in the same folder, which then takes the file's name.
    A link stays a link: its target is written. A file keeps its permissions.

    Raises
    ------
    OSError
        With the file's own name, if it cannot be written; then it is unchanged.
    """
    try:
        path = path.resolve()
        mode = _mode(path)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=temporary_prefix(path.name))
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, mode)  # mkstemp makes private files
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:  # it names the temporary file, or none
        raise OSError(error.errno, error.strerror, str(path)) from error


def temporary_prefix(name: str) -> str:
    """Return how the temporary files of a file begin; a killed process may leave one behind."""
    return f".{name}."


def _mode(path: Path) -> int:
    """Return the permissions of a file, or those that a new one would get."""
    try:
        found = path.stat().st_mode
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
    if not stat.S_ISREG(found):  # never replace a pipe or a device
        raise OSError(errno.EINVAL, "It is not a regular file", str(path))
    return stat.S_IMODE(found)
