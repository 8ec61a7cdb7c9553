from __future__ import annotations

import copy

import jax
import pytest

from tests.experiments.conftest import small_data
from valuetrack.api.options import parse
from valuetrack.experiments import measure
from valuetrack.experiments.measure.values import ValuesOptions, is_final, plan_points
from valuetrack.experiments.spec import SpecError, load, read_experiment, read_toml, resolve
from valuetrack.learner import Task
from valuetrack.networks import parameter_count
from valuetrack.registry import agent_type

SPEC = load("indoor-escape")


def changed(change, source="spec.toml", **choices):
    data = copy.deepcopy(read_experiment("indoor-escape"))
    change(data)
    return resolve(data, source, **choices)


def test_the_thirteen_rows_of_the_paper_are_there():
    ids = [row.id for row in SPEC.rows]
    sampling = [f"{name}-{n}" for name in ("lktd", "sgld", "sghmc") for n in (2500, 5000, 10000)]
    assert ids == [*sampling, "dqn", "bootdqn", "qrdqn", "kova"]


@pytest.mark.parametrize("preset", ["reference", "paper"])
@pytest.mark.parametrize("row", [row.id for row in SPEC.rows])
def test_every_row_can_be_built(row, preset):
    row = load("indoor-escape", preset=preset).row(row)
    kind = agent_type(row.algorithm)
    options = parse(kind.options_type, row.options, row.id)
    learner = kind.build(Task((2,), False, 4), options)
    params = jax.eval_shape(learner.init, jax.random.key(0)).sampler.params
    outputs = {"bootdqn": 40, "qrdqn": 40}.get(row.algorithm, 4)
    expected = 2 * 32 + 32 + 32 * 32 + 32 + 32 * outputs + outputs
    assert parameter_count(params) == expected


def test_the_presets_differ_where_code_and_paper_do():
    reference, paper = (load("indoor-escape", preset=name) for name in ("reference", "paper"))
    differs = {}
    for row in reference.rows:
        other = paper.row(row.id).options
        for key in row.options.keys() | other.keys():
            if row.options.get(key) != other.get(key):
                assert row.algorithm in {"lktd", "sgld", "sghmc"}
                differs[key] = (row.options.get(key), other.get(key))
    assert differs == {
        "gradient": ("semi", "full"),
        "likelihood_weight": (2.0, 1.0),
        "inner_power": (0.9, 0.0),
        "prior_phase_in": (10_000, 0),
        "momentum": ("none", "restarted"),
        "step_size": (2e-5, 1e-5),
    }
    assert {
        row.algorithm
        for row in reference.rows
        if row.options.get("step_size") != paper.row(row.id).options.get("step_size")
    } == {"sgld"}


def test_an_experiment_extends_another_and_keeps_its_own_rows():
    forms = load("indoor-escape-forms")
    base = SPEC.row("lktd-10000")
    assert forms.row("reference").options == base.options
    assert forms.row("full-gradient").options == {**base.options, "gradient": "full"}
    assert (forms.measure, forms.row("reference").env) == (SPEC.measure, base.env)
    assert not {row.id for row in forms.rows} & {row.id for row in SPEC.rows}


def test_a_row_stands_for_each_of_its_tasks():
    data = {
        "name": "two-tasks",
        "measure": {"kind": "control"},
        "options": {"dqn": {"discount": 0.5, "batch_size": 8}},
        "tasks": {
            "pole": {"env": "CartPole-v1", "steps": 100, "options": {"batch_size": 16}},
            "car": {"env": "MountainCar-v0", "steps": 200},
        },
        "rows": [
            {"id": "plain", "tasks": ["pole", "car"], "algorithm": "dqn"},
            {"id": "fast", "tasks": ["car"], "algorithm": "dqn", "options": {"discount": 0.1}},
        ],
    }
    spec = resolve(data, "two.toml")
    assert [row.id for row in spec.rows] == ["pole-plain", "car-plain", "car-fast"]
    assert [(row.env, row.steps) for row in spec.rows[:2]] == [
        ("CartPole-v1", 100),
        ("MountainCar-v0", 200),
    ]
    assert spec.row("pole-plain").options == {"discount": 0.5, "batch_size": 16}
    assert spec.row("car-fast").options == {"discount": 0.1, "batch_size": 8}
    for wrong in ("pole", ["boat"], [3]):
        data["rows"][0]["tasks"] = wrong
        with pytest.raises(SpecError, match="'plain' are a list of those in the file: pole, car"):
            resolve(data, "two.toml")


def test_a_task_has_options_for_some_algorithms_and_may_be_like_another():
    data = {
        "name": "like",
        "measure": {"kind": "control"},
        "options": {"all": {"batch_size": 4, "discount": 0.5}},
        "tasks": {
            "pole": {
                "env": "CartPole-v1",
                "steps": 100,
                "options": {"batch_size": 8},
                "options_of": {"samplers": {"prior_sd": 2.0}, "dqn": {"batch_size": 16}},
            },
            "long": {"like": "pole", "steps": 900, "options_of": {"lktd": {"alpha": 0.5}}},
        },
        "rows": [
            {"id": "lktd", "tasks": ["pole", "long"], "algorithm": "lktd"},
            {"id": "dqn", "tasks": ["pole"], "algorithm": "dqn"},
            {"id": "free", "env": "Acrobot-v1", "steps": 5, "algorithm": "dqn"},
        ],
    }
    spec = resolve(data, "like.toml")
    shared = {"batch_size": 8, "discount": 0.5}
    assert spec.row("pole-lktd").options == {**shared, "prior_sd": 2.0}
    assert spec.row("long-lktd").options == {**shared, "prior_sd": 2.0, "alpha": 0.5}
    assert (spec.row("long-lktd").env, spec.row("long-lktd").steps) == ("CartPole-v1", 900)
    assert spec.row("pole-dqn").options == {"batch_size": 16, "discount": 0.5}
    assert spec.row("free").options == {"batch_size": 4, "discount": 0.5}
    assert "options_of" not in spec.model_dump()["rows"][0]
    for wrong in ("later", "long", 3):
        data["tasks"]["long"]["like"] = wrong
        with pytest.raises(SpecError, match=r"like.toml: task 'long' is like .* no task before it"):
            resolve(data, "like.toml")
    data["tasks"]["long"]["like"] = "pole"
    data["tasks"]["pole"]["options_of"]["ppo"] = {}
    with pytest.raises(SpecError, match="there are no options of 'ppo'"):
        resolve(data, "like.toml")


def test_the_forms_have_the_settings_of_the_papers_tasks():
    forms, control = load("lktd-forms"), load("classic-control")
    free = {"form", "double", "init", "random_warmup", "inner_iterations", "inner_power"}
    for row in forms.rows:
        theirs = control.row(f"{row.id.partition('-')[0]}-lktd")
        assert (row.env, row.steps) == (theirs.env, theirs.steps)
        for key in (row.options.keys() | theirs.options.keys()) - free:
            assert row.options[key] == theirs.options[key], (row.id, key)


def test_what_rows_share_reaches_those_that_have_it():
    options = {row.id: row.options for row in SPEC.rows}
    assert all(options[row]["hidden"] == [32, 32] for row in options)
    assert all(options[row]["exploration_steps"] == 100_000 for row in options)
    assert {row for row in options if "prior_sd" in options[row]} == {
        row for row in options if row.startswith(("lktd", "sgld", "sghmc"))
    }
    assert options["dqn"]["max_gradient_norm"] is None  # "none" in the file
    assert options["sghmc-2500"]["momentum"] == "none"  # which is a word there


def test_what_is_closer_to_a_row_wins():
    spec = changed(
        lambda d: (
            d["options"]["all"].update(batch_size=1),
            d["options"]["samplers"].update(batch_size=2),
            d["options"].setdefault("lktd", {}).update(batch_size=3),
            d["presets"]["reference"]["samplers"].update(batch_size=4),
            d["rows"][3]["options"].update(batch_size=5),
        )
    )
    found = {row.id: row.options["batch_size"] for row in spec.rows}
    assert (found["dqn"], found["lktd-2500"], found["sghmc-2500"]) == (1, 4, 4)
    assert found["sgld-2500"] == 5
    paper = changed(lambda d: d["options"].update(lktd={"batch_size": 3}), preset="paper")
    assert {row.options["batch_size"] for row in paper.rows} == {3, 100}


def test_points_add_up_to_the_run():
    options, row = ValuesOptions(), SPEC.row("dqn")
    points = plan_points(options, row)
    assert points[-1] == row.steps // row.options["steps_per_update"] == 100_000
    assert points == sorted(set(points))
    final = [point for point in points if is_final(options, (point - 1) // 1_000)]
    assert len(final) == 50
    assert final[0] - 100 == 95_000
    assert len(points) == 95 + 50


WRONG = [
    (lambda d: d["measure"].update(widnows=1), "measure: widnows: unknown key"),
    (lambda d: d["measure"].update(kind="colours"), "measures 'colours'; there are values"),
    (lambda d: d["measure"].update(kind=["values"]), "measures \\['values'\\]"),
    (lambda d: d["measure"].update(pool_size="large"), "measure: pool_size"),
    (lambda d: d.update(measure=3), "measure"),
    (lambda d: d.update(colour="red"), "colour: unknown key"),
    (lambda d: d.update(steps=-5), "steps"),
    (lambda d: d.update(steps="many"), "steps"),
    (lambda d: d.update(steps=True), "steps"),
    (lambda d: d.update(name="../up"), "name"),
    (lambda d: d.pop("env"), "rows.0.env"),
    (lambda d: d.update(rows={}), "rows"),
    (lambda d: d.update(rows=[3]), "rows.0"),
    (lambda d: d["rows"][0].update(id="../up"), "rows.0.id"),
    (lambda d: d["rows"][1].update(id="lktd-2500"), "two rows have the id 'lktd-2500'"),
    (lambda d: d["rows"][0].update(label=3), "rows.0.label"),
    (lambda d: d["rows"][0].update(options=3), "rows.0.options"),
    (lambda d: d["rows"][0].update(options=[["a", 1]]), "rows.0.options"),
    (lambda d: d["rows"][0].update(env_options=3), "rows.0.env_options"),
    (lambda d: d["rows"][0].update(algorithm=["lktd"]), "rows.0.algorithm"),
    (lambda d: d["rows"][0].pop("algorithm"), "rows.0.algorithm"),
    (lambda d: d["rows"][0].update(algorithm="ppo"), "no algorithm 'ppo'"),
    (lambda d: d["rows"][9]["options"].update(pseudo_population=5), "pseudo_population"),
    (lambda d: d["options"].update(all=3), "options.all"),
    (lambda d: d["options"]["all"].update(colour=1), "options.all.colour: no algorithm has"),
    (lambda d: d["options"]["samplers"].update(heads=3), "options.samplers.heads: no algorithm"),
    (lambda d: d["options"]["dqn"].update(colour=1), "colour"),
    (lambda d: d["options"].update(ppo={}), "there are no options of 'ppo', only of all, sampl"),
    (lambda d: d["presets"]["paper"].update(ppo={}), "there are no options of 'ppo'"),
    (lambda d: d["presets"]["paper"]["samplers"].update(colour=1), "samplers.colour"),
    (lambda d: d["presets"]["reference"]["samplers"].update(gradient="half"), "gradient"),
    (lambda d: d["presets"].update(mine=3), "presets.mine"),
    (lambda d: d.update(exploration_fraction=2), "exploration_fraction"),
    (lambda d: d["quick"].update(seeds=0), "quick.seeds"),
]


@pytest.mark.parametrize(("change", "sentence"), WRONG)
def test_a_wrong_key_or_value_is_one_sentence(change, sentence):
    with pytest.raises(SpecError, match=sentence) as caught:
        measure.check(changed(change), ())
    assert "\n" not in str(caught.value)


def test_an_unknown_preset_is_one_sentence():
    with pytest.raises(SpecError, match="no preset 'mine'; there are reference, paper"):
        load("indoor-escape", preset="mine")
    with pytest.raises(SpecError, match="no preset 'paper'; there are reference"):
        load("classic-control", preset="paper")


def test_files_that_are_not_there_or_not_toml(tmp_path):
    with pytest.raises(SpecError, match="no file"):
        read_toml(tmp_path / "absent.toml")
    for content in (b"name = [", b"name = '\xff'"):
        (tmp_path / "broken.toml").write_bytes(content)
        with pytest.raises(SpecError, match="not valid TOML"):
            read_toml(tmp_path / "broken.toml")
    with pytest.raises(
        SpecError, match="There is no experiment 'classic'; there are changing-worlds, classic-co"
    ):
        load("classic")


def test_unknown_rows_and_uneven_steps_are_refused():
    with pytest.raises(SpecError, match=r"no row 'dqn2'.*lktd-2500"):
        SPEC.row("dqn2")
    for steps in (5, 1_234, 15_000):
        with pytest.raises(SpecError, match="multiple of 10,000"):
            measure.check(load("indoor-escape", steps=steps), ["dqn"])
    measure.check(load("indoor-escape", steps=20_000), ["dqn"])


def test_the_hash_sees_every_number_but_not_the_quick_run():
    hashes = {
        SPEC.hash(),
        load("indoor-escape", preset="paper").hash(),
        load("indoor-escape", steps=500_000).hash(),
        load("indoor-escape", seeds_per_unit=3).hash(),
    }
    assert len(hashes) == 4
    assert changed(lambda d: d["quick"].update(seeds=77)).hash() == SPEC.hash()


def test_other_steps_reach_every_row_and_their_exploration():
    spec = load("indoor-escape", steps=20_000)
    assert {row.steps for row in spec.rows} == {20_000}
    assert {row.options["exploration_steps"] for row in spec.rows} == {2_000}
    assert {row.steps for row in load("classic-control", steps=77).rows} == {77}


def test_the_small_experiment_is_the_same_but_smaller():
    small = resolve(small_data(), "small")
    assert [row.id for row in small.rows] == [row.id for row in SPEC.rows]
    measure.check(small, [row.id for row in small.rows])
