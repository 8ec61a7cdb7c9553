"""The same bits everywhere: a run on Ray with a node killed, with its command killed, on submitit.

Two rows of the indoor escape run on this machine's own engine, and then

* on a Ray cluster of three nodes with a core each, whose processes are this machine's; one node is
  killed while all three compute;
* on the same cluster, where the command is killed and started again;
* as jobs of submitit's local executor, where the command is killed and started again.

Every file of tables, every record of progress and every map is compared byte for byte, but for the
columns that hold measured times. Each death comes when the units that it hits are past a quarter of
their steps.

Run ``python benchmarks/cluster.py``, with ``--quick`` for a fifth of the steps. It needs the
extras ``ray`` and ``slurm``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from common import arguments, machine, make_console, write_json, write_tables

RUN = "reproduce indoor-escape --rows lktd-10000,dqn --seeds 12 --no-timing"
SUBMITIT = ("--engine", "slurm", "--slurm", "cluster=local")
STEPS, QUICK_STEPS = 100_000, 20_000
TIMES = {"wall_seconds", "rate"}
"""Columns of tables and entries of records that hold measured times."""


class Run:
    """One run of the experiment in a folder of its own."""

    def __init__(self, folder: Path, steps: int, engine: tuple[str, ...] = ()) -> None:
        self.folder, self.steps = folder, steps
        script = Path(sys.executable).with_name("valuetrack")
        given = ("--steps", str(steps), "--out", str(folder), *engine)
        self.command = [str(script), *RUN.split(), *given]

    def start(self) -> subprocess.Popen[bytes]:
        """Start the command."""
        return subprocess.Popen(self.command, stdout=subprocess.DEVNULL)

    def begun(self) -> int:
        """Return how many units are past a quarter, and not finished."""
        found = 0
        for path in self.folder.glob("units/*/*/progress.jsonl"):
            *_, last = [b"", *path.read_bytes().splitlines()]
            steps = json.loads(last)["steps"] if last.endswith(b"}") else 0
            found += steps >= self.steps / 4 and not path.with_name("unit.json").exists()
        return found

    def finished(self) -> int:
        """Return how many units are finished."""
        return len(list(self.folder.glob("units/*/*/unit.json")))


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait for something that a command does."""
    while not is_so():
        if process.poll() is not None:
            sys.exit("The run ended before anything could be killed; give it more steps.")
        time.sleep(0.05)


def end(process: subprocess.Popen[bytes]) -> None:
    """Wait until a command has done its work."""
    if process.wait() != 0:
        sys.exit("A run failed; what it wrote above says why.")


@contextlib.contextmanager
def three_nodes() -> Iterator[Any]:
    """Start a Ray cluster of three nodes with a core each, on this machine."""
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - an extra

    small = {"num_cpus": 1, "object_store_memory": 100_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    try:
        yield cluster, [cluster.add_node(**small) for _ in range(2)]
    finally:
        cluster.shutdown()


def kill_a_node(run: Run, cluster: Any, node: Any) -> dict[str, Any]:
    """Kill a node while all three compute."""
    process = run.start()
    wait_until(lambda: run.begun() >= 3, process)
    finished = run.finished()
    cluster.remove_node(node, allow_graceful=False)
    end(process)
    return {"killed": "a node of three, while all computed", "units finished before": finished}


def kill_the_command(run: Run, least: int) -> dict[str, Any]:
    """Kill the command while units compute, and start it again."""
    process = run.start()
    wait_until(lambda: run.begun() >= least, process)
    finished = run.finished()
    process.send_signal(signal.SIGKILL)
    process.wait()
    end(run.start())
    return {"killed": "the command, then started again", "units finished before": finished}


def content(path: Path) -> Any:
    """Return what is in a file of a unit, without measured times."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import

    if path.suffix == ".parquet":
        table = pq.read_table(path)
        if not TIMES & set(table.column_names):
            return path.read_bytes()
        return table.drop_columns(sorted(TIMES & set(table.column_names))).to_pydict().__repr__()
    if path.suffix == ".jsonl":
        records = map(json.loads, path.read_text().splitlines())
        return [{k: v for k, v in record.items() if k not in TIMES} for record in records]
    if path.name == "unit.json":  # the checksums of the one table that has times, and of the file
        found = json.loads(path.read_text())
        tables = {name: digest for name, digest in found["tables"].items() if name != "seeds"}
        return {**found, "tables": tables, "wall_seconds": None, "digest": None}
    return path.read_bytes()


def compare(expected: Run, found: Run) -> dict[str, Any]:
    """Compare all files of all units."""
    files = [
        {
            str(path.relative_to(run.folder)): path
            for path in run.folder.glob("units/*/*/*")
            if not path.name.startswith(".")
        }
        for run in (expected, found)
    ]
    names = files[0].keys() | files[1].keys()
    differ = sorted(
        name
        for name in names
        if not (name in files[0] and name in files[1])
        or content(files[0][name]) != content(files[1][name])
    )
    return {"files": len(names), "differ": differ}


def show(result: dict[str, Any], console: Any) -> None:
    """Print what was killed, and what differs."""
    table = Table(title="Files of all units, compared with those of --engine local")
    for head in ("engine", "killed", "units finished before", "files", "differ"):
        table.add_column(head, justify="right" if head in ("files", "differ") else "left")
    for row in result["runs"]:
        numbers = (row["units finished before"], row["files"], len(row["differ"]))
        table.add_row(row["engine"], row["killed"], *map(str, numbers))
    console.print(table)


def main() -> None:
    """Run, kill, compare, print, and write cluster.json and cluster.md."""
    given = arguments(__doc__, add=lambda parser: parser.add_argument("--runs", type=Path))
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    root = given.runs or Path("runs/cluster")
    shutil.rmtree(root, ignore_errors=True)
    steps = QUICK_STEPS if given.quick else STEPS
    described = machine("ray", "submitit")
    local = Run(root / "local", steps)
    end(local.start())
    rows = []
    with three_nodes() as (cluster, nodes):
        engine = ("--engine", "ray", "--address", cluster.address)
        run = Run(root / "command", steps, engine)
        rows.append(("Ray, three nodes", run, kill_the_command(run, 2)))
        run = Run(root / "node", steps, engine)
        rows.append(("Ray, three nodes", run, kill_a_node(run, cluster, nodes[0])))
    run = Run(root / "submitit", steps, SUBMITIT)
    rows.append(("submitit, local executor", run, kill_the_command(run, 1)))
    result = {
        "what": "Whether runs on other engines, with deaths, have the files of the local engine.",
        "quick": given.quick,
        "machine": described,
        "command": f"valuetrack {RUN} --steps {steps}",
        "runs": [{"engine": name, **told, **compare(local, run)} for name, run, told in rows],
    }
    console = make_console()
    show(result, console)
    write_json(result, given.out, "cluster")
    write_tables(console, given.out, "cluster")
    if any(row["differ"] for row in result["runs"]):
        sys.exit("Some files differ; cluster.json names them.")


if __name__ == "__main__":
    main()
