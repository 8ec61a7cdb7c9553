"""A run can be stopped or killed at any moment and goes on to the same bits."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.experiments.conftest import StopAfter
from valuetrack.experiments import run as runs
from valuetrack.experiments import unit as units
from valuetrack.experiments.run import Request, open_or_create, run, split_seeds
from valuetrack.io.run_folder import RunFolder, StoreError

ROWS = ("lktd-10000", "bootdqn")
TABLES = ("metrics", "calibration", "policy")


def request(spec, rows=ROWS, seeds=3, preset="reference", first=5):
    return Request(spec, preset, rows, first, seeds)


@pytest.fixture(autouse=True)
def two_workers(monkeypatch):
    monkeypatch.setattr(runs, "worker_count", lambda: 2)


@pytest.fixture(scope="module")
def whole(small_spec, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "worker_count", lambda: 2)
        folder = open_or_create(path, request(small_spec), resume=True)
        assert run(folder, workers=0)
    return folder


def assert_same(a: RunFolder, b: RunFolder):
    for name in TABLES:
        left, right = a.table(name), b.table(name)
        assert left.keys() == right.keys()
        for column in left:
            np.testing.assert_array_equal(left[column], right[column], err_msg=f"{name}.{column}")
    diverged = [folder.table("seeds")["diverged_at"] for folder in (a, b)]
    np.testing.assert_array_equal(*diverged)


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


@pytest.mark.parametrize("asked", [1, 2, 7, 14])
def test_a_stopped_run_goes_on_to_the_same_bits(whole, small_spec, tmp_path, asked):
    folder = open_or_create(tmp_path / "run", request(small_spec), resume=True)
    assert not run(folder, workers=0, stop=StopAfter(asked))
    assert list(folder.path.glob("units/*/*/checkpoint.vt"))
    again = open_or_create(tmp_path / "run", request(small_spec), resume=True)
    assert run(again, workers=0)
    assert_same(whole, again)


SCRIPT = """
import sys
from valuetrack.experiments import run as runs, unit
from valuetrack.io.run_folder import RunFolder
unit.CHECKPOINT_SECONDS = 0.0  # after every segment
runs.run(RunFolder.open(sys.argv[1]), workers=0)
"""


def test_ten_kills_at_random_moments_change_nothing(whole, small_spec, tmp_path):
    path = tmp_path / "killed"
    open_or_create(path, request(small_spec), resume=True)
    rng = random.Random(0)
    for _ in range(10):
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path)])
        before = state_of(path)
        deadline = time.monotonic() + 120
        while state_of(path) == before:  # until it has come to writing something
            assert process.poll() is None, "the run ended before its tenth kill"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    folder = RunFolder.open(path)
    assert run(folder, workers=0)
    assert_same(whole, folder)
    assert not list(path.rglob("checkpoint.vt"))


def state_of(path: Path) -> set[tuple[str, int]]:
    """Return all files of a folder and when they were written."""
    found = set()
    for file in path.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a temporary name, renamed meanwhile
            found.add((file.name, file.stat().st_mtime_ns))
    return found


def test_any_number_of_processes_gives_the_same_bits(whole, small_spec, tmp_path):
    folders = []
    for workers in (1, 2):
        folder = open_or_create(tmp_path / f"{workers}", request(small_spec), resume=True)
        steps: dict[str, int] = {}

        def advance(row: str, count: int, steps: dict[str, int] = steps) -> None:
            steps[row] = steps.get(row, 0) + count

        assert run(folder, workers=workers, advance=advance)
        assert steps == dict.fromkeys(ROWS, 3 * small_spec.training.steps)
        folders.append(folder)
    assert_same(*folders)
    # With more threads a program may round otherwise.
    np.testing.assert_allclose(
        folders[0].table("metrics")["mse"], whole.table("metrics")["mse"], rtol=1e-4
    )


def test_a_worker_that_fails_says_why(small_spec, tmp_path):
    folder = open_or_create(tmp_path / "run", request(small_spec), resume=True)
    unit = units.Unit(small_spec.row("lktd-10000"), 5, 2)
    path = folder.unit_path("lktd-10000", unit.name)
    path.mkdir(parents=True)
    (path / "checkpoint.vt").write_bytes(b"not a checkpoint")
    with pytest.raises(Exception, match=r"is not a checkpoint of valuetrack; delete it"):
        run(folder, workers=2)


def test_a_finished_run_is_left_alone(whole, small_spec):
    before = {p: p.stat().st_mtime_ns for p in whole.path.rglob("*.parquet")}
    again = open_or_create(whole.path, request(small_spec), resume=True)
    assert run(again, workers=0)
    assert before == {p: p.stat().st_mtime_ns for p in whole.path.rglob("*.parquet")}


def test_rows_can_be_added_later(small_spec, tmp_path):
    path = tmp_path / "run"
    open_or_create(path, request(small_spec, rows=("dqn",), seeds=2), resume=True)
    folder = open_or_create(path, request(small_spec, rows=("sgld-2500",), seeds=1), resume=True)
    entries = {row["id"]: row["units"] for row in folder.manifest()["rows"]}
    assert entries == {"sgld-2500": [[5, 1]], "dqn": [[5, 1], [6, 1]]}


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

    monkeypatch.setattr(runs, "commit", lambda: "a")
    folder = opened(2)
    assert run(folder, workers=0)
    before = folder.table("metrics")
    monkeypatch.setattr(runs, "commit", lambda: "b")
    assert run(opened(3), workers=0)
    after = folder.table("metrics")
    old = np.isin(after["seed"], [5, 6])
    assert set(after["seed"][~old]) == {7}
    for name, column in before.items():
        np.testing.assert_array_equal(after[name][old], column)
    manifest = folder.manifest()
    assert manifest["seeds"] == {"first": 5, "count": 3}
    assert [(row["units"], row["commit"]) for row in manifest["rows"]] == [
        ([[5, 1], [6, 1], [7, 1]], "a, b")
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
    assert runs.read_spec(manifest) == small_spec
    assert manifest["spec_hash"] == small_spec.hash("reference")
    with pytest.raises(StoreError, match="another run"):  # one of its rows is gone
        open_or_create(path, request(fewer, rows=(first,)), resume=True)


def test_a_row_names_every_commit_that_worked_on_it(small_spec, tmp_path, monkeypatch):
    def commits(source):
        monkeypatch.setattr(runs, "commit", lambda: source)
        folder = open_or_create(tmp_path / "run", request(small_spec, rows=("dqn",)), resume=True)
        return folder.manifest()["rows"][0]["commit"]

    assert commits("a-dirty") == "a-dirty"
    assert commits("a") == "a-dirty, a"
    assert commits("a") == "a-dirty, a"
    assert commits(None) == "a-dirty, a"


def test_another_spec_is_never_overwritten(whole, small_spec):
    with pytest.raises(StoreError, match="another run"):
        open_or_create(whole.path, request(small_spec.with_steps(2_400)), resume=True)


def test_unfinished_runs_need_resume(small_spec, tmp_path):
    open_or_create(tmp_path / "run", request(small_spec), resume=True)
    with pytest.raises(StoreError, match="--resume"):
        open_or_create(tmp_path / "run", request(small_spec), resume=False)


def test_a_folder_is_run_by_one_process_at_a_time(small_spec, tmp_path):
    folder = open_or_create(tmp_path / "run", request(small_spec), resume=True)
    with folder.lock(["lktd-10000"]), pytest.raises(StoreError, match="Another process"):
        run(RunFolder.open(folder.path), workers=0)


def test_a_row_that_another_process_is_running_is_not_changed(small_spec, tmp_path, monkeypatch):
    path = tmp_path / "run"
    folder = open_or_create(path, request(small_spec), resume=True)
    before = folder.manifest()
    monkeypatch.setattr(runs, "commit", lambda: "another")
    with folder.lock(["lktd-10000"]), pytest.raises(StoreError, match="Another process"):
        open_or_create(path, request(small_spec, seeds=5), resume=True)
    assert folder.manifest() == before


ADD = """
import json, sys, time
from valuetrack.experiments import run as runs
from valuetrack.experiments.spec import parse
runs.commit = lambda: time.sleep(1.0)  # so that both read before either writes
path, row, spec = sys.argv[1], sys.argv[2], parse(json.load(sys.stdin), "stdin")
runs.open_or_create(path, runs.Request(spec, "reference", (row,), 5, 3), resume=True)
"""


def test_two_processes_can_add_rows_at_once(small_spec, tmp_path):
    path = tmp_path / "run"
    folder = open_or_create(path, request(small_spec, rows=("lktd-10000",)), resume=True)
    given = small_spec.model_dump_json(exclude_none=True)
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
    groups = split_seeds(7, count, 2, 10)
    covered = [seed for first, size in groups for seed in range(first, first + size)]
    assert covered == list(range(7, 7 + count))
    assert max(size for _, size in groups) <= 10
    assert count == 1 or len(groups) % 2 == 0


def test_the_manifest_says_what_made_the_numbers(whole):
    manifest = whole.manifest()
    assert manifest["versions"].keys() >= {"valuetrack", "jax", "jaxlib", "numpy", "python"}
    assert manifest["seeds"] == {"first": 5, "count": 3}
    assert manifest["machine"]["cores"] == os.cpu_count()
    assert str(Path.home()) not in str(manifest)
