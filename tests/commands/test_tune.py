"""``valuetrack tune``, from the command line to the best settings and the report."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

from valuetrack.cli import app
from valuetrack.experiments.engines import EngineChoice, InlineEngine
from valuetrack.experiments.sweep import load
from valuetrack.live_page.run_view import RunView

pytest.importorskip("optuna")

SPACE = """
learning_rate = { low = 1e-5, high = 1e-1, log = true }
hidden = { choices = [[8], [4, 4]] }
"""
WORDS = [
    "--algo", "dqn", "--env", "CartPole-v1", "--steps", 200, "--seeds", 1, "--points", 2,
    "--episodes", 2, "--final-episodes", 2, "--set", "learning_starts=50", "--set", "batch_size=8",
    "--set", "samples=10", "--start", "learning_rate=0.1",
]  # fmt: skip


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    path = tmp_path_factory.mktemp("space") / "space.toml"
    path.write_text(SPACE)
    return path


@pytest.fixture(scope="module")
def run(space, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    words = [*WORDS, "--space", space, "--trials", 4, "--fresh-seeds", 1, "--out", out]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EngineChoice, "make", lambda self, folder: InlineEngine(folder))
        result = invoke("tune", *words)
    assert result.exit_code == 0, result.output
    return out, result.output, words


def test_a_search_ends_in_the_best_settings_and_a_report(run):
    out, printed, _ = run
    assert "4 trials x 1 seeds: 4 to go, at most 800 environment steps." in printed
    assert "trial 0: " in printed
    assert "learning_rate = 0.1" in printed  # the first trial is the one that was given
    listed = json.loads((out / "trials.json").read_text())["trials"]
    values = {trial["number"]: trial["value"] for trial in listed if trial["value"] is not None}
    best = listed[max(values, key=values.get)]
    # The file is a sweep of the best settings, on seeds that the search has not seen.
    sweep = load(out / "best.toml")
    (row,) = sweep.spec.rows
    assert row.options == {
        "learning_starts": 50, "batch_size": 8, "samples": 10, **best["settings"],
    }  # fmt: skip
    assert sweep.first_seed == 1
    summary = json.loads((out / "summary.json").read_text())
    assert summary["best"]["settings"] == best["settings"]
    assert summary["finished"] == 4
    assert f"fresh-{best['row'].removeprefix('trial-')}" in summary["fresh"]
    tables = (out / "tables.md").read_text()
    assert "The best settings on fresh seeds" in tables
    assert "valuetrack train --algo dqn --env CartPole-v1 --steps 200" in tables
    figures = {path.stem for path in (out / "figures").iterdir()}
    assert {"history", "settings", "parallel", "fresh"} <= figures


def test_again_nothing_is_searched_and_the_report_is_the_same(run):
    out, _, words = run
    files = {path: path.read_bytes() for path in (out / "trials.json", out / "summary.json")}
    again = invoke("tune", *words)
    assert again.exit_code == 0, again.output
    assert "4 finished before, 0 to go" in again.output
    reported = invoke("report", out)
    assert reported.exit_code == 0, reported.output
    assert files == {path: path.read_bytes() for path in files}
    assert "trial-0003" in json.dumps(RunView(out).overview())


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--algo", "dqm"], "There is no algorithm 'dqm'"),
        (["--env", "Nope-v0"], "no environment 'Nope-v0'"),
        (["--set", "learning_rate=1e-3"], "learning_rate is given with --set"),
        (["--start", "hidden=[9]"], "--start hidden=[9] is not in its space"),
        (["--space", "nothing.toml"], "There is no file nothing.toml"),
        (["--set", "batch=9"], "has no option 'batch'"),
        (["--objective", "fame"], "--objective"),
        (["--trials", 0], "--trials"),
    ],
)
def test_wrong_use_is_one_sentence_and_leaves_nothing(words, part, space, tmp_path):
    given = ["--env", "CartPole-v1", "--algo", "dqn", "--space", space, *words]
    result = invoke("tune", *given, "--out", tmp_path / "new")
    assert result.exit_code == 2
    assert part in result.stderr
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_without_optuna_a_sentence_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "optuna", None)
    result = invoke("tune", "--env", "CartPole-v1", "--out", tmp_path / "new")
    assert result.exit_code == 2
    assert 'pip install "valuetrack[hpo]"' in result.stderr
    assert list(tmp_path.iterdir()) == []
