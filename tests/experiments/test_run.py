"""A run can be stopped or killed at any moment and goes on to the same bits."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests.experiments.conftest import StopAfter, run_here, run_until, small_data
from valuetrack.experiments import provenance
from valuetrack.experiments import run as runs
from valuetrack.experiments.engines import InlineEngine, LocalEngine, WorkerError
from valuetrack.experiments.run import Request, open_or_create, planned_units, run, split_seeds
from valuetrack.experiments.runner import Unit
from valuetrack.experiments.spec import from_manifest, resolve
from valuetrack.io.run_folder import RunFolder, StoreError

ROWS = ("lktd-10000", "bootdqn")
TABLES = ("metrics", "calibration", "policy")


def request(spec, rows=ROWS, seeds=3, preset="reference", first=5):
    return Request(spec, preset, rows, first, seeds)


@pytest.fixture(scope="module")
def whole(small_spec, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "whole"
    folder = open_or_create(path, request(small_spec), resume=True)
    assert run_here(folder)
    return folder


def assert_same(a: RunFolder, b: RunFolder, rtol: float = 0.0):
    for name in TABLES:
        left, right = a.table(name), b.table(name)
        assert left.keys() == right.keys()
        for column in left:
            if rtol and left[column].dtype.kind == "f":
                np.testing.assert_allclose(left[column], right[column], rtol, err_msg=column)
            else:
                np.testing.assert_array_equal(left[column], right[column], err_msg=column)
    diverged = [folder.table("seeds")["diverged_at"] for folder in (a, b)]
    np.testing.assert_array_equal(*diverged)
    if not rtol:
        assert progress_of(a) == progress_of(b)
        assert maps_of(a) == maps_of(b)


def progress_of(folder: RunFolder) -> dict[str, list[dict]]:
    """Return the progress of all units, without the speed."""
    return {
        f"{unit.row}/{unit.name}": [
            {key: value for key, value in record.items() if key != "rate"}
            for record in folder.read_progress(unit.row, unit.name)
        ]
        for unit in planned_units(folder.manifest())
    }


def maps_of(folder: RunFolder) -> dict[str, str]:
    """Return the maps of all units, as they are written."""
    names = ("grid.json", "maps.jsonl")
    found = [path for name in names for path in folder.path.glob(f"units/*/*/{name}")]
    return {str(path.relative_to(folder.path)): path.read_text() for path in sorted(found)}


def test_maps_show_the_values_of_every_cell(whole):
    maps = maps_of(whole)
    assert len(maps) == 2 * 2 * len(ROWS)
    for path, text in maps.items():
        if path.endswith("grid.json"):
            truth = np.array(json.loads(text)["truth"], float)
            assert truth.shape == (12, 4)
            continue
        frames = [json.loads(line) for line in text.splitlines()]
        assert [frame["steps"] for frame in frames] == [200, 400, 600, 800, 900, 1000, 1100, 1200]
        seeds = 2 if "0005" in path else 1
        assert np.shape(frames[-1]["mean"]) == (seeds, 12, 4)
    policy = whole.table("policy")
    chosen = (policy["row"] == "lktd-10000") & (policy["seed"] == 5)
    last = json.loads(maps["units/lktd-10000/seeds-0005-0006/maps.jsonl"].splitlines()[-1])
    shown = np.nan_to_num(np.array(last["probability"], float)[0])
    expected = policy["probability"][chosen].reshape(12, 4)
    np.testing.assert_allclose(shown, expected, atol=2e-3)  # a pool of 20 is shown whole


def test_tables_hold_every_seed_window_and_action(whole, small_spec):
    metrics = whole.table("metrics")
    assert set(metrics["row"]) == set(ROWS)
    assert set(metrics["seed"]) == {5, 6, 7}
    chosen = (metrics["row"] == "lktd-10000") & (metrics["seed"] == 6) & metrics["final"]
    assert sorted(metrics["step"][chosen]) == sorted([1000, 1200] * 4)
    assert set(metrics["evaluations"][metrics["final"]]) == {2}
    for name in ("mse", "coverage", "credible_coverage", "width"):
        assert np.isfinite(metrics[name]).all()
    policy = whole.table("policy")
    assert len(policy["probability"]) == len(ROWS) * 3 * 12 * 4


def test_seeds_differ_everywhere(whole):
    metrics = whole.table("metrics")
    for row in ROWS:
        by_seed = [
            metrics["mse"][(metrics["row"] == row) & (metrics["seed"] == seed)]
            for seed in (5, 6, 7)
        ]
        assert (by_seed[0] != by_seed[1]).all()
        assert (by_seed[1] != by_seed[2]).all()


def test_progress_can_be_followed(whole, small_spec):
    for records in progress_of(whole).values():
        assert [record["steps"] for record in records] == [
            200,
            400,
            600,
            800,
            900,
            1000,
            1100,
            1200,
        ]
        assert records[-1]["updates"] == 115
        assert all(len(record["return"]) in (1, 2) for record in records)
        assert "mse" in records[-1]
        assert "mse" not in records[0]


@pytest.mark.parametrize("asked", [1, 2, 7, 14])
def test_a_stopped_run_goes_on_to_the_same_bits(whole, small_spec, tmp_path, asked):
    folder = open_or_create(tmp_path / "run", request(small_spec), resume=True)
    assert not run_until(folder, StopAfter(asked))
    assert list(folder.path.glob("units/*/*/checkpoint.vt"))
    again = open_or_create(tmp_path / "run", request(small_spec), resume=True)
    assert run_here(again)
    assert_same(whole, again)
    assert not list(folder.path.glob("units/*/*/checkpoint.vt"))


SCRIPT = """
import sys
from valuetrack.experiments import run as runs, runner
from valuetrack.experiments.engines import InlineEngine
from valuetrack.io.run_folder import RunFolder
runner.CHECKPOINT_SECONDS = 0.0  # after every piece
folder = RunFolder.open(sys.argv[1])
runs.run(folder, engine=InlineEngine(folder))
"""


def test_kills_at_random_moments_change_nothing(whole, small_spec, tmp_path):
    path = tmp_path / "killed"
    open_or_create(path, request(small_spec), resume=True)
    rng = random.Random(0)
    for _ in range(4):  # each starts a Python of its own
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path)])
        before = state_of(path)
        deadline = time.monotonic() + 120
        while state_of(path) == before:  # until it has come to writing something
            assert process.poll() is None, "the run ended before its last kill"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    folder = RunFolder.open(path)
    assert run_here(folder)
    assert_same(whole, folder)
    assert not list(path.rglob("checkpoint.vt"))


def state_of(path: Path) -> set[tuple[str, int]]:
    """Return all files of a folder and when they were written."""
    found = set()
    for file in path.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a temporary name, renamed meanwhile
            found.add((file.name, file.stat().st_mtime_ns))
    return found


def test_two_processes_give_the_same_numbers(whole, small_spec, tmp_path):
    """One process of its own does too: the test after this one."""
    folder = open_or_create(tmp_path / "run", request(small_spec), resume=True)
    assert planned_units(folder.manifest()) == planned_units(whole.manifest())
    steps: dict[str, int] = {}

    def advance(row: str, count: int) -> None:
        steps[row] = steps.get(row, 0) + count

    assert run(folder, engine=LocalEngine(folder, 2), advance=advance)
    assert steps == dict.fromkeys(ROWS, 3 * 1_200)
    assert_same(whole, folder, rtol=1e-4)  # with another number of threads, sums round otherwise


@pytest.mark.parametrize("engine", [InlineEngine, lambda folder: LocalEngine(folder, 1)])
def test_an_engine_stops_within_a_unit_and_counts_on_from_there(
    whole, small_spec, tmp_path, engine, monkeypatch
):
    # One cycle per piece, so that the run is slow enough to be stopped.
    monkeypatch.setattr("valuetrack.api.pieces.PIECE_SECONDS", 0.0)
    folder = open_or_create(tmp_path / "run", request(small_spec), resume=True)
    stop, steps = threading.Event(), []

    def advance(row: str, count: int) -> None:
        steps.append(count)
        stop.set()

    finished = run(folder, engine=engine(folder), advance=advance, stop=stop)
    if finished:  # a process of its own is not slowed down, and may be quicker than the stop
        assert engine is not InlineEngine
    else:
        assert list(folder.path.glob("units/*/*/checkpoint.vt"))
    assert run(folder, engine=engine(folder), advance=lambda row, count: steps.append(count))
    assert_same(whole, folder)


def test_a_unit_that_fails_says_why(small_spec, tmp_path):
    folder = open_or_create(tmp_path / "run", request(small_spec), resume=True)
    path = folder.unit_path("lktd-10000", Unit("lktd-10000", 5, 2).name)
    path.mkdir(parents=True)
    (path / "checkpoint.vt").write_bytes(b"not a checkpoint")
    for engine in (LocalEngine(folder, 2), InlineEngine(folder)):
        with pytest.raises((StoreError, WorkerError)) as caught:
            run(folder, engine=engine)
        told = str(caught.value)
        assert told.startswith(str(path / "checkpoint.vt"))
        assert "is not a checkpoint of valuetrack; delete it" in told


def test_a_checkpoint_of_something_else_is_refused(small_spec, tmp_path):
    folder = open_or_create(tmp_path / "run", request(small_spec), resume=True)
    folder.save_checkpoint("bootdqn", "seeds-0005-0006", {"a": np.zeros(3)}, {"looks": 0})
    with pytest.raises(StoreError, match="does not fit; delete it to begin this unit again"):
        run_here(folder)


class Idle:
    """An engine whose units vanish."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def submit(self, unit):
        pass

    def is_busy(self):
        return False


def test_what_an_engine_leaves_undone_is_not_called_finished(small_spec, tmp_path):
    folder = open_or_create(tmp_path / "run", request(small_spec), resume=True)
    assert not run(folder, engine=Idle())


def test_a_finished_run_is_left_alone(whole, small_spec):
    before = {p: p.stat().st_mtime_ns for p in whole.path.rglob("*.parquet")}
    again = open_or_create(whole.path, request(small_spec), resume=True)
    assert run_here(again)
    assert before == {p: p.stat().st_mtime_ns for p in whole.path.rglob("*.parquet")}


def test_rows_can_be_added_later(small_spec, tmp_path):
    path = tmp_path / "run"
    open_or_create(path, request(small_spec, rows=("dqn",), seeds=2), resume=True)
    folder = open_or_create(path, request(small_spec, rows=("sgld-2500",), seeds=1), resume=True)
    entries = {row["id"]: row["units"] for row in folder.manifest()["rows"]}
    assert entries == {"sgld-2500": [[5, 1]], "dqn": [[5, 2]]}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"preset": "paper"}, "another run"),
        ({"first": 6}, "another run"),
        ({"seeds": 2}, "3 seeds, more than 2"),
    ],
)
def test_another_run_is_never_overwritten(whole, small_spec, changes, sentence):
    with pytest.raises(StoreError, match=sentence):
        open_or_create(whole.path, request(small_spec, **changes), resume=True)


def test_seeds_can_be_added_later(small_spec, tmp_path, monkeypatch):
    def opened(seeds, rows=("dqn",), **how):
        asked = request(small_spec, rows=rows, seeds=seeds)._replace(**how)
        return open_or_create(tmp_path / "run", asked, resume=False)

    monkeypatch.setattr(provenance, "commit", lambda: "a")
    folder = opened(2)
    assert run_here(folder)
    before = folder.table("metrics")
    monkeypatch.setattr(provenance, "commit", lambda: "b")
    assert run_here(opened(3))
    after = folder.table("metrics")
    old = np.isin(after["seed"], [5, 6])
    assert set(after["seed"][~old]) == {7}
    for name, column in before.items():
        np.testing.assert_array_equal(after[name][old], column)
    manifest = folder.manifest()
    assert manifest["seeds"] == {"first": 5, "count": 3}
    assert [(row["units"], row["commit"]) for row in manifest["rows"]] == [
        ([[5, 2], [7, 1]], "a, b")
    ]
    # Nothing is added where no number was asked for, and a new row gets as many as there are.
    assert opened(100, seeds_by_default=True).manifest() == manifest
    rows = opened(100, ("dqn", "sgld-2500"), seeds_by_default=True).manifest()["rows"]
    assert {row["id"]: sum(count for _, count in row["units"]) for row in rows} == {
        "dqn": 3, "sgld-2500": 3,
    }  # fmt: skip


def test_rows_that_an_experiment_gains_can_be_added(small_spec, tmp_path):
    fewer = small_spec.model_copy(update={"rows": small_spec.rows[:1]})
    first, second = (row.id for row in small_spec.rows[:2])
    path = tmp_path / "run"
    open_or_create(path, request(fewer, rows=(first,)), resume=True)
    folder = open_or_create(path, request(small_spec, rows=(first, second)), resume=True)
    manifest = folder.manifest()
    assert [row["id"] for row in manifest["rows"]] == [first, second]
    assert from_manifest(manifest) == small_spec
    assert manifest["spec_hash"] == small_spec.hash()
    with pytest.raises(StoreError, match="another run"):  # one of its rows is gone
        open_or_create(path, request(fewer, rows=(first,)), resume=True)


def test_a_row_names_every_commit_that_worked_on_it(small_spec, tmp_path, monkeypatch):
    def commits(source):
        monkeypatch.setattr(provenance, "commit", lambda: source)
        folder = open_or_create(tmp_path / "run", request(small_spec, rows=("dqn",)), resume=True)
        return folder.manifest()["rows"][0]["commit"]

    assert commits("a-dirty") == "a-dirty"
    assert commits("a") == "a-dirty, a"
    assert commits("a") == "a-dirty, a"
    assert commits(None) == "a-dirty, a"


def test_another_spec_is_never_overwritten(whole, small_spec):
    with pytest.raises(StoreError, match="another run"):
        open_or_create(
            whole.path, request(resolve(small_data(), "small", steps=2_400)), resume=True
        )


def test_unfinished_runs_need_resume(small_spec, tmp_path):
    open_or_create(tmp_path / "run", request(small_spec), resume=True)
    with pytest.raises(StoreError, match="--resume"):
        open_or_create(tmp_path / "run", request(small_spec), resume=False)


def test_a_folder_is_run_by_one_process_at_a_time(small_spec, tmp_path):
    folder = open_or_create(tmp_path / "run", request(small_spec), resume=True)
    with folder.lock(["lktd-10000"]), pytest.raises(StoreError, match="Another process"):
        run_here(RunFolder.open(folder.path))


def test_a_row_that_another_process_is_running_is_not_changed(small_spec, tmp_path, monkeypatch):
    path = tmp_path / "run"
    folder = open_or_create(path, request(small_spec), resume=True)
    before = folder.manifest()
    monkeypatch.setattr(provenance, "commit", lambda: "another")
    with folder.lock(["lktd-10000"]), pytest.raises(StoreError, match="Another process"):
        open_or_create(path, request(small_spec, seeds=5), resume=True)
    assert folder.manifest() == before


ADD = """
import json, sys, time
from valuetrack.experiments import run as runs
from valuetrack.experiments.spec import Experiment
runs.provenance.commit = lambda: time.sleep(1.0)  # so that both read before either writes
path, row, spec = sys.argv[1], sys.argv[2], Experiment.model_validate(json.load(sys.stdin))
runs.open_or_create(path, runs.Request(spec, "reference", (row,), 5, 3), resume=True)
"""


def test_two_processes_can_add_rows_at_once(small_spec, tmp_path):
    path = tmp_path / "run"
    folder = open_or_create(path, request(small_spec, rows=("lktd-10000",)), resume=True)
    given = small_spec.model_dump_json()
    adding = [
        subprocess.Popen([sys.executable, "-c", ADD, path, row], stdin=subprocess.PIPE, text=True)
        for row in ("dqn", "bootdqn")
    ]
    for process in adding:
        process.stdin.write(given)
        process.stdin.close()
    assert [process.wait(timeout=120) for process in adding] == [0, 0]
    assert {row["id"] for row in folder.manifest()["rows"]} == {"lktd-10000", "dqn", "bootdqn"}


@pytest.mark.parametrize("count", [1, 2, 5, 20, 33, 100])
def test_seeds_are_split_into_groups_that_cover_them_once(count):
    groups = split_seeds(7, count, 10)
    covered = [seed for first, size in groups for seed in range(first, first + size)]
    assert covered == list(range(7, 7 + count))
    sizes = [size for _, size in groups]
    assert max(sizes) <= 10
    assert max(sizes) - min(sizes) <= 1
    assert len(groups) == -(-count // 10)


def test_units_do_not_depend_on_the_machine(small_spec, tmp_path, monkeypatch):
    units = []
    for cores in (1, 64):
        monkeypatch.setattr(runs, "available_cores", lambda cores=cores: cores)
        asked = request(small_spec, seeds=7)
        folder = open_or_create(tmp_path / f"{cores}", asked, resume=True)
        units.append(planned_units(folder.manifest()))
    assert units[0] == units[1]
    assert [unit[1:] for unit in units[0] if unit.row == "bootdqn"] == [
        (5, 2), (7, 2), (9, 2), (11, 1),
    ]  # fmt: skip


def test_the_manifest_says_what_made_the_numbers(whole):
    manifest = whole.manifest()
    assert manifest["versions"].keys() >= {"valuetrack", "jax", "jaxlib", "numpy", "python"}
    assert manifest["seeds"] == {"first": 5, "count": 3}
    assert manifest["machine"]["cores"] == os.cpu_count()
    assert str(Path.home()) not in str(manifest)
    info = whole.unit_info("bootdqn", "seeds-0005-0006")
    assert {key: info[key] for key in ("row", "first_seed", "seeds", "updates", "diverged")} == {
        "row": "bootdqn", "first_seed": 5, "seeds": 2, "updates": 115, "diverged": [],
    }  # fmt: skip


def test_results_are_small(whole):
    sizes = [path.stat().st_size for path in whole.path.rglob("*") if path.is_file()]
    assert sum(sizes) < 2e5
