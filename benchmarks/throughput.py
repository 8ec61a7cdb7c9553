"""How many cycles of indoor-escape training run in a second, and how far that is from the limit.

A cycle is ten environment steps and one update; its whole work is timed: acting, replay, update,
and the Q-values of all cells for the pool. Every core runs a process of its own with ten seeds,
as ``valuetrack reproduce`` does; the processes start each repetition together.

The limit is that of the update's matrix products alone: their floating-point operations, counted
in the traced program, at the rate at which the same cores multiply (10000 x 32) by (32 x 32).

Run ``python benchmarks/throughput.py``, with ``--quick`` to see only that it works.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import statistics
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROWS = ("lktd-10000", "sgld-10000", "sghmc-10000", "dqn", "bootdqn", "qrdqn")
SEEDS = 10
REPETITIONS = 7
SECONDS = 2.0


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


def measure(core: int, seconds: float, repetitions: int, together: Any, results: Any) -> None:
    """Be one process: time every row on one core, in step with the others."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[core]})
    import jax  # noqa: PLC0415 - after the flags are set
    import jax.numpy as jnp  # noqa: PLC0415

    from valuetrack.experiments.build import build_agent, build_loop, build_problem  # noqa: PLC0415
    from valuetrack.experiments.spec import load  # noqa: PLC0415
    from valuetrack.experiments.timing import random_batch  # noqa: PLC0415
    from valuetrack.experiments.unit import compile_unit  # noqa: PLC0415
    from valuetrack.training.compiled import Clock  # noqa: PLC0415

    spec = load("indoor_escape")
    problem = build_problem(spec)
    measured: dict[str, Any] = {}
    for row in ROWS:
        loop = build_loop(spec, spec.row(row), "reference", problem)
        functions = compile_unit(loop)
        state = functions.init(jnp.arange(SEEDS, dtype=jnp.int32))
        state, clock, _ = functions.collect(state, Clock.start(), 100)

        def run(cycles: int, functions: Any = functions) -> float:
            nonlocal state, clock
            began = time.perf_counter()
            state, clock, _ = functions.train(state, clock, cycles)
            jax.block_until_ready(state.agent)
            return time.perf_counter() - began

        run(10)
        cycles = max(10, round(seconds / (run(100) / 100)))
        times = []
        for _ in range(repetitions):
            together.wait()
            times.append(run(cycles) / cycles / SEEDS)
        agent = build_agent(spec, spec.row(row), "reference", problem.env)
        batch = random_batch(problem.env, spec.training.batch_size, jax.random.key(0))
        traced = jax.make_jaxpr(agent.update)(
            jax.random.key(0), jax.eval_shape(agent.init, jax.random.key(0)), batch
        )
        measured[row] = {"times": times, "flop": count_products(traced.jaxpr)}

    left, right = jnp.ones((10_000, 32)), jnp.ones((32, 32))
    multiply = jax.jit(lambda a, b, n: jax.lax.fori_loop(0, n, lambda _, c: (c @ b) * 0.03, a))
    jax.block_until_ready(multiply(left, right, 3))
    count = max(3, round(seconds / 3e-4))
    rates = []
    for _ in range(repetitions):
        together.wait()
        began = time.perf_counter()
        jax.block_until_ready(multiply(left, right, count))
        rates.append(2 * 10_000 * 32 * 32 * count / (time.perf_counter() - began))
    results.put((core, measured, rates))


def run_all(seconds: float, repetitions: int) -> dict[str, Any]:
    """Measure on all cores at once."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    context = multiprocessing.get_context("spawn")
    cores = len(os.sched_getaffinity(0))
    together, results = context.Barrier(cores), context.Queue()
    processes = [
        context.Process(target=measure, args=(core, seconds, repetitions, together, results))
        for core in range(cores)
    ]
    for process in processes:
        process.start()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    product_rate = sum(statistics.median(rates) for _, _, rates in found)
    rows = []
    for row in ROWS:
        times = [median for _, measured, _ in found for median in measured[row]["times"]]
        per_core = [statistics.median(measured[row]["times"]) for _, measured, _ in found]
        cycles = sum(1 / each for each in per_core)
        flop = found[0][1][row]["flop"]
        rows.append(
            {
                "row": row,
                "cycles_per_second": cycles,
                "us_per_seed_and_cycle": 1e6 / cycles,
                "fastest_us": 1e6 * min(times) / cores,
                "slowest_us": 1e6 * max(times) / cores,
                "update_mflop": flop / 1e6,
                "share_of_limit": cycles * flop / product_rate,
                "minutes_for_100_seeds": 100 * 1e5 / cycles / 60,
            }
        )
    return {"cores": cores, "seeds_per_core": SEEDS, "gflops": product_rate / 1e9, "rows": rows}


def show(result: dict[str, Any], console: Console) -> None:
    """Print the table."""
    table = Table(
        title=f"{result['cores']} cores, {result['seeds_per_core']} seeds on each; "
        f"products at {result['gflops']:.0f} GFLOPS"
    )
    for name in ("row", "cycles/s", "us a seed and cycle", "update, MFLOP", "share of the limit",
                 "100 seeds x 10^6 steps"):  # fmt: skip
        table.add_column(name, justify="left" if name == "row" else "right")
    for row in result["rows"]:
        table.add_row(
            row["row"],
            f"{row['cycles_per_second']:,.0f}",
            f"{row['us_per_seed_and_cycle']:.0f} "
            f"({row['fastest_us']:.0f} to {row['slowest_us']:.0f})",
            f"{row['update_mflop']:.2f}",
            f"{row['share_of_limit']:.0%}",
            f"{row['minutes_for_100_seeds']:.0f} min",
        )
    console.print(table)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--quick", action="store_true", help="only see that it works")
    options = parser.parse_args()
    result = run_all(0.1, 2) if options.quick else run_all(SECONDS, REPETITIONS)
    from valuetrack.experiments.run import machine, versions  # noqa: PLC0415 - imports JAX

    result = {"machine": machine(), "versions": versions(), **result}
    show(result, Console(width=120))
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "throughput.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"Written: {path}")


if __name__ == "__main__":
    main()
