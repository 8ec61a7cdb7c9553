"""What the tests of all engines share: a small run, and its tables bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.experiments.conftest import small_data
from valuetrack.experiments.run import Request, open_or_create, planned_units
from valuetrack.experiments.spec import Experiment, resolve
from valuetrack.io.run_folder import RunFolder

ROWS = ("lktd-10000", "dqn")
DRIVER = """
import sys
from valuetrack.experiments import run as runs, runner
from valuetrack.experiments.engines import EngineChoice
from valuetrack.io.run_folder import RunFolder
runner.CHECKPOINT_SECONDS = 0.3
folder = RunFolder.open(sys.argv[1])
choice = EngineChoice(sys.argv[2], address=sys.argv[3] or None, slurm=dict(
    pair.split("=") for pair in sys.argv[4:]))
sys.exit(0 if runs.run(folder, engine=choice.make(folder)) else 1)
"""
"""A command that runs a folder to its end."""


def long_spec(steps: int = 30_000) -> Experiment:
    """Return a small experiment that takes long enough to be killed in the middle."""
    return resolve(small_data(), "small", steps=steps)


def new_run(path: Path, spec: Experiment, rows: tuple[str, ...] = ROWS, seeds: int = 4):
    return open_or_create(path, Request(spec, rows=rows, seeds=seeds), resume=True)


def start_driver(folder: RunFolder, engine: str, address: str = "", *slurm: str):
    command = [sys.executable, "-c", DRIVER, str(folder.path), engine, address, *slurm]
    return subprocess.Popen(command)


def progress_of(folder: RunFolder) -> dict[str, list[dict]]:
    """Return the progress of all units, without the speed."""
    return {
        f"{unit.row}/{unit.name}": [
            {key: value for key, value in record.items() if key != "rate"}
            for record in folder.read_progress(unit.row, unit.name)
        ]
        for unit in planned_units(folder.manifest())
    }


def assert_same_bits(expected: RunFolder, found: RunFolder) -> None:
    """Compare all tables but the one with the times, the progress, and what else is left."""
    units = planned_units(expected.manifest())
    assert planned_units(found.manifest()) == units
    for unit in units:
        digests = [
            {
                name: digest
                for name, digest in folder.unit_info(unit.row, unit.name)["tables"].items()
                if name != "seeds"
            }
            for folder in (expected, found)
        ]
        assert digests[0] == digests[1], unit
        files = [
            sorted(
                path.name
                for path in folder.unit_path(unit.row, unit.name).iterdir()
                if not path.name.startswith(".")
            )
            for folder in (expected, found)
        ]
        assert files[0] == files[1], unit
    assert progress_of(expected) == progress_of(found)


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def units_with(folder: RunFolder, name: str) -> int:
    """Return how many units have a file of this name that is not empty."""
    found = 0
    for path in folder.path.glob(f"units/*/*/{name}"):
        try:
            found += os.path.getsize(path) > 0
        except FileNotFoundError:  # replaced or dropped meanwhile
            continue
    return found
