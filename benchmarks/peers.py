"""Training throughput beside other libraries: environment steps a second, learning included.

Three settings, in each of which all competitors have the same network, batch, replay memory,
cadence, discount and target network:

* ``indoor-escape``: 32-32, batch 100, an update every 10 steps. Stable-Baselines3 cannot mask
  actions, so it gets the environment with masking off (a blocked move costs a step);
* ``cartpole``: 256-256, batch 64, an update every 4 steps, 200 quantiles for QR-DQN;
* ``lunarlander``: DQN with the settings of ``experiments/classic_control.toml``.

A competitor is a process of its own in one environment with all libraries, made on the first run
in ``benchmarks/.venv``. It compiles and warms up until it learns; then, in every repetition, the
competitors train in turn for about the same time, while the others wait. Exploration is at its
final rate throughout. ``one core`` keeps each process on one core with one thread; ``all cores``
leaves cores and threads to the libraries. ``K`` is LKTD's iterations, that is gradients, an update.
Many seeds are counted together. "Environment alone" is how fast the peers' environment, stepped
in Python, goes without any agent; valuetrack has its own in JAX but where "stepped in Python" is
said, and for LunarLander.

Run ``python benchmarks/peers.py``, with ``--quick`` to see only that it works.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from common import (
    HERE,
    Worker,
    arguments,
    cores,
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
from competitors import Setting, job_of, settings

ENVIRONMENT = HERE / ".venv"
TORCH = "torch==2.13.0"
PACKAGES = ("stable-baselines3", "sb3-contrib", "sbx-rl", "gymnasium[box2d]")
SECONDS, QUICK_SECONDS = 3.0, 0.2
PLACES = ("one core", "all cores")


def make_environment(folder: Path = ENVIRONMENT) -> str:
    """Return the interpreter of the peers' environment, which is made if it is not there."""
    python, stamp = folder / "bin" / "python", folder / "complete"
    wanted = " ".join((TORCH, *PACKAGES))
    if stamp.exists() and stamp.read_text() == wanted:
        return str(python)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    steps = [
        [sys.executable, "-m", "venv", str(folder)],
        [*install, TORCH],  # first, so that nothing else chooses a larger one
        [*install, TORCH, *PACKAGES, "--editable", str(HERE.parent)],
    ]
    print(f"Making the peers' environment in {folder.relative_to(HERE.parent)} ...", flush=True)
    with tempfile.TemporaryFile("w+") as log:
        for command in steps:
            try:
                subprocess.run(command, check=True, stdout=log, stderr=log)
            except subprocess.CalledProcessError:
                log.seek(0)
                told = [line for line in log.read().splitlines() if line.startswith("ERROR")]
                why = told[-1].removeprefix("ERROR: ") if told else "pip failed"
                sys.exit(f"The peers cannot be installed from the package index: {why}.")
    stamp.write_text(wanted)
    return str(python)


def measure(
    setting: Setting, place: str, python: str, seconds: float, repetitions: int
) -> list[dict[str, Any]]:
    """Let all competitors of a setting train in turn; return a row for each."""
    core = cores()[-1] if place == "one core" else None
    speeds: list[list[float]] = [[] for _ in setting.competitors]
    with ExitStack() as stack:
        workers = [
            stack.enter_context(closing(Worker(job_of(setting, each), python=python, core=core)))
            for each in setting.competitors
        ]
        steps = [max(1, round(seconds / w.ready["seconds_per_step"])) for w in workers]
        for _ in range(repetitions):
            for worker, count, found in zip(workers, steps, speeds, strict=True):
                took = worker.ask({"train": [count]})
                found.append(took["steps"] / took["seconds"])
        answers = [worker.ready for worker in workers]
    by_label = dict(zip((c.label for c in setting.competitors), speeds, strict=True))
    return [
        {
            "competitor": competitor.label,
            "library": competitor.library,
            "seeds": competitor.seeds,
            "steps_per_second": spread(speed),
            "times": {name: ratio(speed, by_label[name]) for name in competitor.rivals},
            "environment_alone": answer.get("environment_steps_per_second"),
            "versions": answer["versions"],
        }
        for competitor, speed, answer in zip(setting.competitors, speeds, answers, strict=True)
    ]


def show(name: str, place: str, rows: list[dict[str, Any]], console: Console) -> None:
    """Print the table of a setting."""
    table = Table(title=f"{name}, {place} for each: environment steps a second, all seeds")
    for head in ("competitor", "steps/s", "times the peer's", "environment alone"):
        table.add_column(head, justify="left" if head == "competitor" else "right")
    for row in rows:
        times = [f"{with_spread(each, '.1f')} {who}" for who, each in row["times"].items()]
        alone = row["environment_alone"]
        speed = with_spread(row["steps_per_second"])
        label = row["competitor"]
        if row["library"] == "valuetrack":
            label = f"[bold]{label}[/bold]"
        table.add_row(label, speed, "\n".join(times), f"{alone:,.0f}" if alone else "")
    console.print(table)


def draw(result: dict[str, Any], folder: Path) -> None:
    """Draw the speeds as bars, a row of panels for each setting."""
    names = list(result["settings"])
    places = list(result["settings"][names[0]])
    heights = [2 + len(result["settings"][name][places[0]]) for name in names]
    size = (6.5 * len(places), 0.32 * sum(heights))
    drawn, axes = figure(len(names), len(places), size, height_ratios=heights)
    for line, name in enumerate(names):
        for column, place in enumerate(places):
            rows, axis = result["settings"][name][place], axes[line, column]
            numbers = [row["steps_per_second"] for row in rows]
            bars = draw_bars(axis, [row["competitor"] for row in rows], numbers, ",.0f")
            for bar, row in zip(bars, rows, strict=True):
                bar.set_color("tab:blue" if row["library"] == "valuetrack" else "0.6")
            axis.tick_params(axis="y", labelsize=8)
            axis.set_title(f"{name}, {place}: steps a second", fontsize=10)
    save_figure(drawn, result["machine"], folder, "peers")


def main() -> None:
    """Measure, print, and write peers.json and the figure."""
    known = settings()
    given = arguments(
        __doc__,
        add=lambda parser: (
            parser.add_argument("--only", choices=known, help="one setting instead of all"),
            parser.add_argument("--place", choices=PLACES, help="one of the two instead of both"),
        ),
    )
    described = machine()
    python = make_environment()
    seconds, repetitions = SECONDS, given.repetitions
    places = (given.place,) if given.place else PLACES
    if given.quick:
        seconds, repetitions, places = QUICK_SECONDS, 2, places[:1]
    console, measured = make_console(), {}
    for name in [given.only] if given.only else known:
        measured[name] = {}
        for place in places:
            rows = measure(known[name], place, python, seconds, repetitions)
            measured[name][place] = rows
            show(name, place, rows, console)
    result = {
        "what": "Environment steps a second over all seeds, learning included.",
        "quick": given.quick,
        "machine": described,
        "repetitions": repetitions,
        "seconds_each": seconds,
        "threads": {"one core": "one core, one thread", "all cores": "the libraries' own choice"},
        "options": {name: known[name].options for name in measured},
        "settings": measured,
    }
    write_json(result, given.out, "peers")
    write_tables(console, given.out, "peers")
    draw(result, given.out)


if __name__ == "__main__":
    main()
