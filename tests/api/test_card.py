"""The model card beside a model file."""

from __future__ import annotations

import functools
import json

import pytest

from tests.small_envs import Counter
from valuetrack.envs.indoor_escape import IndoorEscape
from valuetrack.registry import DQN, LKTD

SMALL = {"hidden": (4,), "batch_size": 4, "learning_starts": 8, "replay_capacity": 40, "samples": 2}


def card_of(agent, path):
    agent.save(path / "agent.vt", card=True)
    assert {one.name for one in path.iterdir()} == {"agent.vt", "agent.md"}
    return (path / "agent.md").read_text(encoding="utf-8")


def test_a_card_says_what_the_agent_is_and_how_good(tmp_path):
    env = functools.partial(Counter, horizon=99)  # every episode ends by itself
    agent = LKTD(env, seeds=2, seed=5, **SMALL).learn(40).calibrate(20)
    text = card_of(agent, tmp_path)
    played = agent.play(10)
    _, header, body = text.split("---\n", 2)
    lines = header.splitlines()
    assert lines[0] == "library_name: valuetrack"
    result = f"{played.returns.mean():.2f} +/- {played.returns.std():.2f}"
    assert f"      value: {result}" in lines
    assert '      name: "Counter"' in lines
    assert "# LKTD in Counter" in body
    assert 'vt.load("agent.vt", env=...)' in body
    assert "| steps per seed | 40 |" in body
    for place, seed in enumerate((5, 6)):
        assert f"| {seed} | {played.returns[place].mean():.2f} (" in body
    assert "| `hidden` | `[4]` |" in body
    assert all(f"| `{name}` | `{json.dumps(value)}` |" in body
               for name, value in agent.options.model_dump(mode="json").items())  # fmt: skip
    assert "| 5 | " in body.split("## Calibration")[1]


@pytest.mark.parametrize("env", [Counter(), IndoorEscape(width=4, height=3, horizon=7)])
def test_a_card_says_what_it_does_not_know(env, tmp_path):
    text = card_of(DQN(env, **SMALL), tmp_path)
    assert "Not calibrated: `agent.calibrate()`" in text
    assert ("returns were not measured" in text) == isinstance(env, Counter)
    assert ("model-index" in text) != isinstance(env, Counter)
