"""The experiments on exploration: bsuite's rule, units that end early, reports, and the files."""

from __future__ import annotations

import copy
import json
import threading

import numpy as np
import pytest

from tests.report.folders import check, console
from valuetrack.envs.deep_sea import DeepSea
from valuetrack.experiments.measure.exploration import ExplorationMeasure, ExplorationOptions
from valuetrack.experiments.run import Request, open_or_create
from valuetrack.experiments.runner import Unit, UnitRun
from valuetrack.experiments.spec import load, read_experiment, resolve
from valuetrack.io.run_folder import RunFolder
from valuetrack.report import exploration, write_report
from valuetrack.report.exploration import ExploringRow, ExploringRun
from valuetrack.report.run_data import read_manifest

ROWS = ("size-10-lktd-deep", "size-10-dqn")


def small(name, rows, steps, **measure):
    """Return an experiment with small networks, small environments and few steps."""
    found = copy.deepcopy(read_experiment(name))
    found["measure"].update(points=4, **measure)
    found["options"]["all"].update(hidden=[8], batch_size=8, learning_starts=20)
    for task in found["tasks"].values():
        task.update(steps=steps, env_options={"size": 4})
    return resolve(found, "small")


def run_all(spec, rows, path):
    folder = open_or_create(path, Request(spec, "reference", rows, 5, 2), resume=True)
    advanced = dict.fromkeys(rows, 0)
    for row in rows:
        run = UnitRun(Unit(row, 5, 2), spec, folder)

        def advance(steps, row=row):
            advanced[row] += steps

        assert run.run(threading.Event(), advance)
    return folder, advanced


def measured(returns, episodes, diverged=False, **options):
    """Return a measure that has looked at a training of two seeds."""
    measure = object.__new__(ExplorationMeasure)
    measure.options = ExplorationOptions(**options)
    measure.agent = type("Agent", (), {"seeds": (0, 1)})()
    columns = {"training_return": returns, "training_episodes": episodes}
    columns["diverged"] = np.full(np.shape(returns), diverged)
    flat = {name: np.asarray(values).T.ravel() for name, values in columns.items()}
    measure.records = type("Kept", (), {"columns": flat})()
    return measure


def test_solved_is_where_the_mean_regret_of_all_episodes_is_small():
    # Seed 0: 0 of 10, then 3 of 20 episodes find 1: a mean of 0.1 after 30. Seed 1: never enough.
    measure = measured([[0.0, 0.15, 1.0], [0.0, 0.1, 0.1]], [[10, 20, 1], [10, 20, 10]])
    np.testing.assert_array_equal(measure._solved_at(), [31, np.nan])
    assert not measure.done
    assert measured([[0.0, 0.4], [0.9, 0.9]], [[10, 10], [10, 10]]).done
    assert measured([[0.0], [0.0]], [[10], [10]], diverged=True).done
    ends = {"ends_when_solved": False}
    assert not measured([[0.9], [0.9]], [[10], [10]], **ends).done


def test_points_without_an_end_of_an_episode_count_nothing():
    measure = measured([[np.nan, 0.5], [np.nan, 0.0]], [[0, 4], [0, 4]])
    np.testing.assert_array_equal(measure._solved_at(), [4, np.nan])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    # Whatever happens is good enough for one of the rows: it ends at its first point.
    sea = small("deep-sea", ROWS, 400, best_return=0.001, solved_below=1.0)
    return path, *run_all(sea, ROWS, path / "sea")


def test_a_unit_ends_when_all_its_seeds_have_solved_the_task(trained):
    _, folder, advanced = trained
    table, points = folder.table("seeds"), folder.table("points")
    for row in ROWS:
        solved = np.isfinite(table["solved_at"][table["row"] == row]).all()
        last = points["step"][points["row"] == row].max()
        assert last < 400 if solved else last == 400
        assert advanced[row] == 800  # what is left counts as taken
    assert points["step"][points["row"] == ROWS[0]].max() < 400
    episodes = table["training_episodes"]
    ends = [points["step"][points["row"] == row].max() for row in table["row"]]
    np.testing.assert_array_equal(episodes, np.array(ends) // 4)


def test_the_report_of_the_deep_sea(trained):
    _, folder, _ = trained
    out = console()
    write_report(folder, out)
    shown = out.file.getvalue()
    assert "Deep seas solved" in shown
    assert "LKTD, Thompson, ten chains with prior functions" in shown
    check((folder.path / "report.html").read_text())
    summary = json.loads((folder.path / "summary.json").read_text())
    assert set(summary) == set(ROWS)
    assert (folder.path / "figures" / "episodes.png").exists()


def test_the_report_of_the_chain(tmp_path):
    rows = ("chain-25-lktd-deep", "chain-25-dqn")
    folder, _ = run_all(small("n-chain", rows, 200), rows, tmp_path / "chain")
    out = console()
    write_report(RunFolder.open(folder.path), out)
    assert "Returns on the N-chain" in out.file.getvalue()
    run = exploration.load(folder, read_manifest(folder))
    assert [row.size for row in run.rows] == [4, 4]


def row(label, algorithm, size, solved_at, final=0.0):
    entry = type("Entry", (), {})()
    entry.id, entry.algorithm, entry.label = f"{label}-{size}", algorithm, label
    entry.env_options = {"size": size}
    seeds = tuple(range(len(solved_at)))
    found = {name: dict.fromkeys(seeds, final) for name in exploration.NUMBERS}
    found["solved_at"] = dict(zip(seeds, solved_at, strict=True))
    return ExploringRow(entry, seeds, {}, dict.fromkeys(seeds, 1.0), found)


def test_claims_follow_from_the_seeds():
    nine, eight = [100.0] * 9 + [np.nan], [100.0] * 8 + [np.nan] * 2
    rows = (
        row("deep", "lktd", 30, nine), row("deep", "lktd", 40, eight),
        row("heads", "bootdqn", 30, eight), row("heads", "bootdqn", 20, nine),
    )  # fmt: skip
    thirty, forty, others = exploration.deep_sea_claims(ExploringRun(None, rows))
    assert (thirty.holds, forty.holds, others.holds) == (True, False, True)
    assert others.measured == "30 against 20"
    table = exploration.solved_table(ExploringRun(None, rows))
    assert table.lines[0][1:] == ("–", "9/10, 100", "8/10, 100")
    (claim,) = exploration.n_chain_claims(ExploringRun(None, (row("a", "lktd", 25, nine, 9.6),)))
    assert claim.holds
    (claim,) = exploration.n_chain_claims(ExploringRun(None, (row("a", "lktd", 25, nine, 9.4),)))
    assert not claim.holds


@pytest.mark.parametrize("name", ["deep-sea", "n-chain"])
def test_the_experiments_are_as_the_environments_are(name):
    spec = load(name)
    for row in spec.rows:
        assert row.env_options["size"] == int(row.id.split("-")[1])
        if name == "deep-sea":
            assert row.steps == 10_000 * row.env_options["size"]
            paid = 1 - DeepSea(size=row.env_options["size"]).move_cost
            assert spec.measure["best_return"] == pytest.approx(paid)
