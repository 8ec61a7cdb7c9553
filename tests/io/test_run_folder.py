"""The run folder: units, checkpoints, progress, and two processes at once."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import pytest

from tests.io.samples import MANIFEST, TABLE, create, manifest
from valuetrack.io import run_folder
from valuetrack.io.run_folder import RunFolder, StoreError

ROW, UNIT = "cartpole-lktd", "seeds-0000-0001"


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return create(tmp_path / "run")


def refused(call, *args, **options) -> str:
    """Return the one sentence of a refusal."""
    with pytest.raises(StoreError) as error:
        call(*args, **options)
    text = str(error.value)
    assert text.endswith(".")
    assert text.isprintable()
    assert len(text) < 500
    return text


# -- units ----------------------------------------------------------------------------------------


def test_units_are_finished_once_and_read_together(folder):
    folder.save_checkpoint(ROW, "u0", {"x": np.arange(3)}, {"done": 1})
    assert not folder.is_finished(ROW, "u0")
    arrays, description = folder.load_checkpoint(ROW, "u0")
    np.testing.assert_array_equal(arrays["x"], np.arange(3))
    assert description == {"done": 1}
    for unit in ("u0", "u1"):
        folder.finish_unit(ROW, unit, {"metrics": TABLE}, {"unit": unit})
    assert folder.is_finished(ROW, "u0")
    assert folder.load_checkpoint(ROW, "u0") is None
    assert len(folder.table("metrics")["mse"]) == 4
    assert folder.table("absent") == {}
    assert [(row, unit, info["unit"]) for row, unit, info in folder.finished_units()] == [
        (ROW, "u0", "u0"),
        (ROW, "u1", "u1"),
    ]


def test_empty_tables_do_not_hide_others(folder):
    folder.finish_unit("a", "u0", {"metrics": {}}, {})
    folder.finish_unit("a", "u1", {"metrics": TABLE}, {})
    assert len(folder.table("metrics", columns=["mse"])["mse"]) == 2


def test_a_column_that_is_required_is_there_in_every_unit(folder):
    folder.finish_unit("a", "u0", {"metrics": TABLE | {"extra": np.ones(2)}}, {})
    folder.finish_unit("a", "u1", {"metrics": TABLE}, {})
    np.testing.assert_array_equal(folder.table("metrics")["extra"], [1, 1, np.nan, np.nan])
    assert folder.table("metrics", columns=TABLE).keys() == {*TABLE, "extra"}
    text = refused(folder.table, "metrics", columns=["mse", "extra"])
    assert "u1/metrics.parquet has no column 'extra'" in text


def test_a_unit_of_an_earlier_version_has_no_digest(folder):
    path = folder.unit_path("a", "u")
    path.mkdir(parents=True)
    (path / "unit.json").write_text('{\n  "seeds": 3\n}\n')
    assert "is damaged: it is not what its digest says" in refused(folder.table, "metrics")


@pytest.mark.parametrize("change", ["swap", "missing", "folder"])
def test_a_table_that_is_not_the_units_own_is_noticed(folder, change):
    for i, unit in enumerate(("u0", "u1")):
        folder.finish_unit("a", unit, {"metrics": TABLE | {"seed": np.array([i, i])}}, {})
    first, second = (folder.unit_path("a", unit) / "metrics.parquet" for unit in ("u0", "u1"))
    if change == "swap":
        first.write_bytes(second.read_bytes())
    else:
        first.unlink()
        if change == "folder":
            first.mkdir()
    assert str(first) in refused(folder.table, "metrics")


def test_what_unit_json_says_is_plain_json(folder):
    info = {"best": np.float32(0.5), "worst": float("nan"), "diverged": np.array([1, 2]), "é": "\n"}
    folder.finish_unit("a", "u", {}, info)
    read = folder.unit_info("a", "u")
    assert read.pop("digest")
    expected = {"best": 0.5, "worst": None, "diverged": [1, 2], "é": "\n", "tables": {}}
    assert read == expected


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "../../up", "a\x1b[2J", "a\\b"])
def test_names_that_cannot_be_folders(folder, name):
    assert "choose another id" in refused(folder.unit_path, name, "u")
    assert "choose another id" in refused(folder.append_progress, "a", name, {})
    with pytest.raises(StoreError), folder.lock([name]):
        pass


# -- creating and opening -------------------------------------------------------------------------


@pytest.mark.parametrize("occupied", ["file", "folder", "deep", "results"])
def test_create_takes_nothing_that_is_there(tmp_path, occupied):
    path = tmp_path / "run"
    places = {"folder": "mine", "deep": "units/a/u/mine", "results": "units/a/u/unit.json"}
    mine = path / places[occupied] if occupied != "file" else path
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("mine")
    assert "--out" in refused(RunFolder.create, path, MANIFEST)
    assert "mine" in mine.read_text()


def test_a_run_is_not_created_twice(folder):
    assert "not empty" in refused(RunFolder.create, folder.path, MANIFEST)


@pytest.mark.parametrize(
    ("module", "function"), [(os, "fsync"), (os, "replace"), (tempfile, "mkstemp")]
)
def test_a_failed_start_can_be_repeated(tmp_path, monkeypatch, module, function):
    def fail(*_args, **_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(module, function, fail)
        with pytest.raises(OSError, match="No space left"):
            create(tmp_path / "run")
    assert RunFolder.open(create(tmp_path / "run").path).manifest() == MANIFEST


def test_what_a_killed_start_leaves_behind_is_no_obstacle(tmp_path):
    path = tmp_path / "run"
    (path / "units" / "a" / "u").mkdir(parents=True)
    (path / "units" / "a" / ".lock").touch()
    (path / ".lock").touch()
    (path / ".manifest.json.x8fk3").write_text("half a mani")
    assert create(path).manifest() == MANIFEST


@pytest.mark.parametrize("content", ["", "{", "[1]", "\xff", "[" * 100_000, '"text"', "1" * 5_000])
def test_a_damaged_manifest_is_one_sentence(tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content.encode("latin-1"))
    assert "damaged" in refused(RunFolder.open, tmp_path)


def test_a_folder_without_manifest_holds_no_run(tmp_path):
    assert "holds no run" in refused(RunFolder.open, tmp_path / "nowhere")


def test_a_file_that_cannot_be_read_is_one_sentence(folder):
    assert "cannot be read: No such file" in refused(folder.read_json, "timing.json")
    (folder.path / "timing.json").mkdir()
    assert "cannot be read: Is a directory" in refused(folder.read_json, "timing.json")


def test_a_bad_manifest_is_not_written(tmp_path):
    assert "spec_hash is missing" in refused(RunFolder.create, tmp_path, manifest("spec_hash"))
    assert not any(tmp_path.iterdir())


# -- checkpoints ----------------------------------------------------------------------------------


def encrypted_archive(path) -> bytes:
    """Return a zip archive that says of its entry that it is encrypted."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x.npy", b"content")
    data = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    return bytes(data)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is damaged: it is empty"),
        (b"PK\x03\x04 truncated", "not a checkpoint of valuetrack"),
        (b"\x80\x04N.", "is a pickle"),
        (b"not a checkpoint at all", "is not a checkpoint of valuetrack"),
        (None, "is a zip archive"),
    ],
)
def test_a_damaged_checkpoint_is_one_sentence(folder, tmp_path, content, said):
    path = folder.unit_path("a", "u")
    path.mkdir(parents=True)
    file = path / run_folder.CHECKPOINT
    file.write_bytes(encrypted_archive(tmp_path / "zip") if content is None else content)
    text = refused(folder.load_checkpoint, "a", "u")
    assert text.startswith(f"{file} ")
    assert said in text
    assert text.endswith("; delete it to begin this unit again.")


def test_a_checkpoint_that_is_a_folder(folder):
    (folder.unit_path("a", "u") / "checkpoint.vt").mkdir(parents=True)
    assert "is a folder; delete it" in refused(folder.load_checkpoint, "a", "u")


@pytest.mark.parametrize(
    "text",
    [np.array(["a", "längere"]), np.array(["", ""]), np.array("x"), np.array([["a"], ["b"]])],
    ids=repr,
)
def test_checkpoints_hold_text(folder, text):
    folder.save_checkpoint("a", "u", {"row": text, "x": np.zeros(2)}, {})
    arrays, _ = folder.load_checkpoint("a", "u")
    np.testing.assert_array_equal(arrays["row"], text)
    assert arrays.keys() == {"row", "x"}


def test_text_that_is_none_is_one_sentence(folder):
    words = {"row:text": np.array([[2**32 - 1]], np.uint32)}
    folder.save_checkpoint("a", "u", words, {})
    assert "'row:text' is not text; delete it" in refused(folder.load_checkpoint, "a", "u")


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(folder, monkeypatch):
    folder.save_checkpoint("a", "u", {"x": np.zeros(2)}, {"done": 1})
    assert "dtype complex" in refused(
        folder.save_checkpoint, "a", "u", {"x": np.zeros(2, "c8")}, {}
    )

    def fail(_handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    text = refused(folder.save_checkpoint, "a", "u", {"x": np.ones(2)}, {"done": 2})
    assert "No space left on device; free some space" in text
    assert folder.load_checkpoint("a", "u")[1] == {"done": 1}


# -- two processes --------------------------------------------------------------------------------

HOLD = """
import sys
from valuetrack.io.run_folder import RunFolder
folder = RunFolder.open(sys.argv[1])
with folder.lock(["cartpole-lktd"]):
    folder.append_progress("cartpole-lktd", "u", {"steps": 1})
    print("locked", flush=True)
    sys.stdin.readline()
    folder.append_progress("cartpole-lktd", "u", {"steps": 2})
    folder.finish_unit("cartpole-lktd", "u", {}, {"steps": 2})
"""
TRY = """
import sys
from valuetrack.io.run_folder import RunFolder, StoreError
try:
    with RunFolder.open(sys.argv[1]).lock(["cartpole-lktd"]):
        print("locked")
except StoreError as error:
    print(error)
"""
CREATE = """
import json, sys
from valuetrack.io.run_folder import RunFolder, StoreError
sys.stdin.readline()
try:
    RunFolder.create(sys.argv[1], json.loads(sys.argv[2]))
    print("created")
except StoreError as error:
    print(error)
"""


def begin(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_a_second_writer_gets_one_sentence_and_nothing_is_lost(folder):
    first = begin(HOLD, folder.path)
    assert first.stdout.readline() == "locked\n"
    said, _ = begin(TRY, folder.path).communicate()
    assert said.startswith(f"Another process is running cartpole-lktd in {folder.path};")
    assert said.count("\n") == 1
    with folder.lock(["another-row"]):
        assert folder.read_progress(ROW, "u") == [{"steps": 1}]
    first.communicate("go on\n")
    assert first.returncode == 0
    assert folder.read_progress(ROW, "u") == [{"steps": 1}, {"steps": 2}]
    assert folder.unit_info(ROW, "u")["steps"] == 2
    assert begin(TRY, folder.path).communicate()[0] == "locked\n"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_of_two_that_create_the_same_folder_one_does(tmp_path):
    both = [begin(CREATE, tmp_path / "run", json.dumps(MANIFEST)) for _ in range(2)]
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    said = sorted(process.communicate()[0] for process in both)
    assert re.search("not empty; choose another folder", said[0])
    assert said[1] == "created\n"
    assert RunFolder.open(tmp_path / "run").manifest() == MANIFEST


def test_locks_of_a_disk_without_locks_are_one_sentence(folder, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def fail(*_args):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(StoreError, match="cannot be locked: No locks available; choose"):
        folder.lock([ROW]).__enter__()
