"""How time and memory of one update grow with the parameters p and the batch n.

For LKTD both should be linear: the Kalman gain is a number, so that an update costs K forward and
backward passes and as many random numbers. SGLD, SGHMC and Adam are measured beside it, and KOVA,
whose time and memory grow with the square of p, as far as it goes. The networks are MLPs with 16
inputs, one output and two equal hidden layers, whose width w makes p = w^2 + 19 w + 1:

* against p: w = 24, 48, 91, 307, 991, 3153 (p = 1,033 to 10,001,317), batch n = 32;
* against n: w = 91 (p = 10,011), batch n = 32 to 4096;
* beside SGLD and Adam: w = 991 (p = 1,000,911), batch n = 32, 128 and 512, an iteration each.

LKTD, SGLD and SGHMC make K = 5 iterations an update, Adam and KOVA one. One process with all cores;
in every repetition each algorithm has its turn. Memory is what XLA says of the compiled program,
which takes over the memory of the state it is given, as in training: its temporary arrays, and
with arguments and results its peak. Exponents are slopes of log-log fits over the upper half of
each range, where fixed costs no longer count.

Run ``python benchmarks/growth.py``, with ``--quick`` to see only that it works.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from common import (
    arguments,
    exponent,
    figure,
    machine,
    make_console,
    ratio,
    save_figure,
    spread,
    with_spread,
    write_json,
    write_tables,
)
from valuetrack import networks, priors, rng, samplers
from valuetrack.measurement import Measurement, mean_squared_error
from valuetrack.samplers.base import Sampler

INPUTS = 16
INNER_ITERATIONS = 5
WIDTHS, BATCH = (24, 48, 91, 307, 991, 3153), 32
WIDTH, BATCHES = 91, (32, 64, 128, 256, 512, 1024, 2048, 4096)
RATIO_WIDTH, RATIO_BATCHES = 991, (32, 128, 512)
RIVALS = ("SGLD", "Adam")
KOVA_PARAMETERS, KOVA_WORK = 12_000, 3e10
"""KOVA's largest p, and its largest n p^2: seconds an update, and gigabytes."""
SECONDS = 0.05
"""A measurement lasts at least so long; updates too short for that are made several times."""
FLOAT_BYTES = 4


class Case(NamedTuple):
    """An algorithm at one size, compiled."""

    algorithm: str
    iterations: int
    state: Any
    data: Any
    compiled: Any


class Row(NamedTuple):
    """One algorithm at one size, and what an update of it costs."""

    algorithm: str
    iterations: int
    width: int
    parameters: int
    batch: int
    seconds: dict[str, float]
    temporary_bytes: int
    peak_bytes: int
    peak_floats_per_parameter: float


def parameters_of(width: int) -> int:
    """Return the number of parameters of a network with two hidden layers of this width."""
    return width**2 + (INPUTS + 3) * width + 1


def algorithms(width: int, batch: int) -> list[str]:
    """Return who is measured at this size."""
    p = parameters_of(width)
    small = p <= KOVA_PARAMETERS and batch * p**2 <= KOVA_WORK
    return ["LKTD", "SGLD", "SGHMC", "Adam", *(["KOVA"] if small else [])]


def build(algorithm: str, measurement: Measurement, batch: int) -> tuple[Sampler, int]:
    """Return an algorithm and its iterations an update."""
    if algorithm == "Adam":
        return samplers.adam(mean_squared_error(measurement), learning_rate=1e-5), 1
    if algorithm == "KOVA":
        return samplers.kova(measurement, observation_variance=batch), 1
    make = {"LKTD": samplers.lktd, "SGLD": samplers.sgld, "SGHMC": samplers.sghmc}[algorithm]
    sampler = make(
        measurement,
        priors.gaussian_mixture(),
        step_size=1e-6,
        pseudo_population=1e4,
        observation_sd=0.5,
        inner_iterations=INNER_ITERATIONS,
    )
    return sampler, INNER_ITERATIONS


def prepare(algorithm: str, width: int, batch: int) -> Case:
    """Compile an update, which may overwrite the state it is given, and run it once."""
    network = networks.mlp(INPUTS, 1, hidden=(width, width))
    measurement = Measurement(
        predict=lambda params, data: network.apply(params, data[0])[:, 0],
        observe=lambda params, data: data[1],
    )
    sampler, iterations = build(algorithm, measurement, batch)
    params_key, data_key, key = jax.random.split(rng.key(0), 3)
    state = sampler.init(network.init(params_key))
    data = (jax.random.normal(data_key, (batch, INPUTS)), jnp.ones(batch))
    compiled = jax.jit(sampler.step, donate_argnums=1).lower(key, state, data).compile()
    state, _ = jax.block_until_ready(compiled(key, state, data))
    return Case(algorithm, iterations, state, data, compiled)


def run(case: Case, keys: Any) -> tuple[Case, float]:
    """Make an update with each key; return the seconds of one."""
    state = case.state
    began = time.perf_counter()
    for key in keys:
        state, info = case.compiled(key, state, case.data)
    jax.block_until_ready(state)
    took = (time.perf_counter() - began) / len(keys)
    if not info.finite:
        raise SystemExit(f"The chain of {case.algorithm} is not finite any more.")
    return case._replace(state=state), took


def measure(
    width: int, batch: int, repetitions: int, wanted: list[str] | None = None
) -> tuple[list[Row], dict[str, list[float]]]:
    """Time the algorithms at one size in turn; return their rows, and all their seconds."""
    cases = [prepare(name, width, batch) for name in wanted or algorithms(width, batch)]
    keys = []
    for place, case in enumerate(cases):
        cases[place], once = run(case, jax.random.split(rng.key(1), 2))
        keys.append(list(jax.random.split(rng.key(2), max(1, round(SECONDS / once)))))
    seconds: dict[str, list[float]] = {case.algorithm: [] for case in cases}
    for _ in range(repetitions):
        for place, case in enumerate(cases):
            cases[place], took = run(case, keys[place])
            seconds[case.algorithm].append(took)
    return [make_row(case, width, batch, seconds[case.algorithm]) for case in cases], seconds


def make_row(case: Case, width: int, batch: int, seconds: list[float]) -> Row:
    """Put the times of a case together with its memory."""
    memory = case.compiled.memory_analysis()
    peak = (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        + memory.temp_size_in_bytes
        - memory.alias_size_in_bytes
    )
    parameters = networks.parameter_count(case.state.params)
    return Row(
        algorithm=case.algorithm,
        iterations=case.iterations,
        width=width,
        parameters=parameters,
        batch=batch,
        seconds=spread(seconds),
        temporary_bytes=memory.temp_size_in_bytes,
        peak_bytes=peak,
        peak_floats_per_parameter=peak / FLOAT_BYTES / parameters,
    )


def exponents(rows: list[Row], against: str) -> dict[str, dict[str, float]]:
    """Fit the exponents of time and memory of each algorithm that has two sizes or more."""
    fits = {}
    for name in dict.fromkeys(row.algorithm for row in rows):
        own = [row for row in rows if row.algorithm == name]
        if len(own) > 1:
            sizes = [getattr(row, against) for row in own]
            fits[name] = {
                "seconds": exponent(sizes, [row.seconds["median"] for row in own]),
                "temporary_bytes": exponent(sizes, [row.temporary_bytes for row in own]),
                "peak_bytes": exponent(sizes, [row.peak_bytes for row in own]),
            }
    return fits


def compare(width: int, batch: int, repetitions: int) -> dict[str, Any]:
    """Hold an iteration of LKTD against one of SGLD and one of Adam, at one size."""
    rows, seconds = measure(width, batch, repetitions, ["LKTD", *RIVALS])
    each = {row.algorithm: [s / row.iterations for s in seconds[row.algorithm]] for row in rows}
    return {
        "parameters": rows[0].parameters,
        "batch": batch,
        "seconds_an_iteration": {name: spread(values) for name, values in each.items()},
        "lktd_times": {name: ratio(each["LKTD"], each[name]) for name in RIVALS},
    }


def measure_all(quick: bool, repetitions: int) -> dict[str, Any]:
    """Measure both series and the comparison."""
    widths, batches, ratio_batches = WIDTHS, BATCHES, RATIO_BATCHES
    if quick:
        widths, batches, ratio_batches = WIDTHS[:3], BATCHES[:3], RATIO_BATCHES[:1]
    series = {
        "parameters": [row for w in widths for row in measure(w, BATCH, repetitions)[0]],
        "batch": [row for n in batches for row in measure(WIDTH, n, repetitions)[0]],
    }
    return {
        "series": {
            against: {
                "rows": [row._asdict() for row in rows],
                "exponents": exponents(rows, against),
            }
            for against, rows in series.items()
        },
        "iterations": [compare(RATIO_WIDTH, n, repetitions) for n in ratio_batches],
    }


def show(result: dict[str, Any], console: Console) -> None:
    """Print a table of each series, the exponents, and the comparison."""
    for against, series in result["series"].items():
        table = Table(title=f"One update against the {against}")
        heads = ("p", "n", "ms an update", "temporary MB", "peak MB", "floats a parameter")
        table.add_column("algorithm")
        for head in heads:
            table.add_column(head, justify="right")
        for name, fit in series["exponents"].items():
            for row in (row for row in series["rows"] if row["algorithm"] == name):
                in_ms = {key: 1e3 * value for key, value in row["seconds"].items()}
                table.add_row(
                    name,
                    f"{row['parameters']:,}",
                    f"{row['batch']:,}",
                    with_spread(in_ms, ".2f"),
                    f"{row['temporary_bytes'] / 1e6:.2f}",
                    f"{row['peak_bytes'] / 1e6:.2f}",
                    f"{row['peak_floats_per_parameter']:.1f}",
                )
            fitted = [f"{fit[key]:.2f}" for key in ("seconds", "temporary_bytes", "peak_bytes")]
            table.add_row("", "exponent", "", *fitted, "", style="bold", end_section=True)
        console.print(table)
    table = Table(title="An iteration of LKTD beside one of SGLD and one of Adam")
    for head in ("p", "n", "LKTD, ms", "LKTD / SGLD", "LKTD / Adam"):
        table.add_column(head, justify="right")
    for row in result["iterations"]:
        table.add_row(
            f"{row['parameters']:,}",
            f"{row['batch']}",
            f"{1e3 * row['seconds_an_iteration']['LKTD']['median']:.2f}",
            *(with_spread(row["lktd_times"][name], ".2f") for name in RIVALS),
        )
    console.print(table)


def draw(result: dict[str, Any], folder: Path) -> None:
    """Draw time and memory against size, with a line of slope one beside them."""
    labels = {"parameters": "parameters p (batch 32)", "batch": "batch n (p = 10,011)"}
    panels = [("seconds", 1e3, "ms an update"), ("peak_bytes", 1e-6, "peak MB")]
    drawn, axes = figure(2, 2, (10, 7.5))
    for column, (against, series) in enumerate(result["series"].items()):
        for axis, (measured, unit, label) in zip(axes[:, column], panels, strict=True):
            for name, fit in series["exponents"].items():
                own = [row for row in series["rows"] if row["algorithm"] == name]
                sizes = [row[against] for row in own]
                costs = [row[measured] for row in own]
                if measured == "seconds":
                    costs = [cost["median"] for cost in costs]
                costs = [unit * cost for cost in costs]
                axis.loglog(sizes, costs, "o-", ms=4, label=f"{name}, {fit[measured]:.2f}")
                if name == "LKTD":
                    linear = [costs[-1] * size / sizes[-1] for size in sizes]
                    axis.loglog(sizes, linear, "k:", label="linear, 1")
            axis.set(xlabel=labels[against], ylabel=label)
            axis.grid(alpha=0.3)
            axis.legend(fontsize=8, title="exponent", title_fontsize=8)
    save_figure(drawn, result["machine"], folder, "growth")


def main() -> None:
    """Measure, print, and write growth.json and the figure."""
    given = arguments(__doc__, repetitions=15)
    described = machine()  # first, because it notes the load before our own
    repetitions = 2 if given.quick else given.repetitions
    result = {
        "what": "One update, float32, MLP with 16 inputs and two equal hidden layers.",
        "quick": given.quick,
        "machine": described,
        "inner_iterations": INNER_ITERATIONS,
        "repetitions": repetitions,
        **measure_all(given.quick, repetitions),
    }
    console = make_console()
    show(result, console)
    write_json(result, given.out, "growth")
    write_tables(console, given.out, "growth")
    draw(result, given.out)


if __name__ == "__main__":
    main()
