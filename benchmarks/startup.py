"""Start-up: imports, help, and the time until a training has made its first update.

Every number is that of a fresh process; in each repetition all have their turn.

* Imports and help: wall time of the whole process, the interpreter's own start included.
  ``import valuetrack`` loads the classes when they are first asked for, so ``from valuetrack
  import LKTD``, which loads everything that a training needs, is measured as well.
* First update: from the construction of the agent, its import done, to the end of the first
  update. Without cache, everything is compiled; with it, JAX's persistent compilation cache has
  been filled by an earlier process. XLA's share is its compilation, or the reading of the results
  from the cache; most of the rest is tracing and lowering in Python, which no cache spares.

Run ``python benchmarks/startup.py``, with ``--quick`` to see only that it works.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from common import (
    arguments,
    draw_bars,
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

TRAININGS = {
    "indoor escape, LKTD": ("LKTD", "valuetrack/IndoorEscape-v0", {"hidden": [32, 32]}),
    "CartPole-v1, LKTD": ("LKTD", "CartPole-v1", {}),
    "CartPole-v1, DQN, stepped in Python": ("DQN", "CartPole-v1", {"backend": "host"}),
}
"""Name -> algorithm, environment, options."""

FIRST_UPDATE = """
import json, sys, time
import jax
import valuetrack

xla = []

def listen(event, seconds, **_):
    if "/compile/backend_compile" in event:
        xla.append(seconds)

jax.monitoring.register_event_duration_secs_listener(listen)
algorithm, env, options = json.loads(sys.argv[1])
options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
began = time.perf_counter()
agent = getattr(valuetrack, algorithm)(env, learning_starts=64, steps_per_update=4, **options)
agent.learn(64)
seconds = time.perf_counter() - began
assert agent.trainer.clock.updates == 1, agent.trainer.clock
print(json.dumps({"seconds": seconds, "xla": sum(xla)}))
"""


def environment(cache: Path | None) -> dict[str, str]:
    """Return the variables of a process with this compilation cache, or with none."""
    chosen = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    chosen["JAX_PLATFORMS"] = "cpu"
    if cache is None:
        return {**chosen, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    return {
        **chosen,
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def commands() -> dict[str, list[str]]:
    """Return what is run, by its name."""
    script = Path(sys.executable).with_name("valuetrack")
    found = str(script) if script.exists() else shutil.which("valuetrack")
    if found is None:
        sys.exit("The command valuetrack is not installed beside this Python.")
    return {
        "python, nothing imported": [sys.executable, "-c", "pass"],
        "import jax": [sys.executable, "-c", "import jax"],
        "import valuetrack": [sys.executable, "-c", "import valuetrack"],
        "from valuetrack import LKTD": [sys.executable, "-c", "from valuetrack import LKTD"],
        "valuetrack --help": [found, "--help"],
    }


def seconds_of(command: list[str]) -> float:
    """Return how long a command takes, from start to end."""
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment(None))
    return time.perf_counter() - began


def first_update(training: tuple[Any, ...], cache: Path | None) -> dict[str, float]:
    """Train in a fresh process until the first update; return the seconds and their parts."""
    command = [sys.executable, "-c", FIRST_UPDATE, json.dumps(training)]
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment(cache)
    )
    if ended.returncode:
        told = ended.stderr.strip().splitlines() or ["it said nothing"]
        sys.exit(f"The training's process failed: {told[-1]}.")
    answer: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return answer


def measure_commands(repetitions: int) -> dict[str, Any]:
    """Time imports and help."""
    wanted = commands()
    for command in wanted.values():
        seconds_of(command)  # files come into memory, bytecode is written
    seconds: dict[str, list[float]] = {name: [] for name in wanted}
    for _ in range(repetitions):
        for name, command in wanted.items():
            seconds[name].append(seconds_of(command))
    jax = seconds["import jax"]
    return {
        name: {"seconds": spread(values), "times_jax": ratio(values, jax)}
        for name, values in seconds.items()
    }


def measure_first_updates(trainings: dict[str, Any], repetitions: int) -> dict[str, Any]:
    """Time first updates, without the cache and with one that is filled."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {"without cache": None, "with cache": Path(folder)}
        for training in trainings.values():
            first_update(training, Path(folder))
        found: dict[str, Any] = {n: {kind: [] for kind in caches} for n in trainings}
        for _ in range(repetitions):
            for name, training in trainings.items():
                for kind, cache in caches.items():
                    found[name][kind].append(first_update(training, cache))
    parts = ("seconds", "xla")
    return {
        name: {
            kind: {part: spread([answer[part] for answer in answers]) for part in parts}
            for kind, answers in kinds.items()
        }
        for name, kinds in found.items()
    }


def show(result: dict[str, Any], console: Console) -> None:
    """Print both tables."""
    table = Table(title="Fresh processes, from start to end")
    for head in ("what", "seconds", "times import jax"):
        table.add_column(head, justify="left" if head == "what" else "right")
    for name, row in result["commands"].items():
        table.add_row(
            name, with_spread(row["seconds"], ".2f"), with_spread(row["times_jax"], ".2f")
        )
    console.print(table)
    table = Table(title="Seconds to the first update, imports done")
    for head in ("training", "cache", "to the first update", "of it XLA's"):
        table.add_column(head, justify="left" if head in ("training", "cache") else "right")
    for name, kinds in result["first_update"].items():
        for kind, row in kinds.items():
            numbers = (with_spread(row[part], ".2f") for part in ("seconds", "xla"))
            table.add_row(name, kind, *numbers)
    console.print(table)


def draw(result: dict[str, Any], folder: Path) -> None:
    """Draw both tables as bars."""
    drawn, axes = figure(1, 2, (12, 3.6))
    left, right = axes[0]
    rows = result["commands"]
    draw_bars(left, list(rows), [row["seconds"] for row in rows.values()], ".2f")
    left.set(xlabel="seconds", title="fresh process, start to end")
    labels, numbers, parts = [], [], []
    for name, kinds in result["first_update"].items():
        for kind, row in kinds.items():
            labels.append(f"{name},\n{kind}")
            numbers.append(row["seconds"])
            parts.append(row["xla"]["median"])
    draw_bars(right, labels, numbers, ".2f")
    right.barh(labels, parts, height=0.4, color="tab:orange", label="XLA's share")
    right.tick_params(axis="y", labelsize=8)
    right.set(xlabel="seconds", title="to the first update, imports done")
    right.legend()
    save_figure(drawn, result["machine"], folder, "startup")


def main() -> None:
    """Measure, print, and write startup.json and the figure."""
    given = arguments(__doc__)
    described = machine()
    trainings, repetitions = TRAININGS, given.repetitions
    if given.quick:
        trainings, repetitions = dict(list(TRAININGS.items())[:1]), 1
    result = {
        "what": "Seconds of fresh processes: imports, help, and the first update of a training.",
        "quick": given.quick,
        "machine": described,
        "repetitions": repetitions,
        "commands": measure_commands(repetitions),
        "first_update": measure_first_updates(trainings, repetitions),
    }
    console = make_console()
    show(result, console)
    write_json(result, given.out, "startup")
    write_tables(console, given.out, "startup")
    draw(result, given.out)


if __name__ == "__main__":
    main()
