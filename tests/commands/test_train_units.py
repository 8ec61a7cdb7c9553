"""``valuetrack train`` with a unit for each seed, as on a cluster; here in processes."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import valuetrack as vt
from valuetrack.cli import app
from valuetrack.commands.options import Train
from valuetrack.commands.train_units import train_units
from valuetrack.experiments.engines import EngineChoice
from valuetrack.io.run_folder import RunFolder, StoreError

OPTIONS = {"hidden": (8,), "learning_starts": 20, "batch_size": 8, "samples": 10}
GIVEN = Train("CartPole-v1", "dqn", steps=200, seed=5, seeds=2, episodes=2, evaluate_every=100)


def train(out, given=GIVEN):
    agent = vt.DQN("CartPole-v1", seed=5, **OPTIONS)
    console = Console(file=io.StringIO(), width=120)
    code = train_units(agent, given, out, EngineChoice(), console)
    return code, console.file.getvalue()


def test_every_seed_is_a_unit_with_an_agent(tmp_path):
    code, printed = train(tmp_path / "run")
    assert code == 0
    assert "DQN in CartPole-v1, 200 steps" in printed
    folder = RunFolder.open(tmp_path / "run")
    agents = [
        vt.load(folder.unit_path("dqn", f"seeds-000{seed}-000{seed}") / "agent.vt")
        for seed in (5, 6)
    ]
    assert [(agent.seeds, agent.num_timesteps) for agent in agents] == [((5,), 200), ((6,), 200)]
    assert agents[0].options.samples == 10
    last = folder.read_progress("dqn", "seeds-0005-0005")[-1]
    assert {"return", "loss", "value_at_start", "discounted_return", "evaluation"} <= set(last)
    assert last["steps"] == 200
    reports, played = folder.table("reports"), folder.table("episodes")
    assert np.isfinite(reports["evaluation"][reports["step"] == 100]).all()
    # What was saved is what was played.
    expected = agents[1].play(2).returns[0]
    np.testing.assert_array_equal(played["return"][played["seed"] == 6], expected)
    # Again, there is nothing left to do.
    again, printed_again = train(tmp_path / "run", dataclasses.replace(GIVEN, resume=True))
    assert (again, printed_again.splitlines()[-8:]) == (0, printed.splitlines()[-8:])
    with pytest.raises(StoreError, match="another run"):
        train(tmp_path / "run", dataclasses.replace(GIVEN, steps=300, resume=True))


@pytest.mark.parametrize(
    "given", [{"tensorboard": True}, {"track_intervals_every": 10}, {"track": "states.npy"}]
)
def test_what_only_one_process_can_do_is_refused(given, tmp_path):
    with pytest.raises(ValueError, match="is for --engine local"):
        train(tmp_path / "run", dataclasses.replace(GIVEN, **given))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--address", "auto"], "--address is for --engine ray"),
        (["--num-cpus", "2"], "--num-cpus is for --engine ray or slurm"),
        (["--engine", "cloud"], "--engine"),
    ],
)
def test_wrong_use_is_one_sentence_and_leaves_nothing(words, part, tmp_path):
    result = CliRunner().invoke(
        app, ["train", "--env", "CartPole-v1", "--out", str(tmp_path / "run"), *words]
    )
    assert result.exit_code == 2
    assert part in result.stderr
    assert list(tmp_path.iterdir()) == []
