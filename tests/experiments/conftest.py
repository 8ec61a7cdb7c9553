from __future__ import annotations

import os

import jax
import pytest

from valuetrack.experiments.spec import ExperimentSpec, load, parse


class StopAfter:
    """A flag that is raised when it has been asked so often."""

    def __init__(self, asked: int) -> None:
        self.left = asked

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


def shrink(spec: ExperimentSpec) -> ExperimentSpec:
    """Return the indoor escape as small as it goes: a run of a second."""
    data = spec.model_dump()
    data["environment"].update(width=4, height=3, horizon=20)
    data["network"]["hidden"] = (8,)
    data["training"].update(
        steps=1_200, learning_starts=60, batch_size=16, replay_capacity=200, steps_per_update=10
    )
    data["metrics"].update(
        pool_size=20, windows=6, windows_between_evaluations=2, final_windows=2,
        evaluations_per_final_window=2,
    )  # fmt: skip
    return parse(data, "small")


@pytest.fixture(scope="session")
def small_spec() -> ExperimentSpec:
    return shrink(load("indoor_escape"))


@pytest.fixture(scope="module", autouse=True)
def _compile_quickly():
    """Spend less on optimising programs that run for a moment, here and in child processes."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    del os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"]
