"""How time and memory of one LKTD update grow with the parameters p and the batch n.

Both should be linear: the Kalman gain is a number, so that an update costs K forward and backward
passes and as many random numbers. The networks are MLPs with 16 inputs, one output and two equal
hidden layers, whose width w makes p = w^2 + 19 w + 1:

* against p: w = 24, 78, 250, 850, 3150 (p = 1,033 to 9,982,351), batch n = 32;
* against n: w = 91 (p = 10,011), batch n = 32 to 4096.

Memory is what XLA says of the compiled program: its temporary arrays, and with arguments and
results its peak. Exponents are slopes of log-log fits over the upper half of each range, where
fixed costs no longer count.

Run ``python benchmarks/growth.py``, with ``--quick`` to see only that it works.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from valuetrack import networks, priors, samplers
from valuetrack.measurement import Measurement

INPUTS = 16
INNER_ITERATIONS = 5
WIDTHS, BATCH = (24, 78, 250, 850, 3150), 32
WIDTH, BATCHES = 91, (32, 64, 128, 256, 512, 1024, 2048, 4096)
MEASURES = {
    "seconds": "time an update",
    "temporary_bytes": "temporary memory",
    "peak_bytes": "peak memory",
}


class Row(NamedTuple):
    """One size, and what an update of it costs."""

    width: int
    parameters: int
    batch: int
    seconds: float
    seconds_fastest: float
    seconds_slowest: float
    temporary_bytes: int
    peak_bytes: int


def measure(width: int, batch: int, repetitions: int) -> Row:
    """Compile an update, run it once to warm up, then time it."""
    network = networks.mlp(INPUTS, 1, hidden=(width, width))
    measurement = Measurement(
        predict=lambda params, data: network.apply(params, data[0])[:, 0],
        observe=lambda params, data: data[1],
    )
    sampler = samplers.lktd(
        measurement,
        priors.gaussian_mixture(),
        step_size=1e-6,
        pseudo_population=1e4,
        observation_sd=0.5,
        inner_iterations=INNER_ITERATIONS,
    )
    params_key, data_key, key = jax.random.split(jax.random.key(0), 3)
    state = sampler.init(network.init(params_key))
    data = (jax.random.normal(data_key, (batch, INPUTS)), jnp.ones(batch))
    compiled = jax.jit(sampler.step).lower(key, state, data).compile()

    state, info = jax.block_until_ready(compiled(key, state, data))
    seconds = []
    for key_t in jax.random.split(key, repetitions):
        start = time.perf_counter()
        state, info = jax.block_until_ready(compiled(key_t, state, data))
        seconds.append(time.perf_counter() - start)
    if not info.finite:
        raise RuntimeError(f"The chain of width {width} and batch {batch} is not finite.")
    memory = compiled.memory_analysis()
    peak = (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        + memory.temp_size_in_bytes
        - memory.alias_size_in_bytes
    )
    return Row(
        width=width,
        parameters=networks.parameter_count(state.params),
        batch=batch,
        seconds=statistics.median(seconds),
        seconds_fastest=min(seconds),
        seconds_slowest=max(seconds),
        temporary_bytes=memory.temp_size_in_bytes,
        peak_bytes=peak,
    )


def exponents(rows: list[Row], against: str) -> dict[str, float]:
    """Fit cost = c * size^exponent to the upper half of the sizes (at least two)."""
    upper = rows[min(len(rows) // 2, len(rows) - 2) :]
    size = np.log([getattr(row, against) for row in upper])
    return {
        name: float(np.polyfit(size, np.log([getattr(row, name) for row in upper]), 1)[0])
        for name in MEASURES
    }


def machine() -> dict[str, Any]:
    """Describe what the numbers were measured on, without naming it."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "device": jax.devices()[0].platform,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def cpu_model() -> str:
    """Return the processor's name as far as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def run(quick: bool, repetitions: int) -> dict[str, Any]:
    """Measure both series."""
    described = machine()  # first, because it notes the load before our own
    widths, batches = (WIDTHS[:3], BATCHES[:3]) if quick else (WIDTHS, BATCHES)
    series = {
        "parameters": [measure(width, BATCH, repetitions) for width in widths],
        "batch": [measure(WIDTH, batch, repetitions) for batch in batches],
    }
    return {
        "what": "One update of lktd, float32, MLP with 16 inputs and two equal hidden layers.",
        "quick": quick,
        "inner_iterations": INNER_ITERATIONS,
        "repetitions": repetitions,
        "machine": described,
        "series": {
            against: {
                "rows": [row._asdict() for row in rows],
                "exponents": exponents(rows, against),
            }
            for against, rows in series.items()
        },
    }


def show(result: dict[str, Any], console: Console) -> None:
    """Print a table of each series, with the exponents in its last line."""
    for against, series in result["series"].items():
        table = Table(title=f"One LKTD update against the {against}", show_footer=True)
        fit = series["exponents"]
        table.add_column("p", "exponent", justify="right")
        table.add_column("n", "", justify="right")
        table.add_column("median ms", f"{fit['seconds']:.2f}", justify="right")
        table.add_column("temporary MB", f"{fit['temporary_bytes']:.2f}", justify="right")
        table.add_column("peak MB", f"{fit['peak_bytes']:.2f}", justify="right")
        for row in series["rows"]:
            table.add_row(
                f"{row['parameters']:,}",
                f"{row['batch']:,}",
                f"{1e3 * row['seconds']:.2f}",
                f"{row['temporary_bytes'] / 1e6:.2f}",
                f"{row['peak_bytes'] / 1e6:.2f}",
            )
        console.print(table)


def draw(result: dict[str, Any], folder: Path) -> None:
    """Draw time and memory against size, with a line of slope one beside them."""
    import matplotlib as mpl  # noqa: PLC0415  an extra, needed for the picture only

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    labels = {"parameters": "parameters p (batch 32)", "batch": "batch n (p = 10,011)"}
    figure, axes = plt.subplots(2, 2, figsize=(9, 6.5), layout="constrained")
    for column, (against, series) in enumerate(result["series"].items()):
        rows, fit = series["rows"], series["exponents"]
        size = np.array([row[against] for row in rows], dtype=float)
        panels = [("seconds", 1e3, "ms an update"), ("temporary_bytes", 1e-6, "temporary MB")]
        for axis, (name, unit, label) in zip(axes[:, column], panels, strict=True):
            cost = unit * np.array([row[name] for row in rows])
            axis.loglog(size, cost, "o-", label=f"LKTD, exponent {fit[name]:.2f}")
            axis.loglog(size, cost[-1] * size / size[-1], "k:", label="linear")
            axis.set(xlabel=labels[against], ylabel=label)
            axis.grid(alpha=0.3)
            axis.legend()
    where = result["machine"]
    figure.suptitle(f"{where['cpu']}, {where['cores']} cores, JAX {where['jax']}", fontsize=9)
    for suffix in ("png", "svg"):
        figure.savefig(folder / f"growth.{suffix}", dpi=150)
    plt.close(figure)


def main() -> None:
    """Measure, print, and write growth.json and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the three smallest sizes only")
    parser.add_argument("--repetitions", type=int, default=15, help="timed updates a size (15)")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"), help="folder")
    arguments = parser.parse_args()
    if arguments.repetitions < 5:
        parser.error("a median needs at least 5 repetitions")
    result = run(arguments.quick, arguments.repetitions)
    show(result, Console())
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "growth.json").write_text(json.dumps(result, indent=2) + "\n")
    draw(result, arguments.out)


if __name__ == "__main__":
    main()
