"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO


def write_atomically(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write a file so that it is there whole or not at all, also if the machine stops.

    What a link points to is written, and a file keeps its permissions.

    Raises
    ------
    OSError
        With the file's own name, if it cannot be written; then it is as it was before.
    """
    try:
        path = path.resolve()
        mode = _mode(path)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, mode)  # mkstemp's files are private
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:  # which names the temporary file, or none
        raise OSError(error.errno, error.strerror, str(path)) from error


def _mode(path: Path) -> int:
    """Return the permissions that a file has, or that a new one would have."""
    try:
        found = path.stat().st_mode
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
    if not stat.S_ISREG(found):  # to be replaced by a file is not what it is there for
        raise OSError(errno.EINVAL, "It is not a regular file", str(path))
    return stat.S_IMODE(found)
