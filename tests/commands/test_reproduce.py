"""``valuetrack reproduce`` and ``valuetrack report``, from the command line to the page."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from tests.experiments.conftest import small_data
from valuetrack.cli import app
from valuetrack.commands import reproduce as command
from valuetrack.experiments.spec import load, read_experiment, resolve

runner = CliRunner()
ROWS = "lktd-10000,dqn"


@pytest.fixture(scope="module", autouse=True)
def small():
    """Let the command find an experiment of a second in place of the paper's."""

    def only(name, **choices):
        read_experiment(name)  # refuses an unknown one
        return resolve(small_data(), "small", **choices)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("valuetrack.commands.reproduce.load", only)
        yield


def invoke(*arguments):
    return runner.invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    result = invoke(
        "reproduce", "indoor-escape", "--rows", ROWS, "--seeds", 3, "--no-timing", "--out", out
    )
    assert result.exit_code == 0, result.output
    return out, result.output


def test_a_run_ends_in_tables_a_summary_and_a_page(run):
    out, printed = run
    for word in ("LKTD", "DQN", "coverage", "width", "Report:"):
        assert word in printed
    assert (out / "report.html").is_file()
    summary = json.loads((out / "summary.json").read_text())
    assert set(summary) == {"lktd-10000", "dqn"}
    for row in summary.values():
        assert row["seeds_run"] == 3
        assert row["seeds_diverged"] == []
        for action in "ENWS":
            for metric in ("mse", "coverage", "credible_coverage", "width"):
                for kind in ("trimmed", "untrimmed"):
                    assert set(row["metrics"][action][metric][kind]) >= {"mean", "sd", "se"}
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["wall_seconds"] > 0


def test_a_finished_run_is_only_reported_again(run):
    out, _ = run
    units = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    summary = (out / "summary.json").read_bytes()
    again = invoke(
        "reproduce", "indoor-escape", "--rows", ROWS, "--seeds", 3, "--no-timing", "--out", out
    )
    assert again.exit_code == 0, again.output
    assert units == {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    assert (out / "summary.json").read_bytes() == summary


@pytest.fixture(scope="module")
def programs_of_both(tmp_path_factory):
    """Return a folder for the programs of processes that are stopped, apart from all others."""
    return tmp_path_factory.mktemp("programs")


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="Windows has no groups of processes")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_stops_them_where_they_can_go_on(
    number, programs_of_both, tmp_path
):
    """A terminal sends Ctrl-C to all of them, and `timeout` SIGTERM."""
    words = ["reproduce", "lktd-settings", "--quick", "--out", str(tmp_path / "run")]
    with subprocess.Popen(
        [sys.executable, "-m", "valuetrack.cli", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env={**os.environ, "JAX_COMPILATION_CACHE_DIR": str(programs_of_both)},
    ) as process:  # fmt: skip
        while process.poll() is None and not list(tmp_path.glob("run/units/*/*/progress.jsonl")):
            time.sleep(0.1)  # until a unit is under way
        os.killpg(process.pid, number)
        printed, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Stopped. The same command goes on from here" in " ".join(printed.split())
    assert "Traceback" not in printed
    assert list((tmp_path / "run").glob("units/*/*/checkpoint.vt"))


def test_a_report_is_made_again_from_the_folder_alone(run):
    out, _ = run
    summary = (out / "summary.json").read_bytes()
    for name in ("summary.json", "report.html"):
        (out / name).unlink()
    result = invoke("report", out)
    assert result.exit_code == 0, result.output
    assert (out / "summary.json").read_bytes() == summary
    assert (out / "report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["indoor-escpae"], "There is no experiment 'indoor-escpae'"),
        (["indoor-escape", "--rows", "lktd-1"], "lktd-1"),
        (["indoor-escape", "--rows", ""], "row"),
        (["indoor-escape", "--steps", "1234"], "multiple"),
        (["indoor-escape", "--seeds", "0"], "--seeds"),
        (["indoor-escape", "--env", "CartPole-v1"], "has no task 'CartPole-v1'"),
        (["indoor-escape", "--preset", "mine"], "preset"),
        (["indoor-escape", "--seed", "-1"], "--seed"),
        ([], "experiment"),
    ],
)
def test_wrong_use_is_one_sentence_and_leaves_nothing(arguments, part, tmp_path):
    result = invoke("reproduce", *arguments, "--out", tmp_path / "new")
    assert result.exit_code == 2
    assert part in result.stderr
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    result = invoke("reproduce", "indoor-escape", "--rows", "dqn", "--out", tmp_path)
    assert result.exit_code == 2
    assert result.stderr == f"Error: {tmp_path} is not empty; choose another folder with --out.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_folder_of_another_run_is_left_alone(run):
    out, _ = run
    before = (out / "manifest.json").read_bytes()
    result = invoke("reproduce", "indoor-escape", "--rows", "dqn", "--seed", 9, "--out", out)
    assert result.exit_code == 2
    assert "holds another run (first seed is 0 there, 9 here)" in result.stderr
    assert (out / "manifest.json").read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    result = invoke("reproduce", "indoor-escape", "--rows", "dqn", "--out", tmp_path / "new")
    assert result.exit_code == 2
    assert "Permission denied" in result.stderr


def test_reports_of_what_is_no_run(tmp_path):
    result = invoke("report", tmp_path / "absent")
    assert result.exit_code == 2
    assert "holds no run" in result.stderr
    (tmp_path / "manifest.json").write_text('{"format": 1, ')
    result = invoke("report", tmp_path)
    assert result.exit_code == 2
    assert "is damaged" in result.stderr
    assert "Traceback" not in result.output


def test_a_manifest_with_missing_parts_is_one_sentence(tmp_path):
    (tmp_path / "manifest.json").write_text('{"format": 1}')
    result = invoke("report", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output


def test_tasks_of_classic_control_are_chosen_by_name():
    spec = load("classic-control")
    chosen = command._rows_in(spec, "Acrobot-v1")
    assert chosen == ("acrobot-lktd", "acrobot-dqn", "acrobot-qrdqn")
    with pytest.raises(ValueError, match="there are CartPole-v1, MountainCar-v0, LunarLander-v3"):
        command._rows_in(spec, "LunarLander-v2")


def test_rows_are_chosen_in_one_way(tmp_path):
    words = ("--env", "valuetrack/IndoorEscape-v0", "--rows", "dqn", "--out", tmp_path / "new")
    result = invoke("reproduce", "indoor-escape", *words)
    assert result.exit_code == 2
    assert "give one of them" in result.stderr
