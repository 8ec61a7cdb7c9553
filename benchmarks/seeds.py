"""Many seeds: environment steps a second of all seeds together, and what one seed costs.

* ``indoor-escape``: LKTD with the reference settings (row ``lktd-10000``), cut into units of seeds
  as ``valuetrack reproduce`` cuts them, a pinned process with one thread for each core. A core
  with several units trains them one after the other. Metrics are not computed.
* ``cartpole``: ``vt.LKTD("CartPole-v1", seeds=n)`` with the paper's settings, in one process that
  may use all cores.

In every repetition each number of seeds has its turn, for about the same time. A seed's cost is
the time of all divided by the steps of all: it should fall as the seeds become more, never rise.

Run ``python benchmarks/seeds.py``, with ``--quick`` to see only that it works.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from common import (
    Worker,
    arguments,
    cores,
    figure,
    machine,
    make_console,
    save_figure,
    spread,
    with_spread,
    write_json,
    write_tables,
)

SEEDS, QUICK_SEEDS = (1, 2, 8, 32, 100), (1, 2)
SECONDS, QUICK_SECONDS = 3.0, 0.3
ROW = "lktd-10000"
FIRST_STEPS = 100
SHORTEST = 0.2
"""Seconds that a warm-up must last before its speed is believed."""
Measured = list[dict[str, Any]]


def units_of_cores(seeds: int, processes: int) -> list[list[int]]:
    """Return the sizes of the units that each core trains, as ``valuetrack reproduce`` has it."""
    from valuetrack.experiments.run import split_seeds  # noqa: PLC0415 - imports JAX
    from valuetrack.experiments.spec import load  # noqa: PLC0415

    most = load("indoor-escape").seeds_per_unit
    sizes = [size for _, size in split_seeds(0, seeds, most)]
    return [sizes[index::processes] for index in range(processes)]


def row(seeds: int, speeds: list[float]) -> dict[str, Any]:
    """Return the numbers of one number of seeds."""
    costs = [1e6 / speed for speed in speeds]
    return {"seeds": seeds, "steps_per_second": spread(speeds), "us_a_step": spread(costs)}


def together(workers: list[Worker], shares: list[list[int]], steps: int) -> tuple[int, float]:
    """Let all workers train their units at the same time; return all steps and the seconds."""
    busy = [(worker, sizes) for worker, sizes in zip(workers, shares, strict=True) if sizes]
    for worker, sizes in busy:
        worker.tell({"train": [steps, sizes]})
    answers = [worker.answer() for worker, _ in busy]
    return sum(a["steps"] for a in answers), max(a["seconds"] for a in answers)


def enough(workers: list[Worker], shares: list[list[int]], seconds: float) -> int:
    """Compile and warm up; return how many steps of each seed last about so many seconds."""
    steps = FIRST_STEPS
    together(workers, shares, steps)
    while (took := together(workers, shares, steps)[1]) < SHORTEST:
        steps *= 2
    return max(FIRST_STEPS, round(steps * seconds / took))


def measure_escape(counts: tuple[int, ...], seconds: float, repetitions: int) -> Measured:
    """Measure the units of an experiment, spread over the cores."""
    speeds: dict[int, list[float]] = {count: [] for count in counts}
    with ExitStack() as stack:
        job = {"library": "reproduce", "algorithm": ROW}
        workers = [stack.enter_context(closing(Worker(job, core=core))) for core in cores()]
        shares = {count: units_of_cores(count, len(workers)) for count in counts}
        steps = {count: enough(workers, shares[count], seconds) for count in counts}
        for _ in range(repetitions):
            for count in counts:
                done, took = together(workers, shares[count], steps[count])
                speeds[count].append(done / took)
    return [row(count, speeds[count]) for count in counts]


def measure_cartpole(counts: tuple[int, ...], seconds: float, repetitions: int) -> Measured:
    """Measure agents with so many seeds, each in a process of its own, in turn."""
    from valuetrack.experiments.spec import load  # noqa: PLC0415 - imports JAX

    chosen = load("classic-control").row("cartpole-lktd")
    job = {"library": "valuetrack", "algorithm": "LKTD", "env": chosen.env}
    job["options"] = {**chosen.options, "hidden": list(chosen.options["hidden"])}
    speeds: dict[int, list[float]] = {count: [] for count in counts}
    with ExitStack() as stack:
        workers = {c: stack.enter_context(closing(Worker({**job, "seeds": c}))) for c in counts}
        for _ in range(repetitions):
            for count, worker in workers.items():
                steps = max(1, round(seconds / worker.ready["seconds_per_step"]))
                took = worker.ask({"train": [steps]})
                speeds[count].append(took["steps"] / took["seconds"])
    return [row(count, speeds[count]) for count in counts]


def show(result: dict[str, Any], console: Console) -> None:
    """Print a table for each task."""
    for name, rows in result["tasks"].items():
        table = Table(title=f"LKTD on {name}: {result['how'][name]}")
        for head in ("seeds", "steps/s, all seeds", "us a seed and step", "cost beside one seed's"):
            table.add_column(head, justify="right")
        alone = rows[0]["us_a_step"]["median"]
        for each in rows:
            table.add_row(
                f"{each['seeds']}",
                with_spread(each["steps_per_second"]),
                with_spread(each["us_a_step"], ".1f"),
                f"{each['us_a_step']['median'] / alone:.2f}",
            )
        console.print(table)


def draw(result: dict[str, Any], folder: Path) -> None:
    """Draw what a seed costs against how many there are."""
    drawn, axes = figure(1, len(result["tasks"]), (9, 3.8))
    for axis, (name, rows) in zip(axes[0], result["tasks"].items(), strict=True):
        counts = [each["seeds"] for each in rows]
        costs = [each["us_a_step"] for each in rows]
        medians = [cost["median"] for cost in costs]
        below = [cost["median"] - cost["low"] for cost in costs]
        above = [cost["high"] - cost["median"] for cost in costs]
        axis.errorbar(counts, medians, [below, above], fmt="o-", capsize=3)
        axis.set(xscale="log", xlabel="seeds", ylabel="us a seed and step", ylim=(0, None))
        axis.set_title(f"LKTD, {name}\n{result['how'][name]}", fontsize=10)
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    save_figure(drawn, result["machine"], folder, "seeds")


def main() -> None:
    """Measure, print, and write seeds.json and the figure."""
    given = arguments(__doc__)
    described = machine()
    counts, seconds, repetitions = SEEDS, SECONDS, given.repetitions
    if given.quick:
        counts, seconds, repetitions = QUICK_SEEDS, QUICK_SECONDS, 2
    number = len(cores())
    result = {
        "what": "Environment steps a second of all seeds together, learning included.",
        "quick": given.quick,
        "machine": described,
        "repetitions": repetitions,
        "seconds_each": seconds,
        "how": {
            "indoor-escape": f"{number} processes, a core and a thread each",
            "cartpole": f"one process, {number} cores",
        },
        "tasks": {
            "indoor-escape": measure_escape(counts, seconds, repetitions),
            "cartpole": measure_cartpole(counts, seconds, repetitions),
        },
    }
    console = make_console()
    show(result, console)
    write_json(result, given.out, "seeds")
    write_tables(console, given.out, "seeds")
    draw(result, given.out)


if __name__ == "__main__":
    main()
