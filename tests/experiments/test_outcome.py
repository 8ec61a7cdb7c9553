"""The experiment on the defaults: what users get, scored; its report, and its file."""

from __future__ import annotations

import copy
import json
import threading

import gymnasium
import numpy as np
import pytest

import valuetrack as vt
from tests.experiments.conftest import StopAfter, run_until
from tests.report.folders import check, console
from valuetrack.api.options import parse as parse_options
from valuetrack.experiments.measure import options_of
from valuetrack.experiments.measure.base import Records
from valuetrack.experiments.run import Request, open_or_create
from valuetrack.experiments.runner import Unit, UnitRun
from valuetrack.experiments.spec import load, read_experiment, resolve
from valuetrack.io.errors import StoreError
from valuetrack.registry import AGENTS
from valuetrack.report import write_report
from valuetrack.report.defaults import USUAL_STEPS
from valuetrack.report.defaults.claims import compared, default_claims, same, value_range
from valuetrack.report.defaults.data import load as load_run
from valuetrack.report.defaults.sb3 import FILE
from valuetrack.report.defaults.tables import summary_table
from valuetrack.report.defaults.units import comparable
from valuetrack.report.run_data import read_manifest
from valuetrack.report.statistics import seed_statistics
from valuetrack.report.table import Best, to_html, to_markdown

SMALL = {"hidden": [8], "batch_size": 8, "replay_capacity": 200, "learning_starts": 20}
ROWS = ("frozenlake-lktd", "frozenlake-dqn", "frozenlake-times-1000-lktd", "cartpole-lktd")
EPISODES, DISCOUNT = 7, 0.99


def small_data():
    """Return the experiment as small as it goes."""
    found = copy.deepcopy(read_experiment("defaults"))
    found["measure"].update(points=2, episodes=2, final_episodes=EPISODES)
    for task in found["tasks"].values():
        task.update(steps=300, options={**SMALL, "steps_per_update": 10})
    return found


@pytest.fixture(scope="module")
def spec():
    return resolve(small_data(), "small")


@pytest.fixture(scope="module")
def trained(spec, tmp_path_factory):
    """The folder of a run, and its agents as they were at the end."""
    request = Request(spec, "reference", ROWS, 5, 2)
    folder = open_or_create(tmp_path_factory.mktemp("runs") / "whole", request, resume=True)
    runs = {row: UnitRun(Unit(row, 5, 2), spec, folder) for row in ROWS}
    assert all(run.run(threading.Event(), lambda steps: None) for run in runs.values())
    return folder, {row: run.agent for row, run in runs.items()}


@pytest.fixture(scope="module")
def whole(trained):
    return trained[0]


@pytest.fixture(scope="module")
def agents(trained):
    return trained[1]


def column(folder, row, name):
    table = folder.table("seeds")
    return table[name][table["row"] == row]


def lake_values(choose, scale=1.0):
    """Return the Q-values of a policy on the lake, by repetition of Bellman's equation."""
    q = np.zeros((16, 4))
    table = gymnasium.make("FrozenLake-v1").unwrapped.P
    for _ in range(1_500):
        v = q[np.arange(16), choose]
        q = np.array([
            [sum(p * (scale * r + (not over) * DISCOUNT * v[s2]) for p, s2, r, over in table[s][a])
             for a in range(4)]
            for s in range(16)
        ])  # fmt: skip
    return q


@pytest.mark.parametrize("row", ROWS[:3])
def test_the_scores_of_a_seed_are_those_that_a_user_finds(whole, agents, row):
    agent = agents[row]
    scale = 1000.0 if "1000" in row else 1.0
    returns = agent.evaluate(EPISODES)
    np.testing.assert_allclose(column(whole, row, "final_return"), returns.mean(axis=1))
    for member in range(2):
        chosen, _ = agent.predict(np.arange(16), member=member)
        exact = lake_values(chosen, scale)
        memory = agent.trainer.memory(member)
        seen = {
            (int(np.argmax(s)), int(a))
            for s, a in zip(memory.observation, memory.action, strict=True)
        }
        q = agent.posterior(np.arange(16), member=member).mean
        errors = [q[pair] - exact[pair] for pair in seen]
        found = {name: column(whole, row, name)[member] for name in
                 ("state_actions", "value_rmse", "value_bias", "policy_value")}  # fmt: skip
        assert found["state_actions"] == len(seen)
        assert found["value_rmse"] == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=1e-3)
        assert found["value_bias"] == pytest.approx(np.mean(errors), rel=1e-3)
        assert found["policy_value"] == pytest.approx(exact[0, chosen[0]], rel=1e-3, abs=1e-9)


def test_the_best_value_of_the_lake_is_in_the_units_of_its_rewards(whole):
    np.testing.assert_allclose(column(whole, ROWS[0], "best_value"), 0.5420, atol=1e-4)
    np.testing.assert_allclose(column(whole, ROWS[2], "best_value"), 542.0, atol=0.1)
    assert np.isnan(column(whole, "cartpole-lktd", "best_value")).all()


def test_users_get_the_same_who_train_by_hand(spec, whole, agents):
    row = spec.row("frozenlake-lktd")
    agent = vt.LKTD(row.env, seed=5, seeds=2, **row.options).learn(row.steps)
    settings, own = agent.trainer.settings, agents[row.id].trainer.settings
    assert own.pool_size == settings.pool_size > 100
    played = agent.play(EPISODES)
    for place, name in enumerate(("final_return", "discounted_return", "start_value")):
        wanted = np.asarray(played[place]).mean(axis=1)
        np.testing.assert_allclose(column(whole, row.id, name), wanted, rtol=1e-5)


def test_the_last_point_of_the_curves_is_the_end(whole):
    points = whole.table("points")
    assert set(points["step"]) == {150, 300}
    rising = (
        points["best_return"][points["point"] == 2] >= points["best_return"][points["point"] == 1]
    )
    assert rising.all()


def test_a_stopped_run_goes_on_to_the_same_scores(spec, whole, tmp_path):
    request = Request(spec, "reference", ("cartpole-lktd",), 5, 2)
    folder = open_or_create(tmp_path / "stopped", request, resume=True)
    assert not run_until(folder, StopAfter(1))
    assert run_until(folder, StopAfter(10**6))
    for name, values in folder.table("seeds").items():
        if name not in ("wall_seconds", "looking_seconds"):
            np.testing.assert_array_equal(
                values, column(whole, "cartpole-lktd", name), err_msg=name
            )


# The report.


def sb3_row(task, seed, value):
    point = {
        "step": 300,
        "evaluation_return": value,
        "discounted_return": value,
        "start_value": 1.0,
    }
    return {
        "task": task, "env": "FrozenLake-v1", "steps": 300, "seed": seed, "diverged": False,
        "final_return": value, "discounted_return": value, "start_value": value + 1,
        "value_rmse": 0.5, "seconds": 3.0, "points": [point],
    }  # fmt: skip


@pytest.fixture
def with_sb3(whole):
    rows = [sb3_row("frozenlake", seed, value) for seed, value in ((5, 2.0), (6, 4.0))]
    path = whole.path / FILE
    path.write_text(json.dumps({"versions": {}, "rows": rows}))
    yield whole
    path.unlink()


def test_the_report_shows_all_tasks_and_sb3_beside_them(with_sb3):
    shown = console(200)
    page = write_report(with_sb3, shown).read_text(encoding="utf-8")
    check(page)
    text = shown.file.getvalue()
    for name in ("frozenlake", "cartpole", "frozenlake-times-1000", "DQN of SB3", "3.00 ± 1.00"):
        assert name in text
    assert "<strong>3.00 ± 1.00</strong>" in page
    summary = json.loads((with_sb3.path / "summary.json").read_text())
    assert summary["frozenlake-sb3"]["outcome"]["seconds"]["mean"] == pytest.approx(10.0)
    wall = column(with_sb3, "cartpole-lktd", "wall_seconds")
    looking = column(with_sb3, "cartpole-lktd", "looking_seconds")
    assert (looking > 0).all()
    seconds = summary["cartpole-lktd"]["outcome"]["seconds"]["mean"]
    assert seconds == pytest.approx((wall - looking).mean() / 0.3)


def test_the_largest_mean_of_a_task_stands_out(with_sb3):
    table = summary_table(load_run(with_sb3, read_manifest(with_sb3)))
    line = next(line for line in table.lines if line[0] == "frozenlake")
    assert [cell for cell in line if isinstance(cell, Best)] == ["3.00 ± 1.00"]
    assert "**3.00 ± 1.00**" in to_markdown(table)
    assert "<strong>3.00 ± 1.00</strong>" in to_html(table)


def test_rewards_in_other_units_are_compared_in_the_usual_ones(whole):
    run = load_run(whole, read_manifest(whole))
    found = [(row.id, divisor) for row, divisor in comparable(run, "frozenlake")]
    assert found == [("frozenlake-lktd", 1.0), ("frozenlake-times-1000-lktd", 1000.0)]
    row = run.row("frozenlake-times-1000-lktd")
    points = whole.table("points")
    mine = (points["row"] == row.id) & (points["seed"] == 5)
    curve = points["evaluation_return"][mine].mean()
    assert row.outcomes["curve_return"][5] == pytest.approx(curve)
    own = column(whole, row.id, "value_rmse").mean()
    assert row.over(row.scale, "value_rmse")["mean"] == pytest.approx(own / 1000)
    statements = [claim.statement for claim in default_claims(run)]
    assert sum(text.startswith("frozenlake-times-1000: LKTD's") for text in statements) == 2


def test_a_file_of_sb3_that_is_none_is_refused(whole):
    path = whole.path / FILE
    path.write_text('{"versions": {}, "rows": [{"task": "frozenlake"}]}')
    try:
        with pytest.raises(StoreError, match=r"sb3_defaults\.py"):
            load_run(whole, read_manifest(whole))
    finally:
        path.unlink()


def test_claims_are_judged_with_the_noise_in_mind():
    low = seed_statistics({0: 1.0, 1: 1.2, 2: 0.8, 3: 1.0})
    high = seed_statistics({0: 9.0, 1: 9.2, 2: 8.8, 3: 9.0})
    near = seed_statistics({0: 1.1, 1: 1.3, 2: 0.7, 3: 1.0})
    assert compared("", low, high).holds is False
    assert compared("", high, low).holds is True
    found = compared("", low, near)
    assert found.holds is True
    assert found.measured.endswith("within the noise")
    assert same("", low, near).holds is True
    assert same("", high, low).holds is False
    assert same("", seed_statistics({0: 1.0}), low).holds is None


def test_the_range_of_values_is_that_of_all_rows_and_points(with_sb3):
    run = load_run(with_sb3, read_manifest(with_sb3))
    rows = run.rows_of("frozenlake")
    low = min(row.curves["discounted_return"].min() for row in rows)
    assert value_range(rows) == pytest.approx(4.0 - low)


# The file.


def test_no_row_that_is_compared_has_an_option():
    spec = load("defaults")
    for row in spec.rows:
        usual = AGENTS[row.algorithm].options_type()
        given = parse_options(AGENTS[row.algorithm].options_type, row.options, row.id)
        changed = {name for name, value in given if getattr(usual, name) != value}
        assert changed == ({"hidden"} if row.options else set())
        assert bool(row.options) == row.id.endswith(("-32", "-64", "-512"))


def test_rows_have_the_steps_that_the_report_takes_for_usual():
    for row in load("defaults").rows:
        task = row.id.rpartition(f"-{row.algorithm}")[0]
        assert row.steps == USUAL_STEPS.get(task, 50_000)


def test_the_long_episodes_are_those_of_tasks_in_the_file():
    spec = load("defaults")
    assert set(options_of(spec).final_episodes_in) <= {row.env for row in spec.rows}


def test_a_first_look_has_rows_of_the_file():
    spec = load("defaults")
    assert set(spec.quick.rows) <= {row.id for row in spec.rows}


def test_a_checkpoint_at_the_very_end_keeps_the_order_of_the_columns():
    records = Records()
    records.append({"seed": np.array([0, 1]), "point": np.array([1, 1]), "a": np.zeros(2)})
    saved = dict(sorted(records.arrays("records").items()))  # as a file has them
    again = Records()
    again.restore(saved, "records")
    assert list(again.columns) == ["seed", "point", "a"]
    old = {name: array for name, array in saved.items() if not name.endswith("_order")}
    again.restore(old, "records")  # of a version that did not keep the order
    assert set(again.columns) == {"seed", "point", "a"}
    assert Records().arrays("records") == {}
