"""Progress records: appended by one process, read by others, cut at a resume."""

from __future__ import annotations

import json
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from tests.io.samples import create
from valuetrack.io.run_folder import PROGRESS, RunFolder, StoreError


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return create(tmp_path / "run")


@pytest.fixture
def path(folder):
    return folder.unit_path("a", "u") / PROGRESS


def fill(folder: RunFolder, *steps: int) -> None:
    for step in steps:
        folder.append_progress("a", "u", {"steps": step, "loss": step / 3})


def test_records_come_back(folder, path):
    assert folder.read_progress("a", "u") == []
    folder.append_progress("a", "u", {"steps": 1, "text": "ä\n\u2028", "nested": {"x": (1, 2)}})
    folder.append_progress(
        "a",
        "u",
        {
            "nan": float("nan"),
            "inf": [np.inf, -np.inf, 1.5],
            "jax": jnp.arange(2),
            "n": np.int64(3),
        },
    )
    assert folder.read_progress("a", "u") == [
        {"steps": 1, "text": "ä\n\u2028", "nested": {"x": [1, 2]}},
        {"nan": None, "inf": [None, None, 1.5], "jax": [0, 1], "n": 3},
    ]
    lines = path.read_text().splitlines()
    assert [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (jnp.array([1.5, jnp.nan], jnp.bfloat16), [1.5, None]),
        (np.longdouble(2), 2.0),
        (np.float16("inf"), None),
        (np.array(["a"]), ["a"]),
        (np.bool_(True), True),
        (np.zeros((0, 2)), []),
        (np.uint64(2**64 - 1), 2**64 - 1),
    ],
    ids=repr,
)
def test_numbers_of_any_kind_can_be_recorded(folder, value, expected):
    folder.append_progress("a", "u", {"x": value})
    assert folder.read_progress("a", "u") == [{"x": expected}]


@pytest.mark.parametrize("torn", [b"{", b'{"steps": 3', b'{"steps": 3}', b'{"x": "' + b"y" * 9_000])
def test_an_incomplete_last_line_is_left_out_and_then_removed(folder, path, torn):
    fill(folder, 1, 2)
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert [record["steps"] for record in folder.read_progress("a", "u")] == [1, 2]
    fill(folder, 3)
    assert [record["steps"] for record in folder.read_progress("a", "u")] == [1, 2, 3]
    assert path.read_bytes().startswith(whole)
    path.write_bytes(torn)
    assert folder.read_progress("a", "u") == []
    fill(folder, 1, 2)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("line", [b"{\n", b"[1]\n", b"\n", b"\xff\n", b"[" * 100_000 + b"\n"])
def test_a_damaged_line_is_one_sentence(folder, path, line):
    fill(folder, 1)
    path.write_bytes(path.read_bytes() + line + path.read_bytes())
    for use in (folder.read_progress, lambda *unit: folder.cut_progress(*unit, 5)):
        with pytest.raises(
            StoreError, match=r"is damaged: line 2 is not a record; delete the file"
        ):
            use("a", "u")


def test_the_file_does_not_depend_on_how_often_a_run_was_resumed(folder, path):
    fill(folder, *range(0, 100, 10))
    whole = path.read_bytes()
    path.unlink()
    fill(folder, *range(0, 60, 10))
    path.write_bytes(path.read_bytes() + b'{"steps": 6')  # killed in the middle of a line
    folder.cut_progress("a", "u", 30)
    assert [record["steps"] for record in folder.read_progress("a", "u")] == [0, 10, 20, 30]
    fill(folder, *range(40, 90, 10))
    folder.cut_progress("a", "u", 70)
    fill(folder, 80, 90)
    assert path.read_bytes() == whole
    assert [file.name for file in path.parent.iterdir()] == [PROGRESS]


def test_cutting_keeps_records_without_steps_and_makes_no_file(folder, path):
    folder.cut_progress("a", "u", 5)
    assert not path.exists()
    folder.append_progress("a", "u", {"note": "began"})
    fill(folder, 6)
    folder.cut_progress("a", "u", 5)
    assert folder.read_progress("a", "u") == [{"note": "began"}]


WRITE = """
import sys
from valuetrack.io.run_folder import RunFolder
folder = RunFolder(sys.argv[1])
for i in range(2_000):
    folder.append_progress("a", "u", {"steps": i, "loss": [0.5] * (i % 50)})
"""


def test_progress_can_be_read_while_another_process_writes_it(folder):
    writer = subprocess.Popen([sys.executable, "-c", WRITE, str(folder.path)])
    lengths = []
    while writer.poll() is None:
        records = folder.read_progress("a", "u")
        assert [record["steps"] for record in records] == list(range(len(records)))
        assert all(len(record["loss"]) == record["steps"] % 50 for record in records)
        lengths.append(len(records))
    assert writer.returncode == 0
    assert len(folder.read_progress("a", "u")) == 2_000
    assert any(0 < length < 2_000 for length in lengths)
