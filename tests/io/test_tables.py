"""Tables: columns come back to the bit, and whatever Arrow says becomes one sentence."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.io.samples import TABLE
from valuetrack.io.errors import StoreError
from valuetrack.io.tables import read_table, write_table


def test_tables_come_back_to_the_bit(tmp_path):
    digest = write_table(tmp_path / "t.parquet", TABLE)
    assert digest == hashlib.sha256((tmp_path / "t.parquet").read_bytes()).hexdigest()
    back = read_table(tmp_path / "t.parquet", digest)
    for name, column in TABLE.items():
        np.testing.assert_array_equal(back[name], column)


def test_a_table_with_another_checksum_is_refused(tmp_path):
    write_table(tmp_path / "t.parquet", TABLE)
    with pytest.raises(StoreError, match="is damaged: it is not what its checksum says; take"):
        read_table(tmp_path / "t.parquet", "0" * 64)


@pytest.mark.parametrize("content", [b"", b"PAR1 no", b"PAR1" * 2, b"PAR1\0\0\0\0PAR1", bytes(100)])
def test_a_damaged_table_is_one_sentence(tmp_path, content):
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(StoreError, match="damaged: it is not a Parquet table"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    "error",
    [
        pa.ArrowInvalid("a\nb"),
        pa.ArrowNotImplementedError("no such codec"),
        pa.ArrowKeyError("x"),
        pa.ArrowMemoryError("x"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
        OSError("Couldn't deserialize thrift"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_arrow_raises_is_one_sentence(tmp_path, monkeypatch, error):
    def fail(*_args, **_options):
        raise error

    write_table(tmp_path / "t.parquet", TABLE)
    monkeypatch.setattr(pq, "read_table", fail)
    with pytest.raises(StoreError, match=r"damaged: it is not a Parquet table; .*\.$") as caught:
        read_table(tmp_path / "t.parquet")
    assert "\n" not in str(caught.value)


def test_columns_of_the_same_name_are_one_sentence(tmp_path):
    table = pa.table([[1], [2]], names=["x", "x"])
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(StoreError, match="not a Parquet table"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    "columns",
    [
        {"a": np.zeros(2), "b": np.zeros(3)},
        {"a": np.zeros(2, complex)},
        {"a": np.zeros((2, 2))},
        {"a": np.array([1, "x", None], object)},
    ],
)
def test_what_a_table_cannot_hold_is_one_sentence(tmp_path, columns):
    with pytest.raises(StoreError, match=r"t.parquet cannot hold this table: .*\.$") as error:
        write_table(tmp_path / "t.parquet", columns)
    assert "\n" not in str(error.value)
    assert not any(tmp_path.iterdir())
