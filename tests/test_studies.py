"""The studies run, and the page shows what they found."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest
from rich.console import Console

import valuetrack as vt
from valuetrack import rng
from valuetrack.checks import rates, rates_report
from valuetrack.envs.indoor_escape import EAST, NORTH, WEST, IndoorEscape, observations, optimal_q
from valuetrack.policies import greedy
from valuetrack.types import Transition

ROOT = Path(__file__).parents[1]
STUDIES = ROOT / "studies"
RESULTS = ROOT / "results" / "studies"
FOUND = {
    "gradient_noise": "gradient-noise",
    "sparsity": "sparsity",
    "monitoring": "monitoring",
    "wrong_mask": "wrong-mask",
    "simulated_truth": "simulated-truth",
    "one_hot": "one-hot",
}
ALL, NONE = (True, True, True, True), (False, False, False, False)


def run(script: str, monkeypatch: pytest.MonkeyPatch, *arguments: str, name: str = "__main__"):
    monkeypatch.syspath_prepend(STUDIES)
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    mpl.use("agg")
    try:
        return SimpleNamespace(**runpy.run_path(str(STUDIES / f"{script}.py"), run_name=name))
    finally:
        sys.modules.pop("common", None)


def test_every_study_is_tested():
    scripts = {path.stem for path in STUDIES.glob("*.py")} - {"common", "sb3_defaults"}
    assert scripts == set(FOUND)  # that of SB3: tests/sb3/test_defaults_study.py


@pytest.mark.parametrize("script", FOUND)
def test_a_quick_study_writes_everything(script, tmp_path, monkeypatch, capsys):
    run(script, monkeypatch, "--quick", "--out", str(tmp_path))
    name = FOUND[script]
    document = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    assert document["study"] == name
    table = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    assert "nan" not in table
    assert table in capsys.readouterr().out
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    if script == "gradient_noise":  # one set of minibatches for all: ratios are precise
        for row in document["problems"]["linear regression"]["rows"]:
            assert row["measured_same_step"] == pytest.approx(row["same_step"], rel=0.15)


@pytest.mark.parametrize("script", FOUND)
def test_the_kept_tables_and_figures_follow_from_the_kept_numbers(script, tmp_path, monkeypatch):
    name = FOUND[script]
    (tmp_path / f"{name}.json").write_bytes((RESULTS / name / f"{name}.json").read_bytes())
    run(script, monkeypatch, "--redraw", "--out", str(tmp_path))
    assert (tmp_path / f"{name}.md").read_text() == (RESULTS / name / f"{name}.md").read_text()


def test_quick_rates_write_everything_and_agree(tmp_path):
    assert rates_report.run_rates(tmp_path, quick=True, seed=1, console=Console(quiet=True))
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"rates.json", "rates.md", "rates.png", "w2.png"}
    curves = rates.load(tmp_path)
    assert [curve.setting for curve in curves] == rates.settings(rates.POWERS[1:2])
    written = (tmp_path / "rates.md").read_text(encoding="utf-8")
    assert rates.markdown(curves) in written


def test_the_kept_table_of_rates_follows_from_the_kept_numbers():
    curves = rates.load(RESULTS / "rates")
    assert max(abs(z) for curve in curves for z in curve.chains.z.values()) < rates_report.LARGEST_Z
    written = (RESULTS / "rates" / "rates.md").read_text(encoding="utf-8")
    for table in (rates.markdown, rates.own_markdown, rates.proof_markdown):
        assert table(curves) in written
    fresh = [c for c in curves if c.setting == rates.Setting(c.setting.power)]
    for curve in fresh:
        np.testing.assert_allclose(
            rates.measured(curve), rates.predicted(curve.setting.power), atol=0.06
        )


def test_the_page_shows_the_kept_tables():
    page = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    kept = "\n".join(path.read_text(encoding="utf-8") for path in RESULTS.glob("*/*.md"))
    measured = {line for line in kept.splitlines() if line.startswith("| ")}
    shown = [
        line
        for line in page.splitlines()
        if line.startswith("| ") and sum(char.isdigit() for char in line) > 8
    ]
    assert len(shown) > 30
    assert [line for line in shown if line not in measured] == []


def test_the_variance_of_returns_is_that_of_simulated_ones(monkeypatch):
    study = run("simulated_truth", monkeypatch, name="simulated_truth")
    env = IndoorEscape(width=3, height=1, reward_sd=0.5)
    # From the middle one step, from the west two: 0.25 (1 + 0.81), but for one step back in 200.
    variance = study.variance_of_returns(env)
    assert variance[1, EAST] == pytest.approx(0.25)
    assert variance[0, EAST] == pytest.approx(0.25 * 1.81, rel=0.03)
    errors = [study.simulated_error(IndoorEscape(), 100, seed)["E"] for seed in range(4)]
    legal = optimal_q(IndoorEscape()).legal[:, EAST]
    exact = study.variance_of_returns(IndoorEscape())[legal, EAST].mean() / 100
    assert np.mean(errors) == pytest.approx(exact, rel=0.25)  # 4 x 90 squares: an se of 7 %


PATH = [  # s', a', and the legal actions of s'' by hand: E, N, W, S
    ((1, 0), EAST, (True, True, True, False)),
    ((0, 1), EAST, ALL),  # W among them, which is illegal in s'
    ((1, 1), WEST, (True, True, False, True)),
    ((8, 3), EAST, (False, True, True, True)),  # without E, the action itself
    ((3, 8), NORTH, (True, False, True, True)),
    ((8, 9), EAST, NONE),  # the goal
    ((9, 8), NORTH, NONE),
]


def transitions_of_the_path() -> Transition:
    """Return transitions into the cells of the path, with the masks that belong to them."""
    env = IndoorEscape()
    cells = jnp.array([env.index(cell) for cell, _, _ in PATH])
    arrived, count = jnp.asarray(observations(env))[cells], len(PATH)
    return Transition(
        observation=jnp.asarray(observations(env))[cells - 1],
        action=jnp.full(count, EAST),
        reward=jnp.full(count, -1.0),
        discount=jnp.full(count, 0.9),
        next_observation=arrived,
        next_action=jnp.array([action for _, action, _ in PATH]),
        next_mask=jnp.asarray(env._tables.legal)[cells],
    )


def test_the_wrong_mask_is_that_of_the_state_after_the_next_one(monkeypatch):
    study = run("wrong_mask", monkeypatch, name="wrong_mask")
    env, batch = IndoorEscape(), transitions_of_the_path()
    where = batch.next_observation, batch.next_action
    found = jax.vmap(lambda *at: study.mask_of_the_state_after_next(env, *at))(*where)
    np.testing.assert_array_equal(found, [mask for _, _, mask in PATH])
    values = jnp.tile(jnp.array([-9.0, -1.0, -2.0, -3.0]), (len(PATH), 1))
    chosen = greedy(values, found)
    assert chosen.tolist()[-2:] == [EAST, EAST]  # of an empty set, although E is worth least
    assert not batch.next_mask[-1, EAST]  # and it is illegal south of the goal


@pytest.mark.parametrize("algorithm", ["dqn", "qrdqn", "kova"])
def test_an_agent_with_the_wrong_mask_learns_from_it_and_from_nothing_else(algorithm, monkeypatch):
    study = run("wrong_mask", monkeypatch, name="wrong_mask")
    batch = transitions_of_the_path()
    wrong = batch._replace(next_mask=jnp.array([mask for _, _, mask in PATH]))
    right, mistaken = (
        kind(algorithm)(IndoorEscape(), hidden=(4,), batch_size=len(PATH)).learner
        for kind in (vt.registry.agent_type, study.with_wrong_mask)
    )
    state = right.init(rng.key(1))

    def learned(learner, transitions):
        after, _ = jax.jit(learner.update)(rng.key(2), state, transitions)
        # All of the sampler's state: Adam's first step forgets how large a gradient is.
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(after.sampler)])

    np.testing.assert_allclose(learned(mistaken, batch), learned(right, wrong), rtol=1e-6)
    assert not np.allclose(learned(mistaken, batch), learned(right, batch), rtol=1e-4)


def test_with_exact_values_the_wrong_mask_errs_south_of_the_goal_alone(monkeypatch):
    study = run("wrong_mask", monkeypatch, name="wrong_mask")
    env = IndoorEscape()
    exact = optimal_q(env, ties="reference")
    values = np.where(exact.legal, exact.values, -50.0)[None]
    found = {name: value for name, (value,) in study.read_values(values, env).items()}
    assert found["bias"] == pytest.approx(0.0)
    assert (found["N_south_of_goal"], found["E_south_of_goal"]) == (-1.0, -50.0)
    assert found["illegal_choices"] == 1
    assert found["lost"] == pytest.approx(49.0 / 99, rel=0.01)  # elsewhere another is as good
