"""The examples in docstrings, which the pages of the API show, say what is so.

Agents act in Python here and stop before their first update, so that no training is compiled:
what examples show does not depend on it, and that agents learn is tested elsewhere.
"""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

import valuetrack
from valuetrack.api.agent import Agent

SOURCE = Path(valuetrack.__file__).parent
ELSEWHERE = {"live_page", "zoo"}
"""Rooms whose examples are for other readers."""
EXTRAS = {"valuetrack.envs.gymnax": "gymnax", "valuetrack.sb3.base": "stable_baselines3"}

MOST_STEPS = 200
"""Fewer than ``learning_starts``."""


def _with_examples():
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        shown = re.search(r"^ *>>> ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        if shown and parts[1] not in ELSEWHERE:
            yield ".".join(parts)


@pytest.fixture
def untrained(monkeypatch):
    begin, learn = Agent.__init__, Agent.learn

    def begun(self, env, *args, **given):
        begin(
            self, env, *args, **{**({"backend": "host"} if env == "CartPole-v1" else {}), **given}
        )

    def short(self, steps, **given):
        return learn(self, min(steps, MOST_STEPS), **given)

    monkeypatch.setattr(Agent, "__init__", begun)
    monkeypatch.setattr(Agent, "learn", short)


@pytest.mark.parametrize("name", list(_with_examples()))
def test_examples_of(name, untrained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    if name in EXTRAS:
        pytest.importorskip(EXTRAS[name])
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted
    assert not found.failed
