"""SB3's own tests with LKTD: which are chosen, what is counted, and that the page says the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("stable_baselines3")

from stable_baselines3 import SAC
from stable_baselines3.common.base_class import BaseAlgorithm

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    before = set(sys.modules)
    import sb3_tests

    yield sb3_tests
    for name in set(sys.modules) - before:
        if name in ("sb3_tests", "common"):
            del sys.modules[name]


class Put(BaseAlgorithm):
    """What stands in DQN's place."""

    def __init__(self, size):
        self.size = size

    def _setup_model(self):
        raise NotImplementedError

    def learn(self):
        raise NotImplementedError


def of_it():
    """Make a DQN."""


def of_others():
    """Make something else."""


def item(function, **params):
    if not params:
        return SimpleNamespace(function=function)
    return SimpleNamespace(function=function, callspec=SimpleNamespace(params=params))


def test_items_are_chosen_by_their_parameters_and_names(script):
    made = Put.__init__
    chosen = script.Chosen(Put).is_chosen
    assert chosen(item(of_others, model_class=Put))
    assert chosen(item(of_it))
    assert chosen(item(of_it, size=3))
    assert not chosen(item(of_it, model_class=SAC))  # the case of another algorithm
    assert not chosen(item(of_others))
    assert not chosen(item(of_others, size=3))
    Put.__init__ = made


def test_items_are_named_alike_and_models_are_counted(script):
    made = Put.__init__
    plugin = script.Chosen(Put)
    plugin.pytest_runtest_setup()
    assert [Put(3).size, Put(4).size] == [3, 4]
    report = SimpleNamespace(
        when="call", outcome="passed", longrepr=None, nodeid="a/b.py::t[Put-1]"
    )
    plugin.pytest_runtest_logreport(report)
    assert plugin.rows == {"b.py::t[DQN-1]": {"outcome": "passed", "models": 2, "message": ""}}
    Put.__init__ = made


def test_failures_have_their_reason_and_are_counted(script):
    passed = {"outcome": "passed", "models": 1, "message": ""}
    failed = {"outcome": "failed", "models": 1, "message": "E"}
    name = "test_a.py::test_fps_logger[DQN]"
    dqn = {name: passed, "test_b.py::u": passed, "test_b.py::v": passed}
    lktd = {name: failed, "test_b.py::u": failed, "test_b.py::v": {**passed, "models": 0}}
    rows = script.joined(dqn, lktd)
    assert [row["reason"] for row in rows] == [script.REASONS["test_fps_logger"], "E", ""]
    assert script.counts(rows) == {
        "files": 2, "items": 3, "passed": 1, "failed": 2, "skipped": 0,
        "passed without a model": 1, "passed with DQN": 3,
    }  # fmt: skip


def test_the_page_and_the_table_say_what_was_counted(script):
    folder = ROOT / "results" / "sb3"
    stored = json.loads((folder / "own-tests.json").read_text(encoding="utf-8"))
    rows = stored["tests"]
    numbers = script.counts(rows)
    assert all(stored[name] == number for name, number in numbers.items())
    table = (folder / "own-tests.md").read_text(encoding="utf-8")
    assert table == script.as_text(rows, numbers, stored["versions"])
    assert all(row["reason"] for row in rows if row["lktd"] == "failed")
    page = " ".join((ROOT / "docs" / "sb3.md").read_text(encoding="utf-8").split())
    ran = [row for row in rows if row["dqn"] == "passed"]
    with_model = [row for row in ran if row["models"]]
    good = sum(row["lktd"] == "passed" for row in with_model)
    assert f"{numbers['items']} items in {numbers['files']} files, of which {len(ran)} run" in page
    assert f"With LKTD {numbers['passed']} of the {len(ran)} pass." in page
    assert f"of the {len(with_model)} that make one, LKTD passes {good}." in page
    assert f"The {numbers['failed']} that fail:" in page
