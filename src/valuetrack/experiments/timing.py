"""The time an update takes: the paper's table of computation costs, measured here."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from valuetrack import rng
from valuetrack.envs.indoor_escape import IndoorEscape
from valuetrack.experiments.build import build_agent, build_problem
from valuetrack.experiments.spec import (
    SAMPLERS,
    Algorithm,
    ExperimentSpec,
    PresetName,
    RowSpec,
    parse,
)
from valuetrack.learner import Learner
from valuetrack.types import Array, Transition

CONFIGURATIONS: tuple[tuple[tuple[int, ...], int], ...] = (
    ((32, 32), 100),
    ((32, 32), 200),
    ((64, 64), 100),
    ((64, 64), 200),
)
"""(hidden layers, batch size): the three of the paper's table, and the one it leaves out."""

REPETITIONS = 15
SECONDS_PER_REPETITION = 0.1


class Case(NamedTuple):
    """One cell of the table, ready to be timed."""

    algorithm: Algorithm
    hidden: tuple[int, ...]
    batch_size: int
    iterations: int
    updates: int
    run: Callable[[], Any]


def time_updates(
    spec: ExperimentSpec,
    preset: PresetName,
    *,
    advance: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Time all algorithms in all configurations, one seed on one device.

    The algorithms of a configuration take turns, so that a disturbance of the machine meets all
    of them; the median of several turns is reported, with the fastest and the slowest. Each turn
    begins with a run that does not count, for the caches are still full of the one before.
    """
    rows = []
    for hidden, batch_size in CONFIGURATIONS:
        cases = []
        for row in first_rows(spec):
            cases.append(make_case(spec, preset, row, hidden, batch_size))
            advance()
        turns: list[list[float]] = [[] for _ in cases]
        for _ in range(REPETITIONS):
            for case, times in zip(cases, turns, strict=True):
                case.run()
                times.append(_seconds(case.run) / case.updates * 1e3)
        rows += [_record(case, times) for case, times in zip(cases, turns, strict=True)]
    return rows


def first_rows(spec: ExperimentSpec) -> list[RowSpec]:
    """Return one row for each algorithm, the last in the file."""
    return list({row.algorithm: row for row in spec.rows}.values())


def make_case(
    spec: ExperimentSpec, preset: PresetName, row: RowSpec, hidden: tuple[int, ...], batch_size: int
) -> Case:
    """Compile the updates of one cell, and find out how many of them last long enough."""
    data = spec.model_dump()
    data["network"]["hidden"] = hidden
    data["training"]["batch_size"] = batch_size
    problem = build_problem(spec)
    agent = build_agent(parse(data, "timing"), row, preset, problem.env)
    batch = random_batch(problem.env, batch_size, jax.random.key(1))
    many = jax.jit(lambda count: _updates(agent, batch, count))
    many(1).block_until_ready()
    once = max(_seconds(lambda: many(3).block_until_ready()) / 3, 1e-6)
    updates = max(1, round(SECONDS_PER_REPETITION / once))
    iterations = spec.presets[preset].inner_iterations if row.algorithm in SAMPLERS else 1
    return Case(
        row.algorithm,
        hidden,
        batch_size,
        iterations,
        updates,
        lambda: many(updates).block_until_ready(),
    )


def random_batch(env: IndoorEscape, size: int, key: Array) -> Transition:
    """Return transitions of the right shapes; an update's time does not depend on their values."""
    keys = jax.random.split(key, 6)
    return Transition(
        observation=jax.random.uniform(keys[0], (size, *env.observation_shape)),
        action=jax.random.randint(keys[1], (size,), 0, env.num_actions),
        reward=-1.0 + 0.1 * jax.random.normal(keys[2], (size,)),
        discount=jnp.full((size,), 0.9),
        next_observation=jax.random.uniform(keys[3], (size, *env.observation_shape)),
        next_action=jax.random.randint(keys[4], (size,), 0, env.num_actions),
        next_mask=jnp.ones((size, env.num_actions), bool),
    )


def _updates(agent: Learner, batch: Transition, count: Any) -> Array:
    def body(_: Any, carry: tuple[Array, Any]) -> tuple[Array, Any]:
        key, state = carry
        key, update_key = jax.random.split(key)
        state, _ = agent.update(update_key, state, batch)
        return key, state

    start = (rng.key(0), agent.init(rng.key(2)))
    _, state = jax.lax.fori_loop(0, count, body, start)
    return jnp.asarray(state.sampler.updates)


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _record(case: Case, times: list[float]) -> dict[str, Any]:
    median = statistics.median(times)
    return {
        "algorithm": case.algorithm,
        "hidden": list(case.hidden),
        "batch_size": case.batch_size,
        "inner_iterations": case.iterations,
        "ms_per_update": median,
        "ms_per_iteration": median / case.iterations,
        "low": min(times),
        "high": max(times),
    }
