"""How many cycles of indoor-escape training run in a second, and how far that is from the limit.

A cycle is ten environment steps and one update; its whole work is timed: acting, replay, update,
and the Q-values of all cells for the pool. The update is also timed alone, in turn with it. Every
core runs a process of its own with eight seeds at a time, which is how ``valuetrack reproduce``
cuts 32 seeds for two cores; the processes start each repetition together.

The limit is that of the update's matrix products alone: their floating-point operations, counted
in the traced program (before those of few terms are written out), at the rate at which the same
cores multiply (10000 x 32) by (32 x 32). The rate at which they multiply eight times (100 x 32) by
(32 x 32), the update's own shapes for eight seeds, is shown beside it.

Run ``python benchmarks/throughput.py``, with ``--quick`` to see only that it works.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from common import (
    SINGLE_THREAD,
    agent_of_row,
    arguments,
    cores,
    figure,
    machine,
    make_console,
    save_figure,
    write_json,
    write_tables,
)

ROWS = ("lktd-10000", "sgld-10000", "sghmc-10000", "dqn", "bootdqn", "qrdqn")
SEEDS = 8
SECONDS, QUICK_SECONDS = 2.0, 0.1
PRODUCTS = {
    "one large": ((10_000, 32), (32, 32)),
    "as in the update": ((SEEDS, 100, 32), (SEEDS, 32, 32)),
}
"""Shapes of the products whose rate is measured."""


def count_products(jaxpr: Any) -> int:
    """Return the floating-point operations of all matrix products in a traced program."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            inner = math.prod(left[axis] for axis in contracted)
            total += 2 * inner * math.prod(equation.outvars[0].aval.shape)
            continue
        repeats = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            inside = getattr(value, "jaxpr", value if hasattr(value, "eqns") else None)
            if inside is not None and hasattr(inside, "eqns"):
                total += repeats * count_products(inside)
    return total


def repeat(
    runs: Sequence[Callable[[int], None]], seconds: float, turns: int, together: Any
) -> list[list[float]]:
    """Warm up, then let all take so many turns of about so many seconds; return those of one."""

    def timed(run: Callable[[int], None], count: int) -> float:
        began = time.perf_counter()
        run(count)
        return (time.perf_counter() - began) / count

    counts = []
    for run in runs:
        timed(run, 10)
        counts.append(max(10, round(seconds / timed(run, 100))))
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(turns):
        for run, count, found in zip(runs, counts, times, strict=True):
            together.wait()
            found.append(timed(run, count))
    return times


def measure(
    core: int, names: Sequence[str], seconds: float, repetitions: int, together: Any, results: Any
) -> None:
    """Be one process: time every row on one core, in step with the others."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[core]})
    import jax  # noqa: PLC0415 - after the flags are set
    import jax.numpy as jnp  # noqa: PLC0415

    from valuetrack import networks  # noqa: PLC0415
    from valuetrack.experiments.timing import random_batch  # noqa: PLC0415

    measured: dict[str, Any] = {}
    for row in names:
        agent = agent_of_row("indoor-escape", row, SEEDS)
        learner, trainer = agent.learner, agent.trainer
        trainer.run(trainer.settings.warmup_cycles)
        states = jax.tree.map(jnp.copy, trainer.states)

        def cycles(count: int, trainer: Any = trainer) -> None:
            trainer.run(count)  # waits for its sums
            jax.block_until_ready(trainer.states)

        batch = random_batch(agent.env.in_jax, agent.options.batch_size, jax.random.key(0))
        batches = jax.tree.map(lambda leaf: jnp.stack([leaf] * SEEDS), batch)
        many = jax.jit(partial(updates, learner))

        def alone(count: int, many: Any = many, start: Any = (states, batches)) -> None:
            jax.block_until_ready(many(*start, count))

        known, networks.FEW = networks.FEW, 0
        traced = jax.make_jaxpr(learner.update)(
            jax.random.key(0), jax.eval_shape(learner.init, jax.random.key(0)), batch
        )
        networks.FEW = known
        whole, update = repeat([cycles, alone], seconds, repetitions, together)
        measured[row] = {
            "times": [t / SEEDS for t in whole],
            "update_times": [t / SEEDS for t in update],
            "flop": count_products(traced.jaxpr),
        }

    rates = {}
    for name, (left, right) in PRODUCTS.items():
        a, b = jnp.ones(left), jnp.ones(right)
        multiply = jax.jit(lambda a, b, n: jax.lax.fori_loop(0, n, lambda _, c: (c @ b) * 0.03, a))

        def products(count: int, multiply: Any = multiply, a: Any = a, b: Any = b) -> None:
            jax.block_until_ready(multiply(a, b, count))

        flop = 2 * math.prod(left) * right[-1]
        (times,) = repeat([products], seconds, repetitions, together)
        rates[name] = [flop / t for t in times]
    results.put((core, measured, rates))


def updates(learner: Any, states: Any, batches: Any, count: Any) -> Any:
    """Make ``count`` updates of all seeds, always on the same batches: values cost no time."""
    import jax  # noqa: PLC0415 - after the flags are set

    from valuetrack import rng  # noqa: PLC0415

    def one(_: Any, carry: Any) -> Any:
        keys, states = carry
        pairs = jax.vmap(jax.random.split)(keys)
        states, _ = jax.vmap(learner.update)(pairs[:, 0], states, batches)
        return pairs[:, 1], states

    start = (jax.random.split(rng.key(0), SEEDS), states)
    return jax.lax.fori_loop(0, count, one, start)[1]


def run_all(names: Sequence[str], seconds: float, repetitions: int) -> dict[str, Any]:
    """Measure on all cores at once."""
    os.environ.update(SINGLE_THREAD)
    context = multiprocessing.get_context("spawn")
    count = len(cores())
    together, results = context.Barrier(count), context.Queue()
    processes = [
        context.Process(target=measure, args=(core, names, seconds, repetitions, together, results))
        for core in range(count)
    ]
    for process in processes:
        process.start()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    rates = {
        name: sum(statistics.median(rates[name]) for _, _, rates in found) for name in PRODUCTS
    }
    limit = rates["one large"]
    rows = []
    for row in names:
        times = [each for _, measured, _ in found for each in measured[row]["times"]]
        cycles = sum(1 / statistics.median(m[row]["times"]) for _, m, _ in found)
        updates = sum(1 / statistics.median(m[row]["update_times"]) for _, m, _ in found)
        flop = found[0][1][row]["flop"]
        rows.append(
            {
                "row": row,
                "cycles_per_second": cycles,
                "us_per_seed_and_cycle": 1e6 / cycles,
                "fastest_us": 1e6 * min(times) / count,
                "slowest_us": 1e6 * max(times) / count,
                "us_per_seed_and_update": 1e6 / updates,
                "update_mflop": flop / 1e6,
                "share_of_limit": cycles * flop / limit,
                "share_of_limit_in_update": updates * flop / limit,
                "minutes_for_100_seeds": 100 * 1e5 / cycles / 60,
            }
        )
    gflops = {name: rate / 1e9 for name, rate in rates.items()}
    return {"cores": count, "seeds_per_core": SEEDS, "gflops": gflops, "rows": rows}


def show(result: dict[str, Any], console: Console) -> None:
    """Print the table."""
    rates = " and ".join(f"{rate:.0f} ({name})" for name, rate in result["gflops"].items())
    table = Table(
        title=f"{result['cores']} cores, {result['seeds_per_core']} seeds on each; "
        f"products at {rates} GFLOPS"
    )
    for name in ("row", "cycles/s", "us a seed and cycle", "us a seed and update", "MFLOP",
                 "of the limit", "in the update", "100 seeds x 10^6 steps"):  # fmt: skip
        table.add_column(name, justify="left" if name == "row" else "right")
    for row in result["rows"]:
        table.add_row(
            row["row"],
            f"{row['cycles_per_second']:,.0f}",
            f"{row['us_per_seed_and_cycle']:.0f} "
            f"({row['fastest_us']:.0f} to {row['slowest_us']:.0f})",
            f"{row['us_per_seed_and_update']:.0f}",
            f"{row['update_mflop']:.2f}",
            f"{row['share_of_limit']:.0%}",
            f"{row['share_of_limit_in_update']:.0%}",
            f"{row['minutes_for_100_seeds']:.0f} min",
        )
    console.print(table)


def draw(result: dict[str, Any], folder: Path) -> None:
    """Draw what a cycle and its update take, and the update at the rate of the large product."""
    drawn, axes = figure(1, 1, (8, 3.6))
    axis, rows = axes[0, 0], result["rows"]
    names = [row["row"] for row in rows]
    limits = [1e3 * row["update_mflop"] / result["gflops"]["one large"] for row in rows]
    axis.barh(names, [row["us_per_seed_and_cycle"] for row in rows], color="0.85", label="cycle")
    axis.barh(names, [row["us_per_seed_and_update"] for row in rows], height=0.5, label="update")
    axis.barh(names, limits, height=0.25, color="k", label="its products at the limit")
    axis.set(xlabel="us a seed, all cores busy", title="Indoor escape: 10 steps and an update")
    axis.invert_yaxis()
    axis.grid(axis="x", alpha=0.3)
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
    save_figure(drawn, result["machine"], folder, "throughput")


def main() -> None:
    """Measure, print, and write throughput.json and the figure."""
    given = arguments(__doc__)
    described = machine()
    names, seconds, repetitions = ROWS, SECONDS, given.repetitions
    if given.quick:
        names, seconds, repetitions = ROWS[:1], QUICK_SECONDS, 2
    result = {
        "what": "Time of a training cycle and of an update, beside that of its matrix products.",
        "quick": given.quick,
        "machine": described,
        "repetitions": repetitions,
        **run_all(names, seconds, repetitions),
    }
    console = make_console()
    show(result, console)
    write_json(result, given.out, "throughput")
    write_tables(console, given.out, "throughput")
    draw(result, given.out)


if __name__ == "__main__":
    main()
