"""What TensorBoard is shown."""

from __future__ import annotations

import struct
import subprocess
import sys

import numpy as np
import pytest

from valuetrack.registry import DQN

board = pytest.importorskip("tensorboardX.proto.event_pb2")
record = pytest.importorskip("tensorboardX.record_writer")
OPTIONS = {"hidden": (8,), "learning_starts": 20, "batch_size": 8, "replay_capacity": 200}


def shown(path):
    """Return the scalars of a file by their names."""
    found = {}
    for message in messages(path.read_bytes()):
        for value in board.Event.FromString(message).summary.value:
            found.setdefault(value.tag, []).append(value.simple_value)
    return found


def messages(data):
    """Take a file of records apart: length, checksum, message, checksum."""
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert record.masked_crc32c(data[:8]) == struct.unpack("<I", data[8:12])[0]
        yield data[12 : 12 + length]
        data = data[16 + length :]


def test_each_seed_has_a_run_and_each_training_a_file(tmp_path):
    agent = DQN("CartPole-v1", seeds=2, **OPTIONS)
    for _ in range(2):  # within the same second
        agent.learn(200, tensorboard=tmp_path, evaluate_every=100, report_every=100)
    for seed in range(2):
        files = list((tmp_path / f"seed-{seed}").iterdir())
        assert len(files) == 2
        for path in files:
            scalars = shown(path)
            assert set(scalars) == {
                "rollout/ep_rew_mean",
                "rollout/ep_len_mean",
                "rollout/exploration_rate",
                "time/fps",
                "rollout/value_at_start",
                "rollout/discounted_return",
                "train/loss",
                "eval/mean_reward",
            }
            assert len(scalars["eval/mean_reward"]) == 2
            assert len(scalars["train/loss"]) == 2
            assert np.isfinite(np.concatenate([*scalars.values()])).all()


FULL = """
import resource, sys
from valuetrack.api.tensorboard import Board
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
board = Board(sys.argv[1])
try:
    for step in range(100):
        board.write(step, {"loss": 1.0})
except OSError as error:
    print(step, error.strerror)
"""


def test_a_file_that_cannot_grow_is_an_error_at_once(tmp_path):
    pytest.importorskip("resource")
    command = [sys.executable, "-c", FULL, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    step, reason = result.stdout.split(maxsplit=1)
    assert 1 < int(step) < 20
    assert reason.strip() == "File too large"
