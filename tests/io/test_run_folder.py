from __future__ import annotations

import errno
import os

import numpy as np
import pytest

from valuetrack import store
from valuetrack.io.atomic import write_atomically
from valuetrack.io.run_folder import RunFolder, StoreError, read_table, write_table

TABLE = {
    "row": np.array(["a", "b"]),
    "seed": np.array([1, 2]),
    "mse": np.array([0.1, np.pi]),
    "final": np.array([True, False]),
}


def test_tables_come_back_to_the_bit(tmp_path):
    write_table(tmp_path / "t.parquet", TABLE)
    back = read_table(tmp_path / "t.parquet")
    for name, column in TABLE.items():
        np.testing.assert_array_equal(back[name], column)


def test_units_are_finished_once_and_read_together(tmp_path):
    folder = RunFolder.create(tmp_path / "run", {"format": 1})
    folder.save_checkpoint("a", "u0", {"x": np.arange(3)})
    assert not folder.is_finished("a", "u0")
    np.testing.assert_array_equal(folder.load_checkpoint("a", "u0")["x"], np.arange(3))
    for unit in ("u0", "u1"):
        folder.finish_unit("a", unit, {"metrics": TABLE}, {"unit": unit})
    assert folder.is_finished("a", "u0")
    assert folder.load_checkpoint("a", "u0") is None
    assert len(folder.table("metrics")["mse"]) == 4
    assert folder.table("absent") == {}


def test_empty_tables_do_not_hide_others(tmp_path):
    folder = RunFolder.create(tmp_path / "run", {})
    folder.finish_unit("a", "u0", {"metrics": {}}, {})
    folder.finish_unit("a", "u1", {"metrics": TABLE}, {})
    assert len(folder.table("metrics")["mse"]) == 2


@pytest.mark.parametrize("occupied", ["file", "folder"])
def test_create_takes_nothing_that_is_there(tmp_path, occupied):
    path = tmp_path / "run"
    if occupied == "file":
        path.write_text("mine")
    else:
        path.mkdir()
        (path / "mine").write_text("mine")
    with pytest.raises(StoreError, match="--out"):
        RunFolder.create(path, {})
    assert "mine" in (path if occupied == "file" else path / "mine").read_text()


@pytest.mark.parametrize("content", ["", "{", "[1]", "\xff"])
def test_a_damaged_manifest_is_one_sentence(tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(StoreError, match="damaged"):
        RunFolder.open(tmp_path)


def test_a_folder_without_manifest_holds_no_run(tmp_path):
    with pytest.raises(StoreError, match="holds no run"):
        RunFolder.open(tmp_path / "nowhere")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 truncated", b"\x80\x04N."])
def test_a_damaged_checkpoint_is_one_sentence(tmp_path, content):
    folder = RunFolder.create(tmp_path / "run", {})
    path = folder.unit_path("a", "u")
    path.mkdir(parents=True)
    (path / store.CHECKPOINT).write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        folder.load_checkpoint("a", "u")


def test_a_damaged_table_is_one_sentence(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(StoreError, match="damaged"):
        read_table(tmp_path / "t.parquet")


def test_a_full_disk_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail(file):
        file.write(b"half of the new")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(path, fail)
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
