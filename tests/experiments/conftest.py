from __future__ import annotations

import copy
from typing import Any

import pytest

from valuetrack.experiments.engines import InlineEngine
from valuetrack.experiments.run import planned_units, run
from valuetrack.experiments.runner import run_unit
from valuetrack.experiments.spec import Experiment, from_manifest, read_experiment, resolve
from valuetrack.io.run_folder import RunFolder


class StopAfter:
    """A flag that is raised when it has been asked so often."""

    def __init__(self, asked: int) -> None:
        self.left = asked

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


def small_data() -> dict[str, Any]:
    """Return the indoor escape as small as it goes, a run of a second, as its file would say."""
    data = copy.deepcopy(read_experiment("indoor-escape"))
    data.update(steps=1_200, seeds_per_unit=2)
    data["env_options"].update(width=4, height=3, horizon=20)
    data["options"]["all"].update(
        hidden=[8], learning_starts=60, batch_size=16, replay_capacity=200, steps_per_update=10
    )
    data["measure"].update(
        pool_size=20, windows=6, windows_between_evaluations=2, final_windows=2,
        evaluations_per_final_window=2,
    )  # fmt: skip
    data["quick"].update(steps=1_200)
    return data


def run_here(folder: RunFolder) -> bool:
    """Run a folder to its end in this process."""
    return run(folder, engine=InlineEngine(folder))


def run_until(folder: RunFolder, stop: StopAfter) -> bool:
    """Run one unit after the other until the flag is raised; return whether all is finished."""
    manifest = folder.manifest()
    spec = from_manifest(manifest)
    return all(
        run_unit(unit, spec, folder, lambda steps: None, stop)
        for unit in planned_units(manifest)
        if not folder.is_finished(unit.row, unit.name)
    )


@pytest.fixture(scope="session")
def small_spec() -> Experiment:
    return resolve(small_data(), "small")
