"""The table of computation costs."""

from __future__ import annotations

import jax
import pytest

from tests.conftest import as_users_compile
from valuetrack.envs.indoor_escape import IndoorEscape
from valuetrack.experiments import timing
from valuetrack.experiments.engines import WorkerError
from valuetrack.experiments.engines.local import call_in_process
from valuetrack.experiments.spec import load
from valuetrack.learner import Task
from valuetrack.registry import agent_type


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(timing, "CONFIGURATIONS", (((4,), 8),))
    monkeypatch.setattr(timing, "REPETITIONS", 3)
    monkeypatch.setattr(timing, "SECONDS_PER_REPETITION", 1e-3)


def test_every_algorithm_has_a_time_in_every_configuration(small):
    calls = []
    rows = timing.time_updates(load("indoor-escape"), advance=lambda: calls.append(1))
    algorithms = {"lktd", "sgld", "sghmc", "dqn", "bootdqn", "qrdqn", "kova"}
    cells = {(row["algorithm"], tuple(row["hidden"]), row["batch_size"]) for row in rows}
    assert cells == {(a, h, n) for a in algorithms for h, n in timing.CONFIGURATIONS}
    assert len(rows) == len(cells) == len(calls)
    for row in rows:
        assert 0 < row["low"] <= row["ms_per_update"] <= row["high"]
        iterations = 5 if row["algorithm"] in {"lktd", "sgld", "sghmc"} else 1
        assert row["inner_iterations"] == iterations
        assert row["ms_per_iteration"] == row["ms_per_update"] / iterations


def test_what_is_timed_are_real_updates_of_the_asked_size():
    row = load("indoor-escape").row("lktd-10000")
    batch = timing.random_batch(IndoorEscape(), 8, jax.random.key(1))
    assert {leaf.shape[0] for leaf in jax.tree.leaves(batch)} == {8}
    case = timing.make_case(row, (4,), 8)
    assert int(case.run()) == case.updates


@pytest.mark.parametrize("algorithm", ["sgld", "akq"])
def test_the_compiler_keeps_the_updates_that_are_timed(algorithm):
    """Without a target network and inner iterations, it once left all of them out."""
    kind, env = agent_type(algorithm), IndoorEscape()
    options = kind.options_type(hidden=(4,), form="sarsa")
    learner = kind.build(Task(env.observation_shape, False, env.num_actions), options)
    batch = timing.random_batch(env, 8, jax.random.key(1))
    many = jax.jit(lambda count: timing._updates(learner, batch, count))
    program = many.lower(3).compile(as_users_compile())
    assert program.cost_analysis()["flops"] > 8 * 4 * 10
    assert int(many(3)) == 3


def add(first, second, *, advance):
    advance()
    return first + second


def fail(*, advance):
    raise ValueError("no such thing")


def look_around(*, advance):
    import os

    return len(os.sched_getaffinity(0)), os.environ["XLA_FLAGS"]


def test_a_call_in_a_process_returns_the_result_and_reports_progress():
    calls = []
    assert call_in_process(add, 2, 3, advance=lambda: calls.append(1)) == 5
    assert calls == [1]


def test_a_call_in_a_process_has_one_core():
    cores, flags = call_in_process(look_around, advance=lambda: None)
    assert cores == 1
    assert "intra_op_parallelism_threads=1" in flags


def test_an_error_in_the_process_is_told():
    with pytest.raises(WorkerError, match="no such thing"):
        call_in_process(fail, advance=lambda: None)


def vanish(*, advance):
    import os

    os._exit(3)


def test_a_process_that_vanishes_is_noticed():
    with pytest.raises(WorkerError, match="ended early"):
        call_in_process(vanish, advance=lambda: None)
