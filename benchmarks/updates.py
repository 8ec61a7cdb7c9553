"""Time per update: the paper's table of computation costs, beside the paper's own figures.

Seven algorithms, two networks and two batch sizes on indoor escape, with the settings of the
paper's tables (preset ``reference``). One seed in one process on one core with one thread; the
algorithms of a configuration take turns, and medians are shown. The paper's were measured by its
authors on another machine, with four cores.

Run ``python benchmarks/updates.py``, with ``--quick`` to see only that it works.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from common import (
    arguments,
    figure,
    machine,
    make_console,
    save_figure,
    with_spread,
    write_json,
    write_tables,
)

PRESET = "reference"


def measure(
    repetitions: int, quick: bool, *, advance: Callable[[], None] = lambda: None
) -> list[dict[str, Any]]:
    """Time all updates; meant for a process of its own."""
    from valuetrack.experiments import timing  # noqa: PLC0415 - in the measuring process
    from valuetrack.experiments.spec import load  # noqa: PLC0415

    spec = load("indoor-escape", preset=PRESET)
    timing.REPETITIONS = repetitions
    if quick:
        timing.CONFIGURATIONS = timing.CONFIGURATIONS[:1]
        timing.SECONDS_PER_REPETITION = 0.01
        spec = spec.model_copy(update={"rows": (spec.row("lktd-10000"), spec.row("dqn"))})
    return timing.time_updates(spec, advance=advance)


def beside_paper(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the paper's milliseconds to each row, where it has them."""
    from valuetrack.report.indoor_escape import paper  # noqa: PLC0415 - imports JAX

    known = paper.compute_time()
    completed = []
    for row in rows:
        theirs = known.get((row["algorithm"], tuple(row["hidden"]), row["batch_size"]))
        found = {"paper_ms_per_update": None, "paper_ms_per_iteration": None, "times_faster": None}
        if theirs is not None:
            found = {
                "paper_ms_per_update": theirs.ms_per_update,
                "paper_ms_per_iteration": theirs.ms_per_iteration,
                "times_faster": theirs.ms_per_update / row["ms_per_update"],
            }
        completed.append({**row, **found})
    return completed


def configurations(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Group the rows by network and batch."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        widths = ", ".join(map(str, row["hidden"]))
        groups.setdefault(f"[{widths}], batch {row['batch_size']}", []).append(row)
    return groups


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """Print a table for each configuration."""
    from valuetrack.registry import label_of  # noqa: PLC0415 - imports JAX

    for name, group in configurations(rows).items():
        table = Table(title=f"Milliseconds an update, {name}")
        heads = ("algorithm", "ms an update", "ms an iteration", "paper, update", "paper / ours")
        for head in heads:
            table.add_column(head, justify="left" if head == "algorithm" else "right")
        for row in group:
            numbers = {"median": row["ms_per_update"], "low": row["low"], "high": row["high"]}
            known = row["paper_ms_per_update"] is not None
            table.add_row(
                label_of(row["algorithm"]),
                with_spread(numbers, ".3f"),
                f"{row['ms_per_iteration']:.3f}",
                f"{row['paper_ms_per_update']:.2f}" if known else "",
                f"{row['times_faster']:.0f}" if known else "",
            )
        console.print(table)


def draw(result: dict[str, Any], folder: Path) -> None:
    """Draw ours and the paper's side by side, a panel for each configuration."""
    from valuetrack.registry import label_of  # noqa: PLC0415 - imports JAX

    groups = configurations(result["rows"])
    drawn, axes = figure(1, len(groups), (1.5 + 3.2 * len(groups), 3.8))
    for axis, (name, group) in zip(axes[0], groups.items(), strict=True):
        places = range(len(group))
        theirs = [row["paper_ms_per_update"] or math.nan for row in group]
        axis.plot(theirs, places, "s", color="0.6", label="paper")
        axis.plot([row["ms_per_update"] for row in group], places, "o", label="here")
        axis.hlines(places, [row["low"] for row in group], [row["high"] for row in group])
        axis.set_yticks(places, [label_of(row["algorithm"]) for row in group])
        axis.invert_yaxis()
        axis.set(xscale="log", xlabel="ms an update", title=name)
        axis.tick_params(axis="x", which="minor", labelbottom=False)
        axis.grid(alpha=0.3)
    axes[0, 0].legend()
    save_figure(drawn, result["machine"], folder, "updates")


def main() -> None:
    """Measure, print, and write updates.json and the figure."""
    given = arguments(__doc__)
    described = machine()
    from valuetrack.experiments.engines.local import call_in_process  # noqa: PLC0415 - imports JAX

    repetitions = 2 if given.quick else given.repetitions
    rows = call_in_process(measure, repetitions, given.quick, advance=lambda: None)
    result = {
        "what": "Milliseconds an update of one seed, one process, one core, one thread.",
        "quick": given.quick,
        "machine": described,
        "preset": PRESET,
        "repetitions": repetitions,
        "rows": beside_paper(rows),
    }
    console = make_console()
    show(result["rows"], console)
    write_json(result, given.out, "updates")
    write_tables(console, given.out, "updates")
    draw(result, given.out)


if __name__ == "__main__":
    main()
