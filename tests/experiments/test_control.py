"""The classic control experiment: its settings, its points, and going on after a stop."""

from __future__ import annotations

import numpy as np
import pytest

import valuetrack as vt
from tests.experiments.conftest import StopAfter, run_here, run_until
from valuetrack.api.options import parse as parse_options
from valuetrack.experiments.measure import options_of
from valuetrack.experiments.measure.control import ControlOptions, plan_points
from valuetrack.experiments.run import Request, open_or_create
from valuetrack.experiments.spec import SpecError, load, resolve
from valuetrack.io import array_file
from valuetrack.registry import AGENTS

SMALL = {"hidden": (8,), "batch_size": 8, "replay_capacity": 200, "learning_starts": 20}


def small_spec(steps=None, **changes):
    rows = [
        {"id": "cartpole-lktd", "algorithm": "lktd", "env": "CartPole-v1", "steps": 200,
         "options": {**SMALL, "step_size": 1e-5}},
        {"id": "cartpole-dqn", "algorithm": "dqn", "env": "CartPole-v1", "steps": 200,
         "options": {**SMALL, "steps_per_update": 10, "updates_per_cycle": 5}},
    ]  # fmt: skip
    data = {
        "name": "classic-control",
        "measure": {"kind": "control", "points": 5, "episodes": 2},
        "quick": {"rows": ["cartpole-dqn"], "seeds": 1, "steps": 200},
        "rows": rows,
        **changes,
    }
    return resolve(data, "small", steps=steps)


def options_before(row):
    """Return a row's options as they were when the settings experiment was made.

    It has no options for the initialisation and the warm-up, and LKTD learned by the maximum.
    """
    own = {k: v for k, v in row.options.items() if k not in ("init", "random_warmup")}
    return own | {"form": "q_learning", "inner_iterations": 5, "inner_power": 0.9}


@pytest.mark.parametrize("env", ["CartPole-v1", "MountainCar-v0", "LunarLander-v3"])
def test_the_settings_experiment_varies_one_option_at_a_time(env):
    spec, tasks = load("lktd-settings"), load("classic-control").rows
    (base,) = (row for row in tasks if (row.env, row.algorithm) == (env, "lktd"))
    first, *others = (row for row in spec.rows if row.env == env)
    assert first.options == options_before(base) | {"inner_iterations": 2}
    assert others
    # What changes beside another option, in rows named after both.
    beside = {
        "iterations-1": {"inner_iterations"},
        "target-10": {"target_every"},
        "target-50": {"target_every"},
    }
    for row in (first, *others):
        assert (row.algorithm, row.steps) == (base.algorithm, base.steps)
    for row in others:
        changed = {key for key, value in row.options.items() if first.options[key] != value}
        assert len(changed - beside.get(row.id.rpartition("-")[0].rpartition("-")[0], set())) == 1
        assert all(f"{key} = " in row.label for key in changed)


def test_rows_of_the_settings_experiment_are_named_by_what_sets_them_apart():
    spec, base = load("lktd-settings"), load("classic-control").row("cartpole-lktd")
    assert spec.row("iterations-5").options == options_before(base)
    assert spec.row("base").label == "LKTD"
    assert spec.row("step-4").label == "LKTD, step_size = 0.0001"
    mended = "LKTD, inner_iterations = 1, target_every = 50"
    assert spec.row("iterations-1-target-50").label == mended


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    spec = small_spec()
    request = Request(spec, "reference", ("cartpole-lktd", "cartpole-dqn"), 3, 2)
    folder = open_or_create(tmp_path_factory.mktemp("runs") / "whole", request, resume=True)
    assert run_here(folder)
    return folder


def test_the_twelve_rows_have_the_hyperparameters_of_the_paper():
    spec = load("classic-control")
    tasks = ("cartpole", "mountaincar", "lunarlander", "acrobot")
    assert {row.id for row in spec.rows} == {
        f"{t}-{a}" for t in tasks for a in ("lktd", "dqn", "qrdqn")
    }
    steps = {
        "cartpole": 100_000,
        "mountaincar": 200_000,
        "lunarlander": 200_000,
        "acrobot": 100_000,
    }
    for row in spec.rows:
        task = row.id.split("-")[0]
        assert row.steps == steps[task]
        options = parse_options(AGENTS[row.algorithm].options_type, row.options, row.id)
        assert options.hidden == (256, 256)
        assert options.batch_size == (64 if task == "cartpole" else 128)
        if row.algorithm == "lktd":
            assert (options.pseudo_population, options.observation_sd) == (20_000, 1.0)
            assert (options.inner_iterations, options.form) == (1, "sarsa")
    lktd = spec.row("mountaincar-lktd").options
    assert (lktd["step_size"], lktd["prior_sd"], lktd["replay_capacity"]) == (1e-4, 0.5, 10_000)
    # 100 environment steps between two copies, 16 updates after every 32 steps.
    assert lktd["target_every"] == 50
    # Copies every 10 steps are one at the beginning of each phase of 128 updates.
    assert spec.row("cartpole-dqn").options["target_every"] == 128
    assert spec.row("lunarlander-qrdqn").env == "LunarLander-v3"


def test_baselines_are_those_of_the_papers_framework():
    spec, he = load("classic-control"), load("classic-control", preset="he")
    for row in spec.rows:
        assert row.options["init"] == "pytorch"
        assert he.row(row.id).options == {**row.options, "init": "he"}
        assert row.options["random_warmup"] is True
        if row.algorithm == "qrdqn":  # as in sb3-contrib
            assert row.options["adam_epsilon"] == 0.01 / row.options["batch_size"]
            assert row.options["max_gradient_norm"] is None
    assert spec.row("lunarlander-qrdqn").options["learning_rate"]["initial"] == 1.425e-3
    assert spec.row("acrobot-qrdqn").options["learning_starts"] == 0


def test_points_hold_every_seed_and_the_best_never_falls(whole):
    points = whole.table("points")
    assert set(points["row"]) == {"cartpole-lktd", "cartpole-dqn"}
    for row in ("cartpole-lktd", "cartpole-dqn"):
        for seed in (3, 4):
            chosen = (points["row"] == row) & (points["seed"] == seed)
            np.testing.assert_array_equal(points["step"][chosen], [40, 80, 120, 160, 200])
            np.testing.assert_array_equal(points["point"][chosen], [1, 2, 3, 4, 5])
            best = points["best_return"][chosen]
            np.testing.assert_array_equal(
                best, np.maximum.accumulate(points["evaluation_return"][chosen])
            )
            assert points["training_episodes"][chosen].sum() > 3
    assert not points["diverged"].any()


@pytest.mark.parametrize("row", ["cartpole-lktd", "cartpole-dqn"])
def test_the_best_agent_is_kept_for_every_seed(whole, row):
    agent = vt.load(whole.unit_path(row, "seeds-0003-0004") / "best.vt")
    assert agent.seeds == (3, 4)
    points = whole.table("points")
    for member, seed in enumerate(agent.seeds):
        chosen = (points["row"] == row) & (points["seed"] == seed)
        best = np.argmax(points["evaluation_return"][chosen])
        # The same episodes as when it was found.
        played = agent.play(small_spec().measure["episodes"], seed=int(best) + 1)
        names = ("evaluation_return", "discounted_return", "start_value")
        for name, part in zip(names, played, strict=False):
            assert part[member].mean() == points[name][chosen][best]
        state = np.zeros(4, np.float32)
        estimate = agent.posterior(state, member=member)
        np.testing.assert_array_equal(estimate.samples[0], estimate.latest)


def test_a_run_stopped_twice_goes_on_to_the_same_bits(whole, tmp_path):
    request = Request(small_spec(), "reference", ("cartpole-lktd", "cartpole-dqn"), 3, 2)
    for asked in (2, 7):
        folder = open_or_create(tmp_path / "run", request, resume=True)
        assert not run_until(folder, StopAfter(asked))
        assert list(folder.path.glob("units/*/*/checkpoint.vt"))
    folder = open_or_create(tmp_path / "run", request, resume=True)
    assert run_here(folder)
    left, right = whole.table("points"), folder.table("points")
    for column in left:
        np.testing.assert_array_equal(left[column], right[column], err_msg=column)
    for row in ("cartpole-lktd", "cartpole-dqn"):
        kept = [
            array_file.load(f.unit_path(row, "seeds-0003-0004") / "best.vt")[0]
            for f in (whole, folder)
        ]
        for name, array in kept[0].items():
            np.testing.assert_array_equal(array, kept[1][name])


def test_tasks_that_are_stepped_in_python_are_run_and_go_on(tmp_path):
    row = small_spec().row("cartpole-dqn").model_dump()
    spec = small_spec(rows=[row | {"env": "FrozenLake-v1"}])
    request = Request(spec, "reference", ("cartpole-dqn",), 0, 2)
    folder = open_or_create(tmp_path / "run", request, resume=True)
    assert not run_until(folder, StopAfter(5))
    assert list(folder.path.glob("units/*/*/checkpoint.vt"))
    assert run_here(folder)
    points = folder.table("points")
    assert points["training_episodes"].dtype == np.int64
    played = points["training_episodes"] > 0
    assert played.sum() > 5
    np.testing.assert_array_equal(np.isfinite(points["training_return"]), played)


def test_a_seed_that_diverges_is_no_result(tmp_path):
    spec = small_spec()
    row = spec.rows[0].model_dump()
    row["options"] |= {"step_size": 1e6, "guard": False}
    broken = small_spec(rows=[row])
    request = Request(broken, "reference", ("cartpole-lktd",), 0, 1)
    folder = open_or_create(tmp_path / "run", request, resume=True)
    assert run_here(folder)
    assert folder.table("seeds")["diverged_at"][0] > 0
    points = folder.table("points")
    assert points["diverged"][-1]
    assert not np.isinf(points["best_return"]).any()


def points_of(cycles, points):
    """Return the points of a training of so many cycles, of one step each."""
    row = small_spec().row("cartpole-dqn")
    options = {**row.options, "steps_per_update": 1}
    row = row.model_copy(update={"steps": cycles, "options": options})
    return plan_points(ControlOptions(points=points), row)


@pytest.mark.parametrize(("cycles", "points"), [(100, 100), (391, 100), (25_000, 100), (7, 5)])
def test_points_lie_evenly_and_end_with_the_training(cycles, points):
    planned = points_of(cycles, points)
    assert len(set(planned)) == points
    assert planned[-1] == cycles
    gaps = np.diff([0, *planned])
    assert gaps.min() >= 1
    assert gaps.max() - gaps.min() <= 1


def test_a_training_of_few_cycles_has_a_point_after_each():
    assert points_of(3, 100) == [1, 2, 3]


def test_a_first_look_has_points_enough_for_its_figures():
    for name in ("classic-control", "lktd-settings"):
        spec = load(name)
        for row in (spec.row(row_id) for row_id in spec.quick.rows):
            cycles = spec.quick.steps // row.options["steps_per_update"]
            assert len(points_of(cycles, spec.measure["points"])) >= 50


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"colour": "red"}, "colour: unknown key"),
        ({"measure": {"kind": "control", "points": 0}}, "points"),
        ({"measure": {"kind": "pictures"}}, "there are"),
        ({"rows": [{"id": "a", "algorithm": "ppo", "env": "x", "steps": 1}]}, "algorithm"),
        (
            {"rows": [{"id": "a", "algorithm": "dqn", "env": "x", "steps": 1,
                       "options": {"learning_rat": 1}}]},
            "did you mean learning_rate",
        ),
    ],
)  # fmt: skip
def test_a_wrong_key_or_value_is_one_sentence(change, sentence):
    with pytest.raises(SpecError) as caught:
        options_of(small_spec(**change))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_rows_and_experiments_are_refused():
    with pytest.raises(SpecError, match="There is no row 'x'"):
        small_spec().row("x")
    with pytest.raises(SpecError, match="There is no experiment 'classic'"):
        load("classic")


def test_labels_follow_a_row_that_now_comes_first(tmp_path):
    """Rows are named by what sets them apart from the first."""
    row = small_spec().row("cartpole-dqn").model_dump(exclude={"label"})
    slow, quick = (
        row | {"id": name, "options": row["options"] | {"learning_rate": rate}}
        for name, rate in (("slow", 1e-4), ("quick", 1e-2))
    )
    short = {"quick": {"rows": ["slow"], "seeds": 1, "steps": 200}}
    for rows in ([slow], [quick, slow]):
        request = Request(
            small_spec(rows=rows, **short), "reference", tuple(row["id"] for row in rows), 0, 1
        )
        folder = open_or_create(tmp_path / "run", request, resume=True)
    labels = {entry["id"]: entry["label"] for entry in folder.manifest()["rows"]}
    assert labels == {"quick": "DQN", "slow": "DQN, learning_rate = 0.0001"}


def test_other_step_counts_reach_every_row():
    assert {row.steps for row in small_spec(steps=77).rows} == {77}
    assert small_spec().row("cartpole-dqn").steps == 200
    assert small_spec().hash() != small_spec(steps=77).hash()
