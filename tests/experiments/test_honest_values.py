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
from valuetrack.report.honest_values.claims import value_claims
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
        "task-grid", "task-frozenlake", "returns", "visits-grid", "visits-frozenlake",
        "actions-grid",
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
    assert [column.title for column in report.tables[5].columns[2:]] == ["E", "N", "W", "S"]
    statements = [line[1] for line in report.claims.lines]
    assert statements[0].startswith("grid, LKTD: 95 % value intervals cover")


def test_held_out_returns_are_compared_with_their_intervals(whole):
    table = whole.table("returns")
    mine = table["row"] == "frozenlake-bootdqn"
    assert sorted(set(table["seed"][mine])) == [5, 6]
    assert set(table["episodes"]) == {intervals.HELD_OUT}
    half, most = (table["coverage"][mine & (table["level"] == level)] for level in (0.5, 0.95))
    assert (half <= most).all()
    assert (half >= 0).all()
    assert (most <= 1).all()
    assert np.isnan(table["coverage"][table["level"] == 0.99]).all()  # takes 99 episodes
    run = data.load(whole, read_manifest(whole))
    coverage = run.row("frozenlake-bootdqn").of_returns("coverage", 95)
    assert coverage == data.over_seeds(most)
    (line,) = [line for line in make_report(whole).tables[2].lines if line[1] == "BootDQN"]
    assert line[:3] == ("FrozenLake-v1", "BootDQN", "2")


def with_coverage(run, row_id, kind, coverage, scores=1.0):
    """Return a run in which an interval has this coverage and score, whatever the group."""
    row = run.row(row_id)
    mine = row.scores["kind"] == kind
    replaced = {
        name: np.where(mine, coverage if name.startswith("coverage") else scores, values)
        for name, values in row.scores.items()
        if name.startswith("coverage") or name == "interval_score"
    }
    row = dataclasses.replace(row, scores=row.scores | replaced)
    tasks = [
        dataclasses.replace(task, rows=tuple(row if row.id == one.id else one for one in task.rows))
        for task in run.tasks
    ]
    return dataclasses.replace(run, tasks=tuple(tasks))


def test_claims_are_those_of_honest_intervals(whole):
    run = data.load(whole, read_manifest(whole))
    for coverage, holds in [(0.95, True), (0.92, False), (0.98, False)]:
        claim = value_claims(with_coverage(run, "grid-lktd", "value", coverage))[0]
        assert claim.statement == (
            "grid, LKTD: 95 % value intervals cover between 93 and 97 % of each action"
        )
        assert claim.holds is holds
        assert claim.measured.startswith(f"E {100 * coverage:.1f}, N")
    # On a table, DQN is judged over what it visited, beside BootDQN's heads.
    task = run.tasks[1]
    dqn = dataclasses.replace(
        task.rows[0],
        entry=task.rows[0].entry.model_copy(
            update={"id": "frozenlake-dqn", "algorithm": "dqn", "label": "DQN"}
        ),
    )
    task = dataclasses.replace(task, rows=(*task.rows, dqn))
    run = dataclasses.replace(run, tasks=(task,))
    run = with_coverage(run, "frozenlake-dqn", "value", 0.91, scores=0.1)
    covers, beside = value_claims(with_coverage(run, "frozenlake-bootdqn", "heads", 0.5, 0.3))
    assert covers.holds is True
    assert covers.measured == "91.0 % (2 seeds)"
    assert beside.statement == "frozenlake, DQN: a smaller interval score than BootDQN's heads"
    assert beside.holds is True


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
