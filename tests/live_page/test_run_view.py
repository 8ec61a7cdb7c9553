"""What the live page is told of a run folder, while it grows and when it is damaged."""

from __future__ import annotations

import json
import os
import time

import numpy as np
import pytest

from tests.live_page.folders import CELLS, GRID, ROW, UNIT, frame, make_grown, make_run, record
from valuetrack.io.errors import StoreError
from valuetrack.live_page import files, records, run_view
from valuetrack.live_page.row_view import quantiles, thinned
from valuetrack.live_page.run_view import RunView


@pytest.fixture(autouse=True)
def _always_fresh(monkeypatch):
    monkeypatch.setattr(run_view, "FRESH_SECONDS", 0.0)


def series(view, name, row=ROW, seed=None):
    found = view.row(row, seed)
    return next(one for one in found["series"] if one["name"] == name)


def unit_path(folder, name="progress.jsonl"):
    return folder.unit_path(ROW, UNIT) / name


def test_a_run_that_goes_on(tmp_path):
    view = RunView(make_grown(tmp_path / "run").path)
    seen = view.overview()
    assert (seen["done"], seen["total"], seen["rate"]) == (2 * 300, 4 * 1000, 50.0)
    assert seen["left"] == (4000 - 600) / 50
    assert not seen["finished"]
    assert seen["rows"][0]["seeds"] == [[0, 2], [2, 2]]
    assert seen["problems"] == []
    returns = series(view, "return", seed=1)
    assert returns["steps"] == [100, 200, 300]
    assert returns["one"] == [101.0, 201.0, 301.0]
    assert returns["middle"] == [100.5, 200.5, 300.5]
    np.testing.assert_allclose(returns["low"], [100.05, 200.05, 300.05], rtol=1e-4)
    assert returns["seeds"] == [2, 2, 2]  # the other two have not begun
    assert len(returns["lines"]) == 4


def test_only_what_is_new_is_read(tmp_path, monkeypatch):
    folder = make_grown(tmp_path / "run")
    view = RunView(folder.path)
    before = view.refresh()
    assert view.refresh() == before
    read = []
    monkeypatch.setattr(
        records, "read_at", lambda *place: read.append(place[1]) or files.read_at(*place)
    )
    size = unit_path(folder).stat().st_size
    view.refresh()
    assert read == []
    folder.append_progress(ROW, UNIT, record(400))
    assert view.refresh() > before
    assert read[0] == size
    assert series(view, "return")["steps"] == [100, 200, 300, 400]


def test_a_line_that_is_being_written_waits(tmp_path):
    folder = make_grown(tmp_path / "run")
    view = RunView(folder.path)
    view.refresh()
    line = (json.dumps(record(400)) + "\n").encode()
    with open(unit_path(folder), "ab") as file:
        file.write(line[:20])
        file.flush()
        assert series(view, "return")["steps"][-1] == 300
        file.write(line[20:])
    assert series(view, "return")["steps"][-1] == 400
    assert view.problems() == []


def test_a_resumed_unit_starts_where_it_was_cut(tmp_path):
    folder = make_grown(tmp_path / "run")
    view = RunView(folder.path)
    assert view.map(ROW, 0, 0)["total"] == 3
    assert series(view, "return")["steps"][-1] == 300
    folder.cut_progress(ROW, UNIT, 100)
    assert series(view, "return")["steps"] == [100]
    assert view.map(ROW, 0, 0)["total"] == 1


def test_maps_of_a_seed_come_piece_by_piece(tmp_path):
    folder = make_grown(tmp_path / "run")
    view = RunView(folder.path)
    found = view.map(ROW, 1, 0)
    assert found["grid"]["walls"] == ((1, 0),)
    assert found["grid"]["truth"][1] == -1.0
    assert [one["steps"] for one in found["frames"]] == [100, 200, 300]
    assert found["frames"][2]["mean"] == [-300.0] * CELLS * 4
    folder.append_map(ROW, UNIT, GRID, frame(400, solved=frame(5)["mean"]))
    later = view.map(ROW, 1, 3)
    assert [one["steps"] for one in later["frames"]] == [400]
    assert later["frames"][0]["solved"][0] == -5.0
    assert view.map(ROW, 2, 0)["total"] == 0  # another unit, which has not begun
    assert view.map(ROW, 9, 0) is None
    assert view.map("other", 0, 0) is None


def test_a_copy_without_records_shows_its_tables(tmp_path):
    folder = make_run(tmp_path / "run", units=((0, 2),))
    steps, seed = np.tile([500, 1000], 4), np.repeat([0, 1], 4)
    action = np.tile(np.repeat(["E", "N"], 2), 2)
    metrics = {
        "row": np.full(8, ROW), "seed": seed, "step": steps, "action": action,
        "mse": np.arange(8.0), "training_return": -np.ones(8),
    }  # fmt: skip
    cells = np.tile(np.repeat(np.arange(CELLS), 4), 2)
    policy = {
        "row": np.full(48, ROW), "seed": np.repeat([0, 1], 24), "cell": cells,
        "action": np.tile(list("ENWS"), 12), "probability": np.tile([0.7, 0.3, 0.0, 0.0], 12),
    }  # fmt: skip
    tables = {"metrics": metrics, "policy": policy}
    folder.finish_unit(ROW, UNIT, tables, {"diverged": [1]})
    view = RunView(folder.path)
    assert view.overview()["finished"]
    assert view.overview()["rows"][0]["diverged"] == 1
    assert series(view, "mse", seed=1)["one"] == [5.0, 6.0]  # the mean of both actions
    assert view.row(ROW, None)["diverged"] == [{"seed": 1, "update": None}]
    found = view.map(ROW, 0, 0)
    assert found["grid"]["width"] == 3
    assert found["grid"]["truth"][1] == pytest.approx(-2.71, abs=0.05)  # (0, 0): three steps
    assert found["frames"][0]["probability"][:2] == [0.7, 0.3]
    assert "mean" not in found["frames"][0]


def test_tracked_values_with_their_intervals(tmp_path):
    folder = make_run(tmp_path / "run")
    for steps in (100, 200):
        mean = np.arange(2 * 3 * 2).reshape(2, 3, 2) + steps
        values = {"mean": mean, "low": mean - 1.0, "high": np.full(mean.shape, np.nan)}
        folder.append_progress(ROW, UNIT, record(steps, values=values))
    found = RunView(folder.path).row(ROW, 1)["tracked"]
    assert (found["states"], found["actions"], found["steps"]) == (3, 2, [100, 200])
    assert found["kinds"]["mean"][0] == [106, 107, 108, 109, 110, 111]
    assert found["kinds"]["low"][1][0] == 205
    assert found["kinds"]["high"][0] == [None] * 6


def test_divergence_is_told_while_the_run_goes_on(tmp_path):
    folder = make_run(tmp_path / "run")
    folder.append_progress(ROW, UNIT, record(100, diverged={"1": 7, "55": 8}))
    view = RunView(folder.path)
    assert view.overview()["rows"][0]["diverged"] == 1
    assert view.row(ROW, None)["diverged"] == [{"seed": 1, "update": 7}]


def test_a_silent_unit_has_no_speed(tmp_path):
    folder = make_grown(tmp_path / "run")
    long_ago = time.time() - 3600
    os.utime(unit_path(folder), (long_ago, long_ago))
    seen = RunView(folder.path).overview()
    assert (seen["rate"], seen["left"]) == (0.0, None)


def test_rows_that_are_added_appear(tmp_path):
    folder = make_grown(tmp_path / "run")
    view = RunView(folder.path)
    view.refresh()
    other = make_run(tmp_path / "other", rows=(ROW, "dqn"))
    folder.write_json("manifest.json", other.manifest())
    assert [row["id"] for row in view.overview()["rows"]] == [ROW, "dqn"]
    assert series(view, "return")["steps"] == [100, 200, 300]


def test_a_damaged_manifest_is_said_and_the_one_before_is_shown(tmp_path):
    folder = make_grown(tmp_path / "run")
    view = RunView(folder.path)
    (folder.path / "manifest.json").write_text("{")
    seen = view.overview()
    assert seen["problems"] == ["manifest.json is damaged: it is not valid JSON."]
    assert seen["rows"][0]["id"] == ROW


NOT_RECORDS = [
    b"{", b"[]", b'"text"', b"null", b'{"steps": "many"}', b'{"steps": -1}', b'{"steps": 1e999}',
    b'{"steps": 400, "return": ["a", "b"]}', b'{"steps": 400, "return": [[1], [1, 2]]}',
    b'{"steps": 400, "rate": [1]}', b'{"steps": 400, "diverged": [1]}', b"[" * 100_000,
    b'{"steps": ' + b"9" * 5000 + b"}", b'{"steps": 400, "updates": null}', b"\xff\xfe",
    b'{"steps": 400, "values": {"mean": [[[1]], 3]}}', b'{"steps": 50}',
]  # fmt: skip


@pytest.mark.parametrize("line", NOT_RECORDS)
def test_damaged_records_are_one_sentence(tmp_path, line):
    folder = make_grown(tmp_path / "run")
    with open(unit_path(folder), "ab") as file:
        file.write(line + b"\n" + json.dumps(record(500)).encode() + b"\n")
    view = RunView(folder.path)
    assert view.overview()["problems"] == [
        f"units/{ROW}/{UNIT}/progress.jsonl is damaged: line 4 is not a record and is left out."
    ]
    assert series(view, "return")["steps"] == [100, 200, 300, 500]


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "{}", json.dumps(GRID | {"width": 10**9}), json.dumps(GRID | {"seeds": [77]}),
     json.dumps(GRID | {"truth": [[1]]}), json.dumps(GRID | {"walls": [3]})],
)  # fmt: skip
def test_damaged_grids_are_one_sentence(tmp_path, content):
    folder = make_grown(tmp_path / "run")
    unit_path(folder, "grid.json").write_text(content)
    found = RunView(folder.path).map(ROW, 0, 0)
    assert found["problem"].startswith(f"units/{ROW}/{UNIT}/grid.json is damaged")
    assert found["frames"] == []


def test_huge_files_are_read_in_part(tmp_path, monkeypatch):
    folder = make_grown(tmp_path / "run")
    with open(unit_path(folder), "ab") as file:
        file.truncate(3 * 10**9)  # full of zeros, and without room on the disk
    began = time.monotonic()
    seen = RunView(folder.path).overview()
    assert time.monotonic() - began < 5
    assert "line 4 is longer than 8 MB" in seen["problems"][0]
    assert seen["done"] == 600
    monkeypatch.setattr(records, "MOST_FILE", 200)
    monkeypatch.setattr(records, "CHUNK", 150)
    seen = RunView(make_grown(tmp_path / "other").path).overview()
    assert "its beginning is shown" in seen["problems"][0]
    assert seen["done"] == 400


def test_long_runs_are_thinned(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "MOST_POINTS", 50)
    folder = make_run(tmp_path / "run")
    folder.append_progress(ROW, UNIT, record(1))
    with open(unit_path(folder), "ab") as file:
        file.writelines(json.dumps(record(step)).encode() + b"\n" for step in range(2, 1001))
    shown = series(RunView(folder.path), "return")["steps"]
    assert len(shown) <= 100
    assert shown[-1] >= 990


@pytest.mark.parametrize("name", ["progress.jsonl", "unit.json", "maps.jsonl", "grid.json"])
def test_links_are_not_followed(tmp_path, name):
    folder = make_grown(tmp_path / "run")
    secret = tmp_path / "secret"
    secret.write_text(json.dumps(record(700) | {"diverged": {"0": 5}}) + "\n")
    unit_path(folder, name).unlink(missing_ok=True)
    unit_path(folder, name).symlink_to(secret)
    view = RunView(folder.path)
    told = json.dumps([view.overview(), view.row(ROW, None), view.map(ROW, 0, 0), view.problems()])
    assert "700" not in told
    assert view.row(ROW, None)["diverged"] == []
    assert "a link is in its path" in told


def test_linked_folders_are_not_followed(tmp_path):
    folder, other = make_run(tmp_path / "run"), make_grown(tmp_path / "other")
    (folder.path / "units").mkdir(exist_ok=True)
    (folder.path / "units" / ROW).symlink_to(other.path / "units" / ROW)
    view = RunView(folder.path)
    assert view.row(ROW, None)["series"] == []
    assert "a link is in its path" in view.overview()["problems"][0]


def test_a_pipe_in_the_place_of_a_file_does_not_block(tmp_path):
    folder = make_grown(tmp_path / "run")
    unit_path(folder).unlink()
    os.mkfifo(unit_path(folder))
    assert "it is not a file" in RunView(folder.path).overview()["problems"][0]


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + b"\0" * 100 + b"PAR1"])
def test_damaged_tables_are_one_sentence(tmp_path, data):
    folder = make_run(tmp_path / "run")
    folder.finish_unit(ROW, UNIT, {"metrics": {"seed": np.zeros(1)}}, {})
    unit_path(folder, "metrics.parquet").write_bytes(data)
    view = RunView(folder.path)
    assert view.row(ROW, None)["series"] == []
    assert view.problems() == [
        f"units/{ROW}/{UNIT}/metrics.parquet is damaged: it is not a Parquet table."
    ]


def test_a_table_that_would_fill_the_memory_is_refused(tmp_path):
    folder = make_run(tmp_path / "run")
    zeros = np.zeros(30_000_000, np.int8)  # kilobytes in the file
    folder.finish_unit(ROW, UNIT, {"metrics": {"seed": zeros, "step": zeros}}, {})
    view = RunView(folder.path)
    view.row(ROW, None)
    assert "more numbers than a unit can have" in view.problems()[0]


@pytest.mark.parametrize("what", ["missing", "file", "empty"])
def test_what_is_no_run_is_one_sentence(tmp_path, what):
    path = tmp_path / "run"
    if what == "file":
        path.write_text("")
    elif what == "empty":
        path.mkdir()
    with pytest.raises(StoreError, match=r"is no folder|holds no run"):
        RunView(path)


def test_quantiles_are_those_of_numpy():
    numbers = np.random.default_rng(0).normal(size=(5, 7))
    numbers[1, 3:] = np.nan
    numbers[2] = np.nan
    numbers[3, 0] = np.inf
    finite = np.where(np.isfinite(numbers), numbers, np.nan)
    expected = np.nanquantile(finite[[0, 1, 3, 4]], [0.05, 0.5], axis=1)
    found = np.stack(quantiles(numbers, (0.05, 0.5)))
    np.testing.assert_allclose(found[:, [0, 1, 3, 4]], expected)
    assert np.isnan(found[:, 2]).all()


def test_thinning_keeps_both_ends():
    assert thinned(np.arange(10), 20).tolist() == list(range(10))
    assert thinned(np.arange(1000), 3)[[0, -1]].tolist() == [0, 999]
