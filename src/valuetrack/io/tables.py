"""Tables: columns of equal length in Parquet files whose checksums are kept elsewhere."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from valuetrack.io.atomic import write_atomically
from valuetrack.io.checksums import checksum
from valuetrack.io.errors import StoreError, reading, shortened, shown
from valuetrack.types import Arrays, NDArray

Columns = dict[str, NDArray]
"""A table as columns of equal length."""


def write_table(path: Path, columns: Arrays) -> str:
    """Write columns to a Parquet file, completely or not at all; return its checksum."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.parquet as pq  # noqa: PLC0415

    stream = io.BytesIO()
    try:
        pq.write_table(pa.table(dict(columns)), stream, compression="zstd")
    except (pa.ArrowException, ValueError, TypeError) as error:
        told = shortened(str(error)).rstrip(".")
        raise StoreError.about(path, f"cannot hold this table: {told}") from error
    data = stream.getvalue()
    write_atomically(path, lambda file: file.write(data))
    return checksum(data)


def read_table(path: Path, expected: str | None = None, required: Sequence[str] = ()) -> Columns:
    """Read the columns of a Parquet file; verify the checksum that :func:`write_table` returned."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.parquet as pq  # noqa: PLC0415

    with reading(path):
        if not path.exists():
            raise unit_damaged(path, "it is missing")
        data = path.read_bytes()
    if expected is not None and checksum(data) != expected:
        raise unit_damaged(path, "it is not what its checksum says")
    try:
        table = pq.read_table(pa.BufferReader(data))
        columns = {name: table[name].to_numpy() for name in table.column_names}
    # Arrow's own exceptions, and those of Python that it lets through: KeyError for a name that
    # two columns share, UnicodeDecodeError for text that is none, OSError for wrong sizes.
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, MemoryError) as error:
        raise unit_damaged(path, "it is not a Parquet table") from error
    missing = [name for name in required if columns and name not in columns]
    if missing:
        cure = "it was not written by this version of valuetrack, run the experiment again"
        raise StoreError.about(path, f"has no column {missing[0]!r}", cure)
    return columns


def stack_tables(tables: Sequence[Columns]) -> Columns:
    """Return tables below one another; a column that one of them lacks is NaN there.

    Examples
    --------
    >>> stack_tables([{"a": np.array([1.0])}, {"a": np.array([2.0]), "b": np.array([3.0])}])
    {'a': array([1., 2.]), 'b': array([nan,  3.])}
    """
    parts = [(table, len(next(iter(table.values())))) for table in tables if table]
    names = dict.fromkeys(name for table, _ in parts for name in table)
    return {
        name: np.concatenate([table.get(name, np.full(rows, np.nan)) for table, rows in parts])
        for name in names
    }


def unit_damaged(path: Path, problem: str) -> StoreError:
    """Return the error for a file of a finished unit that is not as it was written."""
    cure = f"take another copy, or delete {shown(path.parent)} and run with --resume"
    return StoreError.about(path, f"is damaged: {problem}", cure)
