"""``valuetrack sweep``, from a file to the report, killed and resumed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.experiments.engine_runs import assert_same_bits
from valuetrack.cli import app
from valuetrack.io.run_folder import RunFolder
from valuetrack.live_page.run_view import RunView

SWEEP = """
name = "small"
environments = ["CartPole-v1", { env = "MountainCar-v0", steps = 300 }]
algorithms = ["dqn"]
steps = 400
seeds = 2
seeds_per_unit = 2

[options]
hidden = [8]
learning_starts = 50
batch_size = 8
samples = 10

[grid]
learning_rate = [1e-3, 1e-4]

[measure]
points = 4
episodes = 2
final_episodes = 2
"""


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "mine.toml"
    path.write_text(SWEEP)
    return path


@pytest.fixture(scope="module")
def one_core():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("valuetrack.experiments.engines.choice.available_cores", lambda: 1)
        yield


@pytest.fixture(scope="module")
def run(file, one_core, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    result = invoke("sweep", file, "--out", out)
    assert result.exit_code == 0, result.output
    return out, result.output


def test_a_sweep_ends_in_a_report(run):
    out, printed = run
    assert "4 rows x 2 seeds = 4 units, 8 trainings, 2,800 environment steps." in printed
    assert printed.index("4 units") < printed.index("Table 1. The best settings")
    summary = json.loads((out / "summary.json").read_text())
    assert set(summary["best"]) == {"CartPole-v1", "MountainCar-v0"}
    assert len(summary["rows"]) == 4
    best = summary["rows"][summary["best"]["CartPole-v1"][0]]
    others = [row for row in summary["rows"].values() if row["env"] == "CartPole-v1"]
    iqm = [row["outcome"]["final_return"]["iqm"] for row in others]
    assert best["outcome"]["final_return"]["iqm"] == max(iqm)
    tables = (out / "tables.md").read_text()
    rate = best["options"]["learning_rate"]
    assert f"--set learning\\_rate={rate}" in tables
    assert "best is better" in tables
    assert "Sweep small" in (out / "report.html").read_text()
    figures = {path.name for path in (out / "figures").iterdir()}
    assert figures == {"iqm.png", "returns-cartpole-v1.png", "returns-mountaincar-v0.png"}
    assert (out / "sweep.toml").read_text() == SWEEP


def test_report_and_live_page_read_a_sweep(run):
    out, _ = run
    summary = (out / "summary.json").read_bytes()
    (out / "report.html").unlink()
    result = invoke("report", out)
    assert result.exit_code == 0, result.output
    assert (out / "report.html").is_file()
    assert (out / "summary.json").read_bytes() == summary
    assert "cartpole-v1-dqn" in json.dumps(RunView(out).overview())


def test_killed_and_started_again_it_has_the_same_bits(file, one_core, run, tmp_path):
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "valuetrack.cli", "sweep", str(file), "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        while process.poll() is None and not list(out.glob("units/*/*/unit.json")):
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    finished = list(out.glob("units/*/*/unit.json"))
    assert finished
    before = {path: path.stat().st_mtime_ns for path in finished}
    assert process.returncode == -signal.SIGKILL
    result = invoke("sweep", file, "--out", out)
    assert result.exit_code == 0, result.output
    assert "of 4 units are finished already" in result.output
    assert before == {path: path.stat().st_mtime_ns for path in finished}
    whole, again = RunFolder.open(run[0]), RunFolder.open(out)
    assert_same_bits(whole, again)
    for name in ("row", "seed", "final_return", "start_value"):
        np.testing.assert_array_equal(whole.table("seeds")[name], again.table("seeds")[name])


def test_a_dry_run_lists_the_rows_and_writes_nothing(file, tmp_path):
    result = invoke("sweep", file, "--dry-run", "--seeds", 7, "--out", tmp_path / "new")
    assert result.exit_code == 0
    assert "4 rows x 7 seeds = 16 units, 28 trainings" in result.output
    assert "learning_rate = 0.0001" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words", "part"),
    [
        (f"sead = 1\n{SWEEP}", [], "sead: unknown key"),
        (SWEEP.replace("1e-4]", "-1]"), [], "row cartpole-v1-dqn-"),
        (SWEEP.replace("CartPole-v1", "Nope-v1"), [], "no environment 'Nope-v1'"),
        ("steps = [", [], "is not valid TOML"),
        (SWEEP, ["--address", "auto"], "--address is for --engine ray"),
        (SWEEP, ["--import", "no_such_module"], "no_such_module cannot be imported"),
    ],
)
def test_wrong_use_is_one_sentence_and_leaves_nothing(text, words, part, tmp_path):
    (tmp_path / "s.toml").write_text(text)
    result = invoke("sweep", tmp_path / "s.toml", "--out", tmp_path / "new", *words)
    assert result.exit_code == 2
    assert part in result.stderr
    assert "Traceback" not in result.output
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_another_sweep_does_not_mix_with_a_run(file, run, tmp_path):
    result = invoke("sweep", file, "--steps", 500, "--out", run[0])
    assert result.exit_code == 2
    assert "holds another run" in result.stderr
