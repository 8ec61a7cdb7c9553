"""Stable-Baselines3's DQN beside the experiment on the defaults."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from valuetrack.experiments.spec import load
from valuetrack.report.defaults.sb3 import FILE, sb3_rows

stable_baselines3 = pytest.importorskip("stable_baselines3")

SCRIPT = Path(__file__).parents[2] / "studies" / "sb3_defaults.py"


def run(monkeypatch, *arguments, name="__main__"):
    monkeypatch.setattr(sys, "argv", [SCRIPT.name, *arguments])
    return SimpleNamespace(**runpy.run_path(str(SCRIPT), run_name=name))


@pytest.fixture(scope="module")
def model():
    env = gymnasium.make("FrozenLake-v1")
    return stable_baselines3.DQN("MlpPolicy", env, seed=0, learning_starts=20).learn(300)


def test_values_are_compared_with_the_exact_ones_over_the_replay_memory(monkeypatch, model):
    study = run(monkeypatch, name="study")
    env = gymnasium.make("FrozenLake-v1")
    q = study.q_values(model, np.arange(16))
    chosen, _ = model.predict(np.arange(16), deterministic=True)
    np.testing.assert_array_equal(q.argmax(axis=1), chosen)
    exact = np.zeros((16, 4))
    for _ in range(1_500):
        v = exact[np.arange(16), chosen]
        exact = np.array([
            [sum(p * (r + (not over) * 0.99 * v[s2]) for p, s2, r, over in env.unwrapped.P[s][a])
             for a in range(4)]
            for s in range(16)
        ])  # fmt: skip
    memory = model.replay_buffer
    seen = {(int(memory.observations[i, 0, 0]), int(memory.actions[i, 0, 0])) for i in range(300)}
    errors = [q[pair] - exact[pair] for pair in seen]
    found = study.value_scores(model, env)
    assert found["state_actions"] == len(seen)
    assert found["value_rmse"] == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=1e-4)
    assert found["policy_value"] == pytest.approx(exact[0, chosen[0]], abs=1e-6)


def test_greedy_episodes_begin_with_the_largest_value(monkeypatch, model):
    study = run(monkeypatch, name="study")
    env = gymnasium.make("FrozenLake-v1", is_slippery=False, max_episode_steps=9)
    returns, discounted, expected = study.play(model, env, 3, seed=1)
    np.testing.assert_allclose(expected, study.q_values(model, [0]).max())
    assert (discounted <= returns).all()


def test_it_trains_what_is_missing_and_the_report_can_read_it(monkeypatch, tmp_path, capsys):
    words = ("--quick", "--steps", "60", "--tasks", "frozenlake,blackjack", "--out", str(tmp_path))
    run(monkeypatch, *words)
    run(monkeypatch, *words, "--seeds", "2")
    assert capsys.readouterr().out.count("blackjack, seed") == 2  # each seed once
    rows = json.loads((tmp_path / FILE).read_text())["rows"]
    assert [(row["task"], row["seed"]) for row in rows] == [
        ("frozenlake", 0), ("blackjack", 0), ("frozenlake", 1), ("blackjack", 1),
    ]  # fmt: skip
    (lake, seeds, points), (cards, _, _) = sb3_rows(SimpleNamespace(path=tmp_path))
    assert (lake.id, lake.seeds, cards.id) == ("frozenlake-sb3", (0, 1), "blackjack-sb3")
    assert np.isfinite(seeds["value_rmse"]).all()
    assert points["step"].tolist() == [30, 60, 30, 60]


def test_its_tasks_are_those_on_which_every_algorithm_is_compared(monkeypatch):
    study = run(monkeypatch, name="study")
    ids = {row.id for row in load("defaults").rows}
    others = ("lktd", "dqn", "bootdqn", "sgld", "sghmc", "qrdqn")
    assert {f"{task}-{name}" for task in study.TASKS for name in others} <= ids
    tasks = {name.removesuffix("-qrdqn") for name in ids if name.endswith("-qrdqn")}
    assert tasks == set(study.TASKS)
