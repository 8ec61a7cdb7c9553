"""Training, saving, and going on in another process: the same bits as in one go."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from valuetrack.registry import AGENTS, load

STEPS = 20_000
OPTIONS = {
    "hidden": (16,),
    "batch_size": 16,
    "replay_capacity": 5_000,
    "samples": 50,
    "steps_per_update": 16,
}

GO_ON = f"""
import sys
from valuetrack import load
for path in sys.argv[1:]:
    agent = load(path)
    agent.learn({STEPS})
    agent.save(path)
"""


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """Train every algorithm half-way here and the rest of the way in a process of its own."""
    folder = tmp_path_factory.mktemp("models")
    paths = {name: folder / f"{name}.vt" for name in AGENTS}
    for name, path in paths.items():
        AGENTS[name]("CartPole-v1", **OPTIONS).learn(STEPS).save(path)
    command = [sys.executable, "-c", GO_ON, *map(str, paths.values())]
    subprocess.run(command, check=True)
    return paths


@pytest.mark.parametrize("name", AGENTS)
def test_40_000_steps_in_two_processes_are_those_in_one(name, resumed):
    whole = AGENTS[name]("CartPole-v1", **OPTIONS).learn(2 * STEPS)
    halves = load(resumed[name])
    assert halves.num_timesteps == whole.num_timesteps == 2 * STEPS
    assert not halves.diverged
    ours, theirs = halves.trainer.arrays(), whole.trainer.arrays()
    assert ours.keys() == theirs.keys()
    for part, array in theirs.items():
        np.testing.assert_array_equal(ours[part], array, err_msg=part)
