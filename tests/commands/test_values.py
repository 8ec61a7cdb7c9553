"""``valuetrack values`` and ``evaluate``: what a saved agent thinks, and how it plays."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import valuetrack as vt
from tests.small_envs import Counter
from valuetrack.cli import app

runner = CliRunner()
SMALL = {"hidden": (4,), "batch_size": 4, "learning_starts": 8, "samples": 40, "thinning": 1}
GRID = "valuetrack/IndoorEscape-v0"
SIZE = {"width": 4, "height": 3, "horizon": 7}


def invoke(*arguments):
    return runner.invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def agent():
    return vt.LKTD(GRID, env_options=SIZE, seed=3, seeds=2, **SMALL).learn(200)


@pytest.fixture(scope="module")
def model(agent, tmp_path_factory):
    path = tmp_path_factory.mktemp("values") / "agent.vt"
    agent.save(path)
    return path


def rows(output):
    """Return the cells of the tables that stand in an output."""
    lines = [line.strip("│ ") for line in output.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.split("│")] for line in lines]


def test_values_and_their_intervals(agent, model):
    result = invoke("values", model, "--observation", "[0.5, 0.5]", "--level", "0.9")
    assert result.exit_code == 0, result.output
    assert "LKTD in valuetrack/IndoorEscape-v0, seed 3, at [0.5, 0.5]" in " ".join(
        result.output.split()
    )
    assert "given all that the agent remembers" in " ".join(result.output.split())
    q = agent.posterior([0.5, 0.5])
    low, high = q.interval(0.9)
    found = np.array([[float(cell) for cell in row[1:4]] for row in rows(result.output)])
    np.testing.assert_allclose(found, np.stack([q.acted_on, low, high], axis=1), rtol=2e-3)


def test_values_of_a_file_of_another_seed(agent, model, tmp_path):
    path = tmp_path / "states.npy"
    np.save(path, np.array([[0.5, 0.5], [0.2, 0.1]], np.float32))
    result = invoke("values", model, "--observations", path, "--seed", 4, "--kind", "credible")
    assert result.exit_code == 0, result.output
    cells = rows(result.output)
    assert [row[:2] for row in cells] == [[str(i), str(a)] for i in range(2) for a in range(4)]
    low, _ = agent.posterior([0.2, 0.1], member=1).interval(0.95, kind="credible")
    np.testing.assert_allclose([float(row[3]) for row in cells[4:]], low, rtol=2e-3)


@pytest.mark.parametrize(
    ("arguments", "telling"),
    [
        ([], "Say where: --observation"),
        (["--observation", "[1, 2, 3]"], "is 2 numbers"),
        (["--observation", "[0, 0]", "--seed", "9"], "has no seed 9; it has 3, 4."),
        (["--observation", "[0, 0]", "--kind", "return"], "calibrate"),
        (["--observation", "[0, 0]", "--kind", "credible", "--level", "0.99"], "at least 200"),
    ],
)
def test_mistakes(model, arguments, telling):
    result = invoke("values", model, *arguments)
    assert result.exit_code == 2
    assert telling in result.stderr
    assert "Traceback" not in result.output


def test_evaluate_with_other_options_a_limit_and_a_video(model, tmp_path):
    path = tmp_path / "play.gif"
    result = invoke(
        "evaluate", model, "--episodes", 2, "--env-set", "horizon=5", "--max-episode-steps", 2,
        "--video", path,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    told = " ".join(result.output.split())
    assert "of 4 episodes did not end within 2 steps" in told
    with Image.open(path) as video:
        assert video.format == "GIF"
        assert 2 <= video.n_frames <= 3


def test_a_video_says_what_is_missing(agent, tmp_path):
    assert len(agent.record_video(tmp_path / "play.gif", episodes=2, member=1)) == 2
    with pytest.raises(ValueError, match=r"\.gif or \.mp4 file, not play\.avi"):
        agent.record_video(tmp_path / "play.avi")
    with pytest.raises(ValueError, match="Counter cannot be drawn: make the agent with an id"):
        vt.DQN(Counter, **SMALL).record_video(tmp_path / "play.gif")
    assert [path.name for path in tmp_path.iterdir()] == ["play.gif"]


def test_the_module_is_the_command_line():
    done = subprocess.run(
        [sys.executable, "-m", "valuetrack", "--version"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"valuetrack {vt.__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete(shell):
    """As the script that ``--show-completion`` prints does."""
    asked = {"_VALUETRACK_COMPLETE": f"complete_{shell}", "COMP_WORDS": "valuetrack eva",
             "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "valuetrack eva",
             "_TYPER_COMPLETE_FISH_ACTION": "get-args"}  # fmt: skip
    result = runner.invoke(app, [], env=asked, prog_name="valuetrack")
    assert "evaluate" in result.output
