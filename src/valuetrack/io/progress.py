"""Progress records: one JSON line each, appended while a unit runs and readable meanwhile."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from valuetrack.io.atomic import write_atomically
from valuetrack.io.errors import StoreError, reading
from valuetrack.types import Json

TAIL_BYTES = 1 << 16
"""How much of a file is read for its last record."""


def append_record(path: Path, record: Mapping[str, object]) -> None:
    """Append a record as one line of JSON; NaN and infinity become null.

    Only one process may append at a time, which the lock of the run folder ensures. What a
    killed process left of its last record is removed first.
    """
    line = json.dumps(plain(record), allow_nan=False) + "\n"
    with open(path, "ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
        file.write(line.encode())


def read_records(path: Path) -> list[Json]:
    """Return all complete records; a line that is still being written is not one."""
    return [record for _, record in _lines(path)]


def last_record(path: Path) -> Json | None:
    """Return the last complete record, reading no more than the end of the file; ``None`` if none.

    A record that is longer than what is read, or damaged, is none either.
    """
    try:
        with open(path, "rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - TAIL_BYTES))
            data = file.read()
        found = json.loads(data[: data.rfind(b"\n")].rpartition(b"\n")[2])
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def cut_records(path: Path, steps: int) -> None:
    """Drop the records with more than this many ``steps``, and an incomplete last line."""
    kept = b"".join(line for line, record in _lines(path) if _is_within(record.get("steps"), steps))
    if path.is_file() and path.stat().st_size != len(kept):
        write_atomically(path, lambda file: file.write(kept))


def plain(value: object) -> Any:
    """Return a value as JSON holds it: arrays as lists, NaN and infinity as ``None``.

    Examples
    --------
    >>> plain({"loss": np.array([1.0, np.nan]), "steps": np.int64(3)})
    {'loss': [1.0, None], 'steps': 3}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "dtype"):  # NumPy's and JAX's
        array = np.asarray(value)
        is_exact = array.dtype.kind in "biuU"
        return array.tolist() if is_exact else plain(array.astype(np.float64).tolist())
    return value


def _lines(path: Path) -> Iterator[tuple[bytes, Json]]:
    """Yield each complete line with its record."""
    with reading(path):
        data = path.read_bytes() if path.exists() else b""
    lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise StoreError.about(
                path,
                f"is damaged: line {number} is not a record",
                "delete the file to go on without the earlier records",
            )
        yield line, record


def _is_within(found: object, steps: int) -> bool:
    return not isinstance(found, int | float) or found <= steps
