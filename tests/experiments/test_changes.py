"""The experiment in worlds that change: what is measured, restarts, reports, and the file."""

from __future__ import annotations

import copy
import dataclasses
import json
import threading

import numpy as np
import pytest

from tests.report.folders import check, console
from valuetrack.agents.dqn import DQN
from valuetrack.envs import CHANGING_ID, IndoorEscape, changing, optimal_q
from valuetrack.experiments.measure.changes import (
    ChangesMeasure,
    ChangesOptions,
    best_return,
    change_of,
    greedy_return,
)
from valuetrack.experiments.run import Request, open_or_create
from valuetrack.experiments.runner import Unit, UnitRun
from valuetrack.experiments.spec import Row, load, read_experiment, resolve
from valuetrack.io.run_folder import RunFolder
from valuetrack.report import changing_worlds, write_report
from valuetrack.report.changing_worlds import ChangedRow, ChangedRun
from valuetrack.report.run_data import read_manifest

ROWS = ("rewards-dqn", "rewards-lktd-forgets")
SMALL = {
    "hidden": [8],
    "batch_size": 8,
    "learning_starts": 40,
    "steps_per_update": 2,
    "replay_capacity": 400,
    "samples": 4,
    "thinning": 1,
    "exploration_steps": 100,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    found = copy.deepcopy(read_experiment("changing-worlds"))
    short = {"every": 100, "alarm_every": 20, "stays": 200, "settled": 50, "transitions": 100}
    found["measure"].update(short, alarm_rate=1e-3, cells=[[0, 0], [1, 1]])
    found["options"]["all"].update(SMALL)
    grid = {"width": 3, "height": 3, "horizon": 20}
    for task in found["tasks"].values():
        changes = [{"at": 300, "reward_mean": -2.0}]
        task.update(steps=700, env_options={**grid, "changes": changes})
    spec = resolve(found, "small")
    folder = open_or_create(
        tmp_path_factory.mktemp("runs") / "run", Request(spec, "reference", ROWS, 5, 2), resume=True
    )
    for row in ROWS:
        assert UnitRun(Unit(row, 5, 2), spec, folder).run(threading.Event(), lambda steps: None)
    return spec, folder


def test_looks_are_where_they_should_be(trained):
    _, folder = trained
    points, seeds = folder.table("points"), folder.table("seeds")
    for row in ROWS:
        mine = points["row"] == row
        assert sorted(set(points["step"][mine])) == [100, 200, 300, 400, 500, 600, 700]
        assert (points["best_return"][mine & (points["step"] < 300)] == -4.0).all()
        assert (points["best_return"][mine & (points["step"] >= 300)] == -8.0).all()
        assert (points["greedy_return"] <= points["best_return"]).all()
    assert (seeds["judged_steps"] == 250).all()
    assert (seeds["false_alarms"] >= 0).all()


def test_a_run_that_is_killed_goes_on_to_the_same_bits(trained, tmp_path):
    spec, folder = trained
    request = Request(spec, "reference", ROWS[:1], 5, 2)
    other, stop = open_or_create(tmp_path / "run", request, resume=True), threading.Event()

    def kill(steps):
        if steps:
            stop.set()

    first = UnitRun(Unit(ROWS[0], 5, 2), spec, other)
    assert not first.run(stop, kill)
    assert UnitRun(Unit(ROWS[0], 5, 2), spec, other).run(threading.Event(), lambda steps: None)
    for name in ("points", "seeds"):
        ours, theirs = other.table(name), folder.table(name)
        mine = theirs["row"] == ROWS[0]
        for column in set(ours) - {"wall_seconds"}:
            np.testing.assert_array_equal(ours[column], theirs[column][mine])


def test_the_report(trained):
    _, folder = trained
    out = console(200)
    write_report(RunFolder.open(folder.path), out)
    shown = out.file.getvalue()
    assert "Steps until right again" in shown
    assert "LKTD, forgets" in shown
    check((folder.path / "report.html").read_text())
    assert set(json.loads((folder.path / "summary.json").read_text())) == set(ROWS)
    assert (folder.path / "figures" / "curves.png").exists()
    run = changing_worlds.load(folder, read_manifest(folder))
    assert [row.steps_after for row in run.rows] == [400, 400]


def measured(shares, change=250, every=100, alarms=(), **options):
    """Return a measure that has looked at a training of two seeds."""
    measure = object.__new__(ChangesMeasure)
    measure.options = ChangesOptions(every=every, **options)
    measure.change = change
    measure.agent = type("Agent", (), {"seeds": (0, 1)})()
    steps = every * (1 + np.arange(np.shape(shares)[1]))
    flat = {"step": np.repeat(steps, 2), "own_covered": np.asarray(shares, float).T.ravel()}
    measure.records = type("Kept", (), {"columns": flat})()
    raised = np.array(alarms, int).reshape(-1, 2)
    kept = type("Raised", (), {"steps": raised[:, 0], "members": raised[:, 1]})()
    measure.alarms = type("Alarms", (), {"raised": kept})()
    return measure


def test_right_again_is_where_it_stays_right():
    shares = [[1, 1, 1, 0, 1, 1, 1, 1], [1, 0, 0.9, 0.7, 0, 0, 0.9, 0.9]]
    measure = measured(shares, stays=300, settled=100)
    np.testing.assert_array_equal(measure._found_after("own_covered", 0.8), [250, np.nan])
    np.testing.assert_array_equal(measure._before("own_covered"), [1.0, 0.5])
    # The look at the very step of the change is after it, but nothing has been learned by then.
    measure = measured([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], change=300, stays=200)
    np.testing.assert_array_equal(measure._found_after("own_covered", 0.8), [100, np.nan])
    np.testing.assert_array_equal(measure._before("own_covered"), [1.0, 1.0])


def test_alarms_are_false_before_the_change_once_all_is_settled():
    alarms = [(80, 0), (150, 0), (250, 0), (240, 1), (300, 1), (310, 1), (400, 0)]
    measure = measured([[1], [1]], alarms=alarms, settled=100)
    assert [measure._alarms_of(member) for member in (0, 1)] == [(150.0, 2), (50.0, 1)]
    assert np.isnan(measured([[1], [1]], alarms=[(90, 1)])._alarms_of(1)[0])


def test_intervals_and_returns_are_compared_with_the_present_world():
    changes = [{"at": 60, "goal": (2, 0)}]
    options = {"env_options": {"width": 3, "height": 3, "changes": changes}, "seed": 0}
    small = {name: tuple(v) if isinstance(v, list) else v for name, v in SMALL.items()}
    row = Row(id="a", label="A", algorithm="dqn", env=CHANGING_ID, steps=100, options=SMALL)
    agent = DQN(CHANGING_ID, **options, **small, discount=0.9)
    measure = ChangesMeasure(ChangesOptions(cells=((0, 0),)), row, agent)
    agent.learn(80)
    found, world = measure._compared(0), agent.trainer.present_env
    assert found["best_return"] == -2.0
    low, high = agent.solve_values(measure.seen, 0, 5_000).interval(0.95)
    best = optimal_q(world, epsilon=0.0, discount=0.9).values[:1]
    inside = ((low <= best) & (best <= high))[np.isfinite(best)]
    assert found["best_covered"] == inside.mean()
    played = agent.evaluate(1, env=IndoorEscape(width=3, height=3, goal=(2, 0), reward_sd=0.0))
    assert found["greedy_return"] == pytest.approx(played.item())


def test_greedy_returns_are_those_of_a_walk():
    world = IndoorEscape(width=3, height=3, walls=((1, 1),), reward_mean=-2.0, horizon=9)
    east_then_north = np.eye(4)[[0, 0, 1, 1, 1, 1, 1, 1, 1]]
    assert greedy_return(world, east_then_north) == best_return(world) == -8.0
    assert greedy_return(world, np.eye(4)[[1] * 9]) == -18.0  # north for ever


def test_worlds_without_a_change_are_refused():
    with pytest.raises(ValueError, match="never changes"):
        change_of(changing())
    for env in (IndoorEscape(), changing(of="CartPole-v1")):
        with pytest.raises(ValueError, match="of the indoor escape"):
            change_of(env)


def row(id, times, rates=(0.0, 5_000.0), **columns):
    entry = type("Entry", (), {})()
    entry.id, entry.algorithm, entry.label, entry.steps = id, id.split("-")[1], id, 10_000
    entry.env_options = {"changes": [{"at": 4_000}]}
    found = {
        **{name: dict(enumerate(times)) for name in changing_worlds.TIMES},
        "false_alarms": dict.fromkeys(range(len(times)), rates[0]),
        "judged_steps": dict.fromkeys(range(len(times)), rates[1]),
        **columns,
    }
    seeds = tuple(range(len(times)))
    return ChangedRow(entry, seeds, {}, dict.fromkeys(seeds, 1.0), found, {})


def test_claims_follow_from_the_seeds():
    rows = (
        row("goal-lktd-forgets", [1_000.0, 1_000.0]), row("goal-dqn", [2_000.0, np.nan]),
        row("walls-lktd-forgets", [1_000.0, 2_000.0]), row("walls-dqn", [2_000.0, 2_000.0]),
    )  # fmt: skip
    manifest = type("M", (), {"spec": type("S", (), {"measure": {"alarm_rate": 1e-5}})()})()
    run = ChangedRun(manifest, rows)
    claims = changing_worlds.speed_claims(run)
    # A seed that is never right again counts with all 6,000 steps.
    assert [(claim.measured[:4], claim.holds) for claim in claims[:2]] == [
        ("4.00", True),
        ("1.33", False),
    ]
    assert [claim.holds for claim in claims[4:]] == [None] * 4  # no DQN that forgets
    # Where nobody loses anything there is nothing to be found again.
    looks = {"step": np.array([4_000, 4_500, 5_000])}
    same = (row("goal-lktd-forgets", [500.0, 500.0]), row("goal-dqn", [500.0, 500.0]))
    same = tuple(dataclasses.replace(one, points=looks) for one in same)
    (claim, *_) = changing_worlds.speed_claims(ChangedRun(manifest, same))
    assert (claim.holds, claim.measured[:7]) == (None, "neither")
    assert changing_worlds.alarm_claim(run).holds
    # What a seed does before the change counts once, and not once for each world.
    assert "(0 in 20,000 steps)" in changing_worlds.alarm_claim(run).measured
    noisy = ChangedRun(manifest, (row("goal-dqn", [1.0], rates=(1.0, 50_000.0)),))
    assert not changing_worlds.alarm_claim(noisy).holds
    count, low, high = noisy.rows[0].alarm_rate()
    assert (count, round(low, 3), round(high, 2)) == (2.0, 0.051, 11.14)


def test_the_file_is_as_the_report_expects():
    spec = load("changing-worlds")
    for one in spec.rows:
        world = changing(**one.env_options)
        assert world.changes[0] < one.steps
        assert one.id.split("-")[0] in changing_worlds.WORLDS
    forgetful = [one.options.get("replay_half_life") for one in spec.rows]
    assert all(
        (one.id.endswith("forgets")) == (half_life is not None)
        for one, half_life in zip(spec.rows, forgetful, strict=True)
    )
