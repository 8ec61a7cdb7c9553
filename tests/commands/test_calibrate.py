"""``valuetrack calibrate`` from the command line."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

import valuetrack as vt
from valuetrack.api.calibration import Checked
from valuetrack.cli import app
from valuetrack.report.reliability import band, reliability_diagram

OBSERVATION = np.array([0.0, 0.1, 0.02, -0.1], np.float32)
TINY = ["--set", "hidden=[8]", "--set", "batch_size=8", "--set", "learning_starts=20",
        "--set", "replay_capacity=200", "--set", "samples=5"]  # fmt: skip


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained") / "run"
    result = invoke("train", "--env", "CartPole-v1", "--steps", 120, "--out", path, *TINY)
    assert result.exit_code == 0, result.output
    shutil.copy(path / "agent.vt", path.parent / "before.vt")
    return path, invoke("calibrate", path, "--episodes", 40, "--seed", 3)


def test_a_run_folder_gets_a_calibrated_agent_a_table_and_a_figure(run):
    path, result = run
    assert result.exit_code == 0, result.output
    assert "LKTD in CartPole-v1, 40 episodes" in result.output
    for word in ("correction", "factor", "50%", "95%", f"Calibrated agent: {path / 'agent.vt'}"):
        assert word in result.output
    assert (path / "agent.calibration.png").read_bytes().startswith(b"\x89PNG")
    agent = vt.load(path / "agent.vt")
    assert len(agent.calibration.members[0].scores) == 20
    expected = vt.load(path.parent / "before.vt").calibrate(40, seed=3)
    for kind in ("return", "value"):
        one, other = (a.posterior(OBSERVATION).interval(0.9, kind=kind) for a in (agent, expected))
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_out_leaves_the_file_as_it_was(run, tmp_path):
    path = run[0].parent / "before.vt"
    before = path.read_bytes()
    result = invoke("calibrate", path, "--episodes", 20, "--out", tmp_path / "new.vt")
    assert result.exit_code == 0, result.output
    assert path.read_bytes() == before
    assert vt.load(tmp_path / "new.vt").calibration.members
    assert {file.name for file in tmp_path.iterdir()} == {"new.vt", "new.calibration.png"}
    row = next(line for line in result.output.splitlines() if "│" in line)
    assert row.rstrip(" │").endswith("-")  # ten episodes know nothing of 95 %


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--episodes", 10], "10 episodes are too few"),
        (["--env", "CartPole-v1"], "name a new file with --out"),
    ],
)
def test_what_cannot_be_done_leaves_the_file_as_it_was(run, arguments, told):
    path = run[0].parent / "before.vt"
    before = path.read_bytes()
    result = invoke("calibrate", path, *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert told in result.stderr
    assert path.read_bytes() == before


def test_training_on_says_that_the_calibration_is_outdated(run):
    path = run[0].parent / "further"
    shutil.copytree(run[0], path)
    result = invoke("train", "--env", "CartPole-v1", "--steps", 160, "--out", path, "--resume")
    assert result.exit_code == 0, result.output
    with pytest.raises(ValueError, match="learned on since it was calibrated"):
        vt.load(path / "agent.vt").posterior(OBSERVATION).interval(0.9, kind="return")


def test_the_band_is_that_of_exchangeable_episodes():
    draw = np.random.default_rng(0)
    scores, fresh = draw.random((2_000, 25)), draw.random((2_000, 50))
    quantile = np.sort(scores, axis=1)[:, 23]  # of the level 0.9
    shares = np.mean(fresh <= quantile[:, None], axis=1)
    low, high = band(25, 50, (0.9, 0.99))
    assert np.mean((low[0] <= shares) & (shares <= high[0])) > 0.94
    assert np.mean((low[0] + 0.02 <= shares) & (shares <= high[0] - 0.02)) < 0.95
    assert np.isnan([low[1], high[1]]).all()


def test_the_figure_of_many_seeds_with_one_unknown(run):
    one = vt.load(run[0] / "agent.vt").calibration.members[0]
    fresh = Checked(np.arange(5.0), np.arange(5.0), np.ones((2, 5)), np.ones(2))
    seeds = range(12)
    png = reliability_diagram("$x", seeds, [one] * 11 + [None], [fresh] * 12, (0.5, 0.9))
    assert png.startswith(b"\x89PNG")
