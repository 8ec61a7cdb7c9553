"""Training throughput of this checkout beside that of another commit.

Both versions train the same agents in turn, as the competitors of ``peers.py`` do: those of
valuetrack in the three settings, with the same network, batch, replay memory and cadence. The other
version's source comes from git; everything else is the environment that runs this file. A ratio
above 1 says that this checkout is faster.

Run ``python benchmarks/versions.py --base COMMIT``, with ``--quick`` to see only that it works.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from contextlib import ExitStack, closing
from io import BytesIO
from pathlib import Path
from typing import Any

from rich.table import Table

from common import (
    HERE,
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
from competitors import job_of, settings

SECONDS, QUICK_SECONDS = 2.0, 0.2


def source_of(commit: str, folder: Path) -> tuple[str, Path]:
    """Return the full name of a commit, and its source, unpacked into a folder."""

    def git(*words: str) -> bytes:
        done = subprocess.run(
            ["git", "-C", str(HERE.parent), *words], check=False, capture_output=True
        )
        if done.returncode:
            sys.exit(f"git {words[0]} {commit}: {done.stderr.decode().strip()}")
        return done.stdout

    name = git("rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()
    archive = git("archive", name, "src", "experiments")
    with tarfile.open(fileobj=BytesIO(archive)) as packed:
        packed.extractall(folder, filter="data")
    return name, folder / "src"


def measure(base: Path, seconds: float, repetitions: int, only: list[str]) -> list[dict[str, Any]]:
    """Let both versions of every agent train in turn; return a row for each agent."""
    rows = []
    for name, setting in settings().items():
        for competitor in setting.competitors:
            title = f"{name}, {competitor.label}"
            wanted = not only or any(word in title for word in only)
            if competitor.library != "valuetrack" or not wanted:
                continue
            core = cores()[-1] if competitor.seeds == 1 else None
            job = job_of(setting, competitor)
            with ExitStack() as stack:
                now, before = (
                    stack.enter_context(closing(Worker(job, core=core, source=source)))
                    for source in (None, base)
                )
                steps = max(1, round(seconds / now.ready["seconds_per_step"]))
                speeds: tuple[list[float], list[float]] = ([], [])
                for _ in range(repetitions):
                    for worker, found in zip((now, before), speeds, strict=True):
                        took = worker.ask({"train": [steps]})
                        found.append(took["steps"] / took["seconds"])
            rows.append(
                {
                    "setting": name,
                    "agent": competitor.label,
                    "place": "all cores" if core is None else "one core",
                    "steps_per_second": spread(speeds[0]),
                    "before": spread(speeds[1]),
                    "ratio": ratio(*speeds),
                }
            )
            print(f"{title}: {with_spread(rows[-1]['ratio'], '.2f')}", flush=True)
    return rows


def main() -> None:
    """Measure, print, and write versions.json and its table."""
    given = arguments(
        __doc__,
        add=lambda parser: (
            parser.add_argument("--base", required=True, help="the commit to compare with"),
            parser.add_argument(
                "--only", nargs="*", default=[], help="those whose names hold one of these"
            ),
        ),
    )
    described = machine()
    seconds, repetitions = SECONDS, given.repetitions
    if given.quick:
        seconds, repetitions = QUICK_SECONDS, 2
    with tempfile.TemporaryDirectory() as folder:
        commit, source = source_of(given.base, Path(folder))
        rows = measure(source, seconds, repetitions, given.only)
    console = make_console()
    table = Table(title=f"Environment steps per second, this checkout beside {commit[:7]}")
    for head in ("setting", "agent", "where", "steps/s", "before", "ratio"):
        table.add_column(
            head, justify="right" if head in {"steps/s", "before", "ratio"} else "left"
        )
    for row in rows:
        table.add_row(
            row["setting"],
            row["agent"],
            row["place"],
            with_spread(row["steps_per_second"]),
            with_spread(row["before"]),
            with_spread(row["ratio"], ".2f"),
        )
    console.print(table)
    result = {
        "what": "Environment steps per second of two versions, trained in turn.",
        "quick": given.quick,
        "machine": described,
        "repetitions": repetitions,
        "base": commit,
        "rows": rows,
    }
    write_json(result, given.out, "versions")
    write_tables(console, given.out, "versions")


if __name__ == "__main__":
    main()
