"""Time per update of the convolutional network of Mnih et al. (2015), beside Stable-Baselines3.

LKTD with one gradient per update, DQN and SB3's DQN learn from batches of 64 images of 84 x 84 x 4
bytes, with the same network, replay memory and target network, each in a process of its own on one
core with one thread. Each takes one step in an environment of random images, then makes four
updates; the step is counted in. They take turns, and a ratio compares repetitions that are
neighbours. ``--base COMMIT`` also measures how this was at another commit, and on MinAtar's
Breakout (10 x 10 x 4, all compiled, convolutions of 3 x 3), which needs gymnax.

Run ``python benchmarks/images.py``, with ``--quick`` to see only that it works.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from rich.table import Table

from common import (
    Worker,
    arguments,
    cores,
    machine,
    make_console,
    ratio,
    spread,
    with_spread,
    write_json,
    write_tables,
)
from competitors import Competitor, Setting, job_of
from versions import source_of

SECONDS, QUICK_SECONDS = 3.0, 0.2
SB3 = "SB3 DQN"
OPTIONS = {
    "hidden": [512],
    "batch_size": 64,
    "steps_per_update": 1,
    "updates_per_cycle": 4,
    "replay_capacity": 1_000,
    "learning_starts": 100,
    "discount": 0.99,
    "learning_rate": 1e-4,
    "target_every": 1_000,
    "exploration_initial": 0.05,
    "exploration_final": 0.05,
}
OURS = (
    Competitor("LKTD, K = 1", "valuetrack", "LKTD", (SB3,), own={"inner_iterations": 1}),
    Competitor("DQN", "valuetrack", "DQN", (SB3,)),
)
ALONE = tuple(each._replace(rivals=()) for each in OURS)  # SB3 has no network for small images
NATURE = Setting("Pictures-v0", OPTIONS, {}, (*OURS, Competitor(SB3, "sb3", "DQN")))
MINATAR = Setting("gymnax/Breakout-MinAtar", {**OPTIONS, "hidden": [128]}, {}, ALONE)
SETTINGS = {"pictures": NATURE, "minatar": MINATAR}
TITLES = {"pictures": "84 x 84 x 4, batch 64", "minatar": "MinAtar's Breakout, batch 64"}
WARMUP_CYCLES = 2
"""Before the first measurement; a cycle of the version before can take many seconds."""


def measure(
    setting: Setting, base: Path | None, seconds: float, repetitions: int
) -> list[dict[str, Any]]:
    """Let all competitors train in turn, those of the other commit too; return a row for each."""
    own = [each for each in setting.competitors if each.library == "valuetrack"]
    entries = [(each.label, each, None) for each in setting.competitors]
    if base is not None:
        entries += [(f"{each.label}, before", each, base) for each in own]
    with ExitStack() as stack:
        workers = {
            label: stack.enter_context(
                closing(Worker(job_for(setting, each), core=cores()[-1], source=source))
            )
            for label, each, source in entries
        }
        times: dict[str, list[float]] = {label: [] for label in workers}
        for _ in range(repetitions):
            for label, worker in workers.items():
                steps = max(1, round(seconds / worker.ready["seconds_per_step"]))
                took = worker.ask({"train": [steps]})
                updates = took["steps"] * setting.options["updates_per_cycle"]
                times[label].append(1e3 * took["seconds"] / updates)
    return [row_of(label, times) for label in times]


def job_for(setting: Setting, competitor: Competitor) -> dict[str, Any]:
    """Return the first job of a competitor's process, which imports the environment."""
    own = {"module": "pictures", "warmup_cycles": WARMUP_CYCLES}
    return {**job_of(setting, competitor), **own}


def row_of(label: str, times: dict[str, list[float]]) -> dict[str, Any]:
    """Return a competitor's milliseconds, and its share of SB3's and of its own before."""
    rivals = [name for name in (SB3, f"{label}, before") if name in times and name != label]
    return {
        "competitor": label,
        "ms_per_update": spread(times[label]),
        "ratio_of_medians": {
            name: spread(times[label])["median"] / spread(times[name])["median"] for name in rivals
        },
        "ratio": {name: ratio(times[label], times[name]) for name in rivals},
    }


def table_of(title: str, rows: list[dict[str, Any]]) -> Table:
    """Return the table of a setting."""
    table = Table(title=f"{title}: milliseconds per update, one core")
    for head in ("competitor", "ms per update", "ratio of medians", "ratio of neighbours"):
        table.add_column(head, justify="left" if head == "competitor" else "right")
    for row in rows:
        medians = [f"{each:.2f} {name}" for name, each in row["ratio_of_medians"].items()]
        neighbours = [with_spread(each, ".2f") for each in row["ratio"].values()]
        table.add_row(
            row["competitor"],
            with_spread(row["ms_per_update"], ".1f"),
            "\n".join(medians),
            "\n".join(neighbours),
        )
    return table


def main() -> None:
    """Measure, print, and write images.json and its tables."""
    given = arguments(
        __doc__,
        add=lambda parser: (
            parser.add_argument("--base", help="a commit to compare with"),
            parser.add_argument("--only", choices=SETTINGS, help="one setting instead of all"),
        ),
    )
    if importlib.util.find_spec("stable_baselines3") is None:
        sys.exit("This benchmark needs Stable-Baselines3: pip install 'valuetrack[sb3]'.")
    described = machine("torch", "stable_baselines3")
    seconds, repetitions = (QUICK_SECONDS, 2) if given.quick else (SECONDS, given.repetitions)
    console, measured = make_console(), {}
    with tempfile.TemporaryDirectory() as folder:
        commit, source = source_of(given.base, Path(folder)) if given.base else (None, None)
        names = [given.only] if given.only else [*SETTINGS] if source else ["pictures"]
        for name in names:
            measured[name] = measure(SETTINGS[name], source, seconds, repetitions)
            console.print(table_of(TITLES[name], measured[name]))
    result = {
        "what": "Milliseconds per update of convolutional networks, one core and one thread.",
        "quick": given.quick,
        "machine": described,
        "repetitions": repetitions,
        "base": commit,
        "options": OPTIONS,
        "settings": measured,
    }
    write_json(result, given.out, "images")
    write_tables(console, given.out, "images")


if __name__ == "__main__":
    main()
