"""Searches: their spaces, and trials that several processes run and that survive them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import tomllib

import numpy as np
import pytest

from valuetrack.experiments.runner import Unit, run_unit
from valuetrack.experiments.spec import SpecError, from_manifest
from valuetrack.experiments.sweep import resolve_sweep
from valuetrack.experiments.tuning.best import sweep_text, toml_value
from valuetrack.experiments.tuning.search import Search, add_rows, check_start, open_search
from valuetrack.experiments.tuning.space import check_space, read_space
from valuetrack.experiments.tuning.spaces import default_space
from valuetrack.experiments.tuning.study import TuneStudy, drop_torn_line
from valuetrack.experiments.tuning.worker import run_trials
from valuetrack.io.errors import StoreError
from valuetrack.io.run_folder import RunFolder
from valuetrack.registry import AGENTS

pytest.importorskip("optuna")

SPACE = {
    "learning_rate": {"low": 1e-5, "high": 1e-1, "log": True},
    "target_every": {"low": 1, "high": 50},
    "hidden": {"choices": [[8], [4, 4]]},
}
OPTIONS = {"learning_starts": 50, "batch_size": 8, "samples": 10}
WORKER = """
import sys, threading
from valuetrack.experiments import runner
from valuetrack.experiments.tuning.worker import run_trials
from valuetrack.io.run_folder import RunFolder
runner.CHECKPOINT_SECONDS = 0.2
run_trials(RunFolder.open(sys.argv[1]), int(sys.argv[2]), threading.Event(), lambda news: None)
"""


def small_search(**changed) -> Search:
    given = {
        "algorithm": "dqn",
        "env": "CartPole-v1",
        "options": OPTIONS,
        "steps": 400,
        "seeds": 2,
        "points": 4,
        "episodes": 2,
        "final_episodes": 2,
        "pruner": "none",
        "space": SPACE,
        "start": {"learning_rate": 0.1},
    }
    return Search.model_validate({**given, **changed})


# -- spaces --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", AGENTS)
def test_every_algorithm_has_a_space_whose_ends_it_takes(name):
    space = default_space(name, 20_000)
    check_space(space, name, {}, "the default space")
    assert {"batch_size", "hidden", "discount", "exploration_steps"} <= space.keys()
    has_rate = "learning_rate" in AGENTS[name].options_type.model_fields and name != "kova"
    assert ("learning_rate" in space) == has_rate
    assert all(
        parameter.log for option, parameter in space.items() if option in ("learning_rate", "tau")
    )


@pytest.mark.parametrize(
    ("data", "part"),
    [
        ({}, "varies nothing"),
        ({"learning_rate": {"low": 1e-3}}, "learning_rate: takes choices, or low and high"),
        ({"learning_rate": {"low": 1e-3, "high": 1e-4}}, "low is below high"),
        ({"learning_rate": {"low": 0.0, "high": 1.0, "log": True}}, "above 0 on a logarithmic"),
        ({"learning_rate": {"lo": 1e-3, "high": 1.0}}, "lo: unknown key"),
        ({"learning_rate": 1e-3}, "learning_rate"),
        ({"hidden": {"choices": [[8], [8]]}}, "a choice twice"),
        ({"hidden": {"choices": []}}, "hidden"),
        ({"learning_rat": {"low": 1e-3, "high": 1.0}}, "no option 'learning_rat'; did you mean"),
        ({"learning_rate": {"low": -1.0, "high": 1.0}}, "greater than 0, not -1.0"),
        ({"hidden": {"choices": [[8], "8x"]}}, "hidden is wrong"),
        ({"batch_size": {"low": 1, "high": 8}}, "given with --set"),
    ],
)
def test_a_space_that_cannot_be_is_one_sentence(data, part):
    with pytest.raises(SpecError, match=part) as caught:
        check_space(read_space(data, "space.toml"), "dqn", {"batch_size": 8}, "space.toml")
    assert "space.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("start", [{"learning_rate": 1.0}, {"hidden": [9]}, {"tau": 0.1}])
def test_a_first_trial_outside_the_space_is_refused(start):
    with pytest.raises(ValueError, match="--start"):
        check_start(start, small_search().space)


def test_the_first_trial_has_the_defaults_but_for_what_is_given():
    wide = {**SPACE, "discount": {"choices": [0.5, 0.99]}, "tau": {"low": 0.1, "high": 1}}
    first = small_search(space=wide).first()
    assert first["learning_rate"] == 0.1
    assert first["discount"] == "0.99"  # choices go by their text
    assert first["tau"] == 1.0
    assert "hidden" not in first  # its default is no choice


def test_honest_is_the_return_minus_what_values_are_off():
    parts = ([10.0, 20.0], [5.0, 9.0], [6.0, 6.0])
    assert small_search().score(*parts) == 15.0
    assert small_search(objective="honest", penalty=3.0).score(*parts) == 15.0 - 3.0 * 2.0
    assert np.isnan(small_search(objective="honest").score([1.0], [None], [1.0]))


def test_the_best_settings_are_the_file_of_a_sweep():
    settings = {"learning_rate": 1e-05, "hidden": [4, 4], "loss": "huber"}
    search = small_search(env_options={"a": "ü"}, options={"max_gradient_norm": None})
    row = resolve_sweep(tomllib.loads(sweep_text(search, settings)), "best.toml").spec.rows[0]
    assert row.options == {"max_gradient_norm": None, **settings}
    assert (row.env, row.env_options, row.steps) == ("CartPole-v1", {"a": "ü"}, 400)
    schedule = {"schedule": "linear", "initial": 1e-3, "updates": 5}
    assert tomllib.loads(f"x = {toml_value([schedule, True])}")["x"] == [schedule, True]


# -- trials --------------------------------------------------------------------------------------


def finished(study: TuneStudy) -> dict[int, tuple[dict, float]]:
    return {t.number: (t.params, t.value) for t in study.trials() if t.state.name == "COMPLETE"}


def wait_for(is_so, processes, seconds=240.0):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        assert all(process.poll() is None for process in processes)
        time.sleep(0.02)


def test_two_processes_on_one_study_both_killed_lose_no_finished_trial(tmp_path):
    folder = open_search(tmp_path / "run", small_search(steps=4_000), resume=True)
    study = TuneStudy(folder)
    # More than they get to: one that starts late still finds a trial to run.
    command = [sys.executable, "-c", WORKER, str(folder.path), "50"]
    processes = [subprocess.Popen(command) for _ in range(2)]
    try:
        wait_for(lambda: study.count("RUNNING") == 2, processes)  # side by side
        wait_for(lambda: study.count("COMPLETE") >= 1 <= study.count("RUNNING"), processes)
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
    before, trials = finished(study), study.trials()
    # A trial that was killed while it was chosen has no row yet, and may be chosen anew.
    running = {t.number: t for t in trials if t.state.name == "RUNNING"}
    cut_off = {number: t for number, t in running.items() if "row" in t.user_attrs}
    assert before
    rows = [t.user_attrs["row"] for t in trials if "row" in t.user_attrs]
    assert len(rows) == len(set(rows))  # no trial was given to both
    wanted = len(before) + 2
    run_trials(folder, wanted, threading.Event(), lambda news: None)
    after = finished(study)
    assert len(after) == wanted
    assert before.items() <= after.items()
    retried = {t.user_attrs["retries"]: t for t in study.trials() if "retries" in t.user_attrs}
    assert cut_off.keys() <= retried.keys() <= running.keys()
    for number, before_kill in cut_off.items():
        trial = retried[number]
        assert trial.params == before_kill.params
        assert trial.user_attrs["row"] == before_kill.user_attrs["row"]
        assert list(trial.intermediate_values) == [1, 2, 3, 4]  # those before the kill too
    # What was resumed has the bits of a training in one go.
    trial = next(iter(retried.values()), study.trials()[0])
    row, unit = trial.user_attrs["row"], "seeds-0000-0001"
    whole = open_search(tmp_path / "whole", study.search, resume=True)
    with whole.changing():
        add_rows(whole, [study.search.row(row, study.search.settings(trial.params), row)], [[0, 2]])
    spec = from_manifest(whole.manifest())
    run_unit(Unit(row, 0, 2), spec, whole, lambda steps: None, threading.Event())
    expected, found = (one.unit_info(row, unit)["tables"]["points"] for one in (whole, folder))
    assert expected == found


def test_trials_below_the_median_are_stopped_early(tmp_path, monkeypatch):
    search = small_search(steps=200, seeds=1, pruner="median")
    folder = open_search(tmp_path / "run", search, resume=True)
    monkeypatch.setattr(
        "valuetrack.experiments.tuning.study.STARTUP_TRIALS", 1
    )  # before the study is opened
    study = TuneStudy(folder)
    worse = iter([0.0, 0.0, 0.0, 0.0, *[-1.0] * 100])
    monkeypatch.setattr(Search, "score", lambda self, *parts: next(worse, -1.0))
    run_trials(folder, 2, threading.Event(), lambda news: None)
    assert [t.state.name for t in study.trials()] == ["COMPLETE", "PRUNED"]
    early = study.trials()[1]
    assert len(early.intermediate_values) < search.points
    assert not list(folder.path.glob("units/trial-0001/*/checkpoint.vt"))
    assert RunFolder(folder.path).read_json("trials.json")["trials"][1]["state"] == "pruned"


def test_settings_that_fail_are_noted_and_too_many_end_the_search(tmp_path, monkeypatch):
    folder = open_search(tmp_path / "run", small_search(), resume=True)

    def fail(*args, **kwargs):
        raise ValueError("The environment is on fire.")

    monkeypatch.setattr("valuetrack.experiments.tuning.worker.UnitRun", fail)
    with pytest.raises(RuntimeError, match=r"5 trials have failed.*on fire"):
        run_trials(folder, 9, threading.Event(), lambda news: None)
    assert TuneStudy(folder).count("FAIL") == 5


def test_another_search_does_not_mix_with_a_folder(tmp_path):
    open_search(tmp_path / "run", small_search(), resume=True)
    for changed, part in (
        ({"steps": 500}, "steps is 400 there, 500 here"),
        ({"space": {"tau": {"low": 0.1, "high": 0.5}}, "start": {}}, "another space"),
    ):
        with pytest.raises(StoreError, match=part):
            open_search(tmp_path / "run", small_search(**changed), resume=True)
    with pytest.raises(StoreError, match="--resume"):
        open_search(tmp_path / "run", small_search(), resume=False)


def test_a_torn_line_of_the_journal_is_dropped(tmp_path):
    folder = open_search(tmp_path / "run", small_search(), resume=True)
    TuneStudy(folder)
    path = folder.path / "study.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code": 4, "wor')
    assert TuneStudy(folder).count("WAITING") == 1
    lines = path.read_bytes().splitlines()
    assert len([json.loads(line) for line in lines]) > len(whole.splitlines())
    path.write_bytes(b"torn")
    drop_torn_line(path)
    assert path.read_bytes() == b""
