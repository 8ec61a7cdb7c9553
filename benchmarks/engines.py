"""What Ray costs: the same units by ``--engine local`` and ``--engine ray``, one worker, one core.

LKTD on the indoor escape, in units of about a minute. Both engines run on the same single core, the
one that is allowed last, in turns. Two numbers are measured of each run, from its start to its end:

* the time on the clock, which what else the machine does makes longer for both;
* the processor time of all its processes, Ray's own ones included, which is what a run costs.

Ray runs its workers at a lower priority (``nice`` 15), and would wait for others on a busy machine;
here they have the usual one. What a start costs is measured by itself, with a run of hardly any
steps: it is paid once per run, and not per unit.

Run ``taskset -c 1 python benchmarks/engines.py``, with ``--quick`` for shorter units. It needs the
extra ``ray``.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.table import Table

from common import arguments, cores, machine, make_console, write_json, write_tables

RUN = "reproduce indoor-escape --rows lktd-10000 --no-timing"
KINDS = ("processor", "clock")
ENGINES = {"local": (), "ray": ("--engine", "ray")}
LEAST_STEPS, QUICK_STEPS = 10_000, 100_000
POLL_SECONDS = 0.25
TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(root: int) -> dict[int, float]:
    """Return the processor time so far of a process and of all that descend from it."""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            numbers = path.read_text().rpartition(")")[2].split()
            number = int(path.parent.name)
            parents[number], used[number] = int(numbers[1]), sum(map(int, numbers[11:13])) / TICKS
    family = {root}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return {number: used[number] for number in family & used.keys()}


def run(engine: str, folder: Path, steps: int, seeds: int) -> dict[str, Any]:
    """Run the experiment; return the seconds on the clock, and those of the processor."""
    script = Path(sys.executable).with_name("valuetrack")
    given = ("--steps", str(steps), "--seeds", str(seeds), "--out", str(folder))
    command = [str(script), *RUN.split(), *given, *ENGINES[engine]]
    used = dict[int, float]()
    variables = {**os.environ, "RAY_worker_niceness": "0"}
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=variables)
    while process.poll() is None:
        used |= processor_seconds(process.pid)
        time.sleep(POLL_SECONDS)
    if process.returncode:
        sys.exit("A run failed; what it wrote above says why.")
    return {"clock": time.perf_counter() - began, "processor": sum(used.values())}


def measure(steps: int, seeds: int, pairs: int) -> dict[str, Any]:
    """Run both engines in turns."""
    found: dict[str, Any] = {engine: [] for engine in ENGINES}
    for _ in range(pairs):
        for engine, runs in found.items():
            with tempfile.TemporaryDirectory() as folder:
                runs.append(run(engine, Path(folder) / "run", steps, seeds))
            print(engine, steps, runs[-1], flush=True)
    return found


def overheads(found: dict[str, Any]) -> dict[str, list[float]]:
    """Return how much longer Ray took than the engine of this machine, in each pair."""
    return {
        kind: [
            ray[kind] / local[kind] - 1
            for local, ray in zip(found["local"], found["ray"], strict=True)
        ]
        for kind in KINDS
    }


def without_start(result: dict[str, Any]) -> dict[str, Any]:
    """Return the runs of units less the median of those of hardly any steps."""
    fixed = {
        engine: {kind: statistics.median(run[kind] for run in runs) for kind in KINDS}
        for engine, runs in result["start"]["runs"].items()
    }
    runs = {
        engine: [{kind: run[kind] - fixed[engine][kind] for kind in KINDS} for run in runs]
        for engine, runs in result["units"]["runs"].items()
    }
    return {"runs": runs, "overhead": overheads(runs)}


def show(result: dict[str, Any], console: Any) -> None:
    """Print the medians of both engines, and what Ray adds."""
    table = Table(title=result["title"])
    for head in ("a run", "seconds", "local", "ray", "ray takes more by", "pairs"):
        table.add_column(head, justify="left" if head in ("a run", "seconds") else "right")
    parts = {
        "of hardly any steps": result["start"],
        "of units": result["units"],
        "of units, less the one before": without_start(result),
    }
    for what, part in parts.items():
        for kind in KINDS:
            local, ray = (
                statistics.median(run[kind] for run in part["runs"][engine]) for engine in ENGINES
            )
            shares = part["overhead"][kind]
            spread = f" ({min(shares):.1%} to {max(shares):.1%})" if len(shares) > 1 else ""
            more = f"{ray - local:.1f} s, {statistics.median(shares):.1%}{spread}"
            table.add_row(what, kind, f"{local:.1f}", f"{ray:.1f}", more, str(len(shares)))
    console.print(table)


def main() -> None:
    """Measure, print, and write engines.json and engines.md."""

    def add(parser: Any) -> None:
        parser.add_argument("--pairs", type=int, default=3)
        parser.add_argument("--steps", type=int, default=500_000, help="of each seed")
        parser.add_argument("--seeds", type=int, default=20, help="ten to a unit")

    given = arguments(__doc__, add=add)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cores()[-1]})
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    described = machine("ray")
    steps, pairs = (QUICK_STEPS, 1) if given.quick else (given.steps, given.pairs)
    measure(LEAST_STEPS, 1, 1)  # compiles, and brings files into memory
    parts = {}
    for what, numbers in {"start": (LEAST_STEPS, 1), "units": (steps, given.seeds)}.items():
        found = measure(*numbers, pairs)
        parts[what] = {"runs": found, "overhead": overheads(found)}
    units = -(-given.seeds // 10)
    result = {
        "what": "What the Ray engine costs, compared with the local one, on one core.",
        "title": f"Units of a minute on one core: {units}",
        "quick": given.quick,
        "machine": described,
        "command": f"valuetrack {RUN} --steps {steps} --seeds {given.seeds}",
        **parts,
    }
    console = make_console()
    show(result, console)
    write_json(result, given.out, "engines")
    write_tables(console, given.out, "engines")


if __name__ == "__main__":
    main()
