"""Training, saving, and going on in another process: the same bits as in one go."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from valuetrack.registry import AGENTS, load

STEPS = 8_000
"""More than the memory holds, so that it has gone round when the agent is saved."""
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
def trained(tmp_path_factory):
    """Train every algorithm in one go, save it half-way, and go on from there in a process.

    Returns the agents and the files with what the other process made of them.
    """
    folder = tmp_path_factory.mktemp("models")
    whole, paths = {}, {name: folder / f"{name}.vt" for name in AGENTS}

    def save_half_way(progress):
        if progress.steps == STEPS:
            progress.agent.save(paths[progress.agent.name])

    for name in AGENTS:
        agent = AGENTS[name]("CartPole-v1", **OPTIONS)
        whole[name] = agent.learn(2 * STEPS, report_every=STEPS, callback=save_half_way)
    command = [sys.executable, "-c", GO_ON, *map(str, paths.values())]
    subprocess.run(command, check=True)
    return whole, paths


@pytest.mark.parametrize("name", AGENTS)
def test_steps_in_two_processes_are_those_in_one(name, trained):
    whole, halves = trained[0][name], load(trained[1][name])
    assert halves.num_timesteps == whole.num_timesteps == 2 * STEPS
    assert not halves.diverged
    ours, theirs = halves.trainer.arrays(), whole.trainer.arrays()
    assert ours.keys() == theirs.keys()
    for part, array in theirs.items():
        np.testing.assert_array_equal(ours[part], array, err_msg=part)
