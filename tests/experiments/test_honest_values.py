"""The experiment on honest values: a whole small run, its report, and its file."""

from __future__ import annotations

import copy
import dataclasses
import json

import numpy as np
import pytest

from tests.experiments.conftest import StopAfter, run_here, run_until
from tests.report.folders import check, console
from valuetrack.envs.indoor_escape import IndoorEscape, optimal_q
from valuetrack.experiments.measure import intervals
from valuetrack.experiments.measure.forecasts import KINDS
from valuetrack.experiments.run import Request, open_or_create
from valuetrack.experiments.spec import load, read_experiment, resolve
from valuetrack.report import make_report, write_report
from valuetrack.report.honest_values import USUAL_STEPS, data
from valuetrack.report.honest_values.figures import map_figure, reliability_figure
from valuetrack.report.honest_values.tables import task_table
from valuetrack.report.run_data import read_manifest

SMALL = {"hidden": (8,), "batch_size": 8, "replay_capacity": 200, "learning_starts": 20}
GRID = {"width": 4, "height": 3, "horizon": 20}
ROWS = ("grid-lktd", "frozenlake-bootdqn")


def small_data():
    """Return the experiment as small as it goes."""
    found = copy.deepcopy(read_experiment("honest-values"))
    found["measure"].update(points=3)
    found["options"]["all"].update(samples=10, thinning=1)
    found["tasks"]["grid"]["env_options"].update(GRID)
    for name in ("grid", "frozenlake"):
        task = found["tasks"][name]
        task["steps"] = 400
        task.setdefault("options", {}).update(SMALL, samples=10, thinning=1, steps_per_update=10)
    return found


@pytest.fixture(scope="module")
def spec():
    return resolve(small_data(), "small")


@pytest.fixture(scope="module")
def whole(spec, tmp_path_factory):
    request = Request(spec, "reference", ROWS, 5, 2)
    folder = open_or_create(tmp_path_factory.mktemp("runs") / "whole", request, resume=True)
    assert run_here(folder)
    return folder


def test_every_seed_and_kind_is_scored(whole):
    table = whole.table("intervals")
    every = (table["action"] == "all") & (table["visits"] == "all")
    kinds = {
        "grid-lktd": ["value", "credible", "prediction"],
        "frozenlake-bootdqn": ["value", "credible", "prediction", "heads"],
    }
    for row in ROWS:
        for seed in (5, 6):
            mine = every & (table["row"] == row) & (table["seed"] == seed)
            found = [kind for kind in table["kind"][mine] if kind != "calibrated"]
            assert found == kinds[row]
            assert np.isfinite(table["interval_score"][mine]).all()
    states = whole.table("states")
    assert set(states["seed"]) == {5}  # every interval is kept of one seed
    grid = (states["row"] == "grid-lktd") & (states["kind"] == "value")
    assert grid.sum() == optimal_q(IndoorEscape(**GRID)).legal.sum()
    lake = (states["row"] == "frozenlake-bootdqn") & (states["kind"] == "heads")
    assert len(set(states["state"][lake])) == 11  # without holes and goal
    assert states["visits"][lake].sum() == 200  # the whole replay memory
    covered = (states["low"] <= states["truth"]) & (states["truth"] <= states["high"])
    of_seed = every & (table["row"] == "grid-lktd") & (table["seed"] == 5)
    assert covered[grid].mean() == pytest.approx(table["coverage_95"][of_seed][0])


def test_a_run_that_was_stopped_has_the_same_scores(whole, spec, tmp_path):
    request = Request(spec, "reference", ROWS[:1], 5, 2)
    folder = open_or_create(tmp_path / "run", request, resume=True)
    assert not run_until(folder, StopAfter(2))
    folder = open_or_create(tmp_path / "run", request, resume=True)
    assert run_here(folder)
    left, right = whole.table("intervals"), folder.table("intervals")
    mine = left["row"] == ROWS[0]
    for column in left:
        np.testing.assert_array_equal(left[column][mine], right[column], err_msg=column)


def test_the_report_has_a_line_for_each_kind(whole):
    report = make_report(whole)
    assert [table.key for table in report.tables] == [
        "task-grid", "task-frozenlake", "visits-grid", "visits-frozenlake", "actions-grid",
    ]  # fmt: skip
    lake = report.tables[1]
    assert [line[:3] for line in lake.lines if line[1] != "calibrated"] == [
        ("BootDQN", kind, "2") for kind in ("value", "credible", "prediction", "heads")
    ]
    table = whole.table("intervals")
    mine = (table["row"] == "frozenlake-bootdqn") & (table["kind"] == "heads")
    mine &= (table["action"] == "all") & (table["visits"] == "all")
    coverage = table["coverage_95"][mine]
    error = coverage.std(ddof=1) / np.sqrt(2)
    titles = [column.title for column in lake.columns]
    assert lake.lines[-1][titles.index("95 %")] == f"{coverage.mean():.2f} ± {error:.2f}"
    assert [column.title for column in report.tables[4].columns[2:]] == ["E", "N", "W", "S"]
    statements = [line[1] for line in report.claims.lines]
    assert statements[0].startswith("grid, LKTD: 95 % value intervals cover")


def test_the_report_is_written_with_its_figures(whole):
    path = write_report(whole, console(140))
    check(path.read_text(encoding="utf-8"))
    names = {figure.name for figure in (whole.path / "figures").iterdir()}
    assert names == {"map.png", "reliability-grid.png", "reliability-frozenlake.png"}
    summary = json.loads((whole.path / "summary.json").read_text(encoding="utf-8"))
    assert summary["grid-lktd"]["intervals"]["value"]["width"]["seeds"] == 2
    run = data.load(whole, read_manifest(whole))
    assert map_figure(run.row("frozenlake-bootdqn")) is None  # no grid


def test_a_seed_that_diverged_is_left_out_by_name(whole):
    run = data.load(whole, read_manifest(whole))
    row = dataclasses.replace(run.rows[0], diverged={5: 3}, scores={}, states={})
    task = dataclasses.replace(run.tasks[0], rows=(row,))
    table = task_table(run, task, 1)
    assert table.lines == ()
    assert "LKTD: diverged and left out: seed 5 (update 3)." in table.notes
    assert reliability_figure(task) is None
    assert map_figure(row) is None


# The experiment's file.


def test_the_report_knows_the_experiment():
    assert data.KINDS == KINDS
    assert tuple(intervals.BINS) == data.BINS
    assert data.ALL == intervals.ALL
    names = [f"coverage_{level}" for level in data.LEVELS]
    assert names == [intervals.column(level) for level in intervals.LEVELS]
    spec = load("honest-values")
    steps = {row.id.removesuffix(f"-{row.algorithm}"): row.steps for row in spec.rows}
    assert steps == USUAL_STEPS
    assert len(spec.rows) == 6 * len(steps) == 60


def test_the_grids_have_the_reference_settings():
    ours, paper = load("honest-values"), load("indoor-escape")
    added = {"samples", "thinning"}
    for algorithm in ("lktd", "sgld", "sghmc", "dqn", "bootdqn", "qrdqn"):
        theirs = paper.row(algorithm if "dqn" in algorithm else f"{algorithm}-10000").options
        for task in ("grid", "grid-walls", "grid-rewards", "grid-far"):
            found = ours.row(f"{task}-{algorithm}").options
            differing = {k for k in found if k not in added and theirs[k] != found[k]}
            assert differing == ({"discount"} if task == "grid-far" else set())
            # What is not repeated is the default.
            left = theirs.keys() - found.keys()
            assert left == {"activation", "exploration_initial"}
    assert ours.row("cartpole-lktd").options.keys() == {"samples", "thinning", "exploration_steps"}
