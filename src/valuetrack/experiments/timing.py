"""The time an update takes: the paper's table of computation costs, measured here."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from valuetrack import rng
from valuetrack.api.options import parse
from valuetrack.envs.indoor_escape import IndoorEscape
from valuetrack.experiments.spec import Experiment, Row
from valuetrack.learner import Learner, LearnerState, Task
from valuetrack.registry import agent_type
from valuetrack.training.update import refresh_when_due
from valuetrack.types import Array, Json, Transition

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
    """One cell of the table, ready to be timed: a run makes some updates and says how many."""

    cell: Json
    updates: int
    run: Callable[[], Array]


def time_updates(spec: Experiment, *, advance: Callable[[], None] = lambda: None) -> list[Json]:
    """Time all algorithms in all configurations, one seed on one device.

    The algorithms of a configuration take turns, so that a disturbance of the machine meets all
    of them; the median of several turns is reported, with the fastest and the slowest. Each turn
    begins with a run that does not count, for the caches are still full of the one before.
    """
    rows = []
    for hidden, batch_size in CONFIGURATIONS:
        cases = []
        for row in timed_rows(spec):
            cases.append(make_case(row, hidden, batch_size))
            advance()
        turns: list[list[float]] = [[] for _ in cases]
        for _ in range(REPETITIONS):
            for case, times in zip(cases, turns, strict=True):
                case.run()
                times.append(_seconds(case.run) / case.updates * 1e3)
        rows += [_record(case, times) for case, times in zip(cases, turns, strict=True)]
    return rows


def timed_rows(spec: Experiment) -> list[Row]:
    """Return one row per algorithm, the last in the file."""
    return list({row.algorithm: row for row in spec.rows}.values())


def make_case(row: Row, hidden: tuple[int, ...], batch_size: int) -> Case:
    """Compile the updates of one cell, and find out how many of them last long enough."""
    kind, env = agent_type(row.algorithm), IndoorEscape(**row.env_options)
    options = parse(kind.options_type, {**row.options, "hidden": hidden}, row.id)
    learner = kind.build(Task(env.observation_shape, False, env.num_actions), options)
    batch = random_batch(env, batch_size, jax.random.key(1))
    many = jax.jit(lambda count: _updates(learner, batch, count))
    many(1).block_until_ready()
    once = max(_seconds(lambda: many(3).block_until_ready()) / 3, 1e-6)
    updates = max(1, round(SECONDS_PER_REPETITION / once))
    cell = {
        "algorithm": row.algorithm,
        "hidden": list(hidden),
        "batch_size": batch_size,
        "inner_iterations": getattr(options, "inner_iterations", 1),
    }
    return Case(cell, updates, lambda: many(updates).block_until_ready())


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


def _updates(learner: Learner, batch: Transition, count: Array) -> Array:
    def body(index: Array, carry: tuple[Array, LearnerState]) -> tuple[Array, LearnerState]:
        key, state = carry
        key, update_key = jax.random.split(key)
        done = state.sampler.updates
        state, _ = learner.update(update_key, state, batch)
        return key, refresh_when_due(learner, state, done)

    start = (rng.key(0), learner.init(rng.key(2)))
    _, state = jax.lax.fori_loop(0, count, body, start)
    # XLA leaves out what no result depends on: without the parameters, the updates themselves.
    total = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(state.sampler.params))
    return jnp.where(jnp.isfinite(total), state.sampler.updates, -1)


def _seconds(run: Callable[[], Array]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _record(case: Case, times: list[float]) -> Json:
    median = statistics.median(times)
    return {
        **case.cell,
        "ms_per_update": median,
        "ms_per_iteration": median / case.cell["inner_iterations"],
        "low": min(times),
        "high": max(times),
    }
