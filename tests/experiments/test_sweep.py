"""A sweep's file: rows from environments, algorithms and grids, and what is refused."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from valuetrack.commands.sweep import plan
from valuetrack.experiments.spec import SpecError
from valuetrack.experiments.sweep import check_environments, resolve_sweep
from valuetrack.experiments.tuning.space import check_space, read_space

DATA = {
    "environments": ["CartPole-v1", {"env": "Acrobot-v1", "steps": 100, "options": {"tau": 0.5}}],
    "algorithms": ["lktd", "dqn", "ktd"],
    "steps": 50,
    "options": {"discount": 0.9, "samplers": {"guard": False}, "dqn": {"double": False}},
    "grid": {"learning_rate": [1e-3, 3e-4], "dqn": {"hidden": [[64, 64], [8]]}},
}


def rows_of(data):
    return resolve_sweep(data, "mine.toml").spec.rows


def test_a_row_for_every_combination_that_an_algorithm_has():
    rows = rows_of(DATA)
    per_env = {"lktd": 2, "dqn": 4, "ktd": 1}  # KTD has no learning rate
    for env in ("CartPole-v1", "Acrobot-v1"):
        found = [row.algorithm for row in rows if row.env == env]
        assert {name: found.count(name) for name in per_env} == per_env
    assert {row.steps for row in rows if row.env == "Acrobot-v1"} == {100}
    dqn = [row for row in rows if (row.env, row.algorithm) == ("CartPole-v1", "dqn")]
    assert [row.options["hidden"] for row in dqn[:2]] == [[64, 64], [8]]
    assert dqn[1].label == "DQN, learning_rate = 0.001, hidden = [8]"
    assert dqn[0].options == {
        "discount": 0.9, "double": False, "learning_rate": 1e-3, "hidden": [64, 64],
    }  # fmt: skip
    lktd = next(row for row in rows if row.env == "Acrobot-v1")
    assert lktd.options == {"discount": 0.9, "guard": False, "tau": 0.5, "learning_rate": 1e-3}


def test_ids_are_short_safe_and_stay_when_a_sweep_grows():
    before = {row.id: row for row in rows_of(DATA)}
    assert all(re.fullmatch(r"[a-z0-9-]{1,45}", row_id) for row_id in before)
    larger = {
        **DATA,
        "environments": [*DATA["environments"], "MountainCar-v0"],
        "grid": {"dqn": DATA["grid"]["dqn"], "learning_rate": [1e-2, 3e-4, 1e-3]},
    }
    after = {row.id: row for row in rows_of(larger)}
    assert before.keys() < after.keys()
    assert all(after[row_id].options == row.options for row_id, row in before.items())
    # What was fixed and is varied now, or the other way round, is the same row.
    fixed = rows_of({**DATA, "grid": {}, "options": {"learning_rate": 1e-3}, "algorithms": ["dqn"]})
    varied = rows_of(
        {**DATA, "grid": {"learning_rate": [1e-3]}, "options": {}, "algorithms": ["dqn"]}
    )
    assert [row.id for row in fixed] == [row.id for row in varied]


def test_environments_with_other_options_are_others():
    places = [{"env": "CartPole-v1"}, {"env": "CartPole-v1", "env_options": {"a": 1}}]
    rows = rows_of({**DATA, "environments": places, "algorithms": ["dqn"], "options": {}})
    assert len({row.id for row in rows}) == 8


def test_the_word_none_is_none_where_an_option_may_be():
    data = {
        **DATA,
        "algorithms": ["dqn"],
        "options": {},
        "grid": {"max_gradient_norm": ["none", 1.0]},
    }
    assert [row.options["max_gradient_norm"] for row in rows_of(data)][:2] == [None, 1.0]


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"sead": 1}, "sead: unknown key"),
        ({"environments": [{"env": "CartPole-v1", "stepps": 1}]}, "stepps: unknown key"),
        ({"environments": []}, "environments"),
        ({"algorithms": ["dqm"]}, "no algorithm 'dqm'"),
        ({"options": {"learning_rat": 1}}, "options.learning_rat: no algorithm of the sweep"),
        ({"options": {"dqn": {}, "sgld": {}}}, "options.sgld: the sweep does not run sgld"),
        ({"options": {"dqn": {"alpha": 1}}}, "DQN has no option 'alpha'"),
        ({"grid": {"learning_rate": 1e-3}}, "takes a list of values, not 0.001"),
        ({"grid": {"learning_rate": []}}, "takes a list of values"),
        ({"grid": {"learning_rate": [1e-3, 1e-3]}}, "a value twice"),
        ({"grid": {"discount": [0.9]}}, "in the options too"),
        (
            {"grid": {"learning_rate": [1e-3, -1.0]}},
            r"row cartpole-v1-lktd-\w+ \(CartPole-v1, LKTD, learning_rate = -1\): .* not -1.0",
        ),
        ({"grid": {"hidden": [8, "16x"]}}, "hidden is wrong"),
        ({"measure": {"pionts": 3}}, "pionts: unknown key"),
        ({"steps": 0}, "steps"),
        ({"environments": ["CartPole-v1", "CartPole-v1"]}, "two rows have the id"),
        ({"environments": ["Nope-v0"]}, r"Row nope-v0-lktd-\w+ .* no environment 'Nope-v0'"),
        (
            {"options": {"lktd": {"prior_narrow_sd": 0.1}}},
            "Row cartpole-v1-lktd.*prior_narrow_sd belongs to",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence_that_names_the_place(changed, part):
    with pytest.raises(SpecError, match=part) as caught:
        check_environments(resolve_sweep({**DATA, **changed}, "mine.toml"))
    assert "\n" not in str(caught.value)


def test_the_files_in_the_documentation_can_be_run():
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")
    sweep, space = (tomllib.loads(text) for text in re.findall(r"```toml\n(.*?)```", page, re.S))
    assert plan(resolve_sweep(sweep, "sweep.toml")) in " ".join(page.split())
    check_space(read_space(space, "space.toml"), "dqn", {}, "space.toml")
