"""Single-bit errors: whichever bit of a run's files a disk turns over, reading notices it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.io.samples import create
from valuetrack import DQN
from valuetrack.io import array_file
from valuetrack.io.run_folder import CHECKPOINT, UNIT, RunFolder, StoreError

FLIPS = 3_000
ROW, DONE, OPEN = "cartpole-lktd", "seeds-0000-0001", "seeds-0002-0003"
OWN_ERRORS = (StoreError, array_file.ModelFileError)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    """A run with a trained model, a finished unit and a checkpoint."""
    folder = create(tmp_path_factory.mktemp("flips") / "run")
    agent = DQN("CartPole-v1", hidden=(4,), learning_starts=20, replay_capacity=50, samples=2)
    agent.learn(40)
    rng = np.random.default_rng(0)
    points = {
        "row": np.repeat(ROW, 50),
        "seed": np.repeat([0, 1], 25),
        "return": rng.normal(size=50),
    }
    seeds = {"row": np.repeat(ROW, 2), "seed": np.array([0, 1]), "diverged_at": np.array([-1, 7])}
    info = {"row": ROW, "wall_seconds": 1e-05, "diverged": [1], "best": [0.1, None]}
    folder.finish_unit(ROW, DONE, {"points": points, "seeds": seeds}, info)
    agent.save(folder.unit_path(ROW, DONE) / "best.vt")
    arrays = {**agent.trainer.arrays(), "records.row": points["row"]}
    folder.save_checkpoint(ROW, OPEN, arrays, {"steps": 40, "seconds": 1e-05})
    return folder


def readers(run: RunFolder) -> dict[Path, Callable[[], object]]:
    """Return the files of a run, and how each is read."""
    done = run.unit_path(ROW, DONE)
    return {
        done / "best.vt": lambda: array_file.load(done / "best.vt"),
        run.unit_path(ROW, OPEN) / CHECKPOINT: lambda: run.load_checkpoint(ROW, OPEN),
        done / "points.parquet": lambda: run.table("points"),
        done / "seeds.parquet": lambda: run.table("seeds"),
        done / UNIT: lambda: run.table("seeds"),
    }


def test_every_flipped_bit_is_noticed(run):
    files = readers(run)
    rng = np.random.default_rng(1)
    unnoticed = []
    for path, read in files.items():
        read()  # it is readable
        whole = path.read_bytes()
        bits = rng.choice(8 * len(whole), FLIPS // len(files), replace=False)
        for bit in map(int, bits):
            changed = bytearray(whole)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            with contextlib.suppress(*OWN_ERRORS):
                read()
                unnoticed.append((path.name, bit))
        path.write_bytes(whole)
        read()
    assert not unnoticed


def test_every_flipped_bit_of_a_header_is_noticed(run):
    """The header of a model holds names, shapes and the description, and is mostly text."""
    path = run.unit_path(ROW, DONE) / "best.vt"
    whole = path.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    for bit in range(0, 8 * end, 97):  # a prime: each of the eight bits has its turn
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(array_file.ModelFileError):
            array_file.load(path)
    path.write_bytes(whole)
