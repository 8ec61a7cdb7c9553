"""What the benchmarks share: medians with their spread, the machine, worker processes, files."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

HERE = Path(__file__).resolve().parent
LEAST_REPETITIONS = 5
SINGLE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""What keeps XLA, PyTorch and NumPy to one thread each."""


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median of repetitions, with the lowest and the highest."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Return the spread of ours / theirs, each repetition held against the one beside it."""
    return spread([a / b for a, b in zip(ours, theirs, strict=True)])


def with_spread(numbers: dict[str, float], form: str = ",.0f") -> str:
    """Write a median and, in brackets, its range."""
    return f"{numbers['median']:{form}} ({numbers['low']:{form}} to {numbers['high']:{form}})"


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Fit cost = c * size^exponent to the upper half of the sizes (at least two)."""
    import numpy as np  # noqa: PLC0415 - what measures imports needs none

    first = min(len(sizes) // 2, len(sizes) - 2)
    return float(np.polyfit(np.log(sizes[first:]), np.log(costs[first:]), 1)[0])


def cores() -> list[int]:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def agent_of_row(experiment: str, row: str, seeds: int = 1) -> Any:
    """Return the agent of a row of an experiment, as ``valuetrack reproduce`` trains it."""
    from valuetrack.experiments.spec import load  # noqa: PLC0415 - imports JAX
    from valuetrack.registry import agent_type  # noqa: PLC0415

    chosen = load(experiment).row(row)
    options = {"samples": 1, **chosen.options}  # a measure has its own pool, of values
    kind = agent_type(chosen.algorithm)
    return kind(chosen.env, env_options=chosen.env_options, seeds=seeds, **options)


def machine(*packages: str) -> dict[str, Any]:
    """Describe what the numbers are measured on, without naming it; call it before measuring."""
    return {
        "cpu": cpu_model(),
        "cores": len(cores()),
        "system": platform.system(),
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "versions": versions("valuetrack", "jax", "jaxlib", "numpy", *packages),
    }


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of installed packages."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def cpu_model() -> str:
    """Return the processor's name as far as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


class Worker:
    """A process that answers jobs, one line of JSON each.

    Parameters
    ----------
    job
        Its first one, which says what it is to prepare; the answer is kept as ``ready``.
    python
        The interpreter, and with it the environment, in which it runs.
    core
        The one core it is kept on, with one thread; ``None`` for all cores and the libraries'
        own choice of threads.
    source
        A folder with another version of valuetrack, which is then used instead of the installed
        one.
    """

    def __init__(
        self,
        job: dict[str, Any],
        *,
        python: str = sys.executable,
        core: int | None = None,
        source: Path | None = None,
    ) -> None:
        single = {} if core is None else SINGLE_THREAD
        if source is not None:
            single = {**single, "PYTHONPATH": str(source)}
        self.process = subprocess.Popen(
            [python, str(HERE / "worker.py")],
            env={**os.environ, "JAX_PLATFORMS": "cpu", **single},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self.ready = self.ask({**job, "core": core})
        except BaseException:
            self.close()
            raise

    def tell(self, job: dict[str, Any]) -> None:
        """Send a job; :meth:`answer` waits for its end."""
        try:
            print(json.dumps(job), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            sys.exit("A worker process ended early; what it wrote above says why.")

    def answer(self) -> dict[str, Any]:
        """Return the answer to the job sent last."""
        line = self.process.stdout.readline()
        if not line:
            sys.exit("A worker process ended early; what it wrote above says why.")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            sys.exit(answer["error"])
        return answer

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """Send a job and wait for its answer."""
        self.tell(job)
        return self.answer()

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()


def arguments(
    description: str, *, repetitions: int = 7, add: Callable[[Any], Any] = lambda parser: None
) -> argparse.Namespace:
    """Read the options that all benchmarks have: --quick, --repetitions, --out."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only see that it works")
    parser.add_argument(
        "--repetitions",
        type=int,
        default=repetitions,
        help=f"of each measurement, at least {LEAST_REPETITIONS} (%(default)s)",
    )
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"), help="folder")
    add(parser)
    given = parser.parse_args()
    if given.repetitions < LEAST_REPETITIONS:
        parser.error(f"a median needs at least {LEAST_REPETITIONS} repetitions")
    return given


class TableConsole(Console):
    """A console that remembers the tables printed on it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.tables: list[Table] = []

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, and remember what is a table."""
        self.tables += [each for each in objects if isinstance(each, Table)]
        super().print(*objects, **options)


def make_console() -> TableConsole:
    """Return the console for tables; a file or a pipe gets lines wide enough for them."""
    return TableConsole() if sys.stdout.isatty() else TableConsole(width=120)


def markdown(table: Table) -> str:
    """Write a table as Markdown, its title above it."""

    def plain(cell: Any) -> str:
        return Text.from_markup(str(cell)).plain.replace("|", "\\|").replace("\n", "<br>")

    columns = table.columns
    lines = [
        [plain(column.header) for column in columns],
        ["---:" if column.justify == "right" else ":---" for column in columns],
        *([plain(cell) for cell in row] for row in zip(*(c.cells for c in columns), strict=True)),
    ]
    return "\n".join([f"**{plain(table.title)}**", "", *(f"| {' | '.join(x)} |" for x in lines)])


def write_tables(console: TableConsole, folder: Path, name: str) -> None:
    """Write the tables that were printed as Markdown, and say where."""
    path = folder / f"{name}.md"
    text = "\n\n".join(markdown(table) for table in console.tables)
    path.write_text(text + "\n", encoding="utf-8")
    print(f"Written: {path}")


def write_json(result: dict[str, Any], folder: Path, name: str) -> None:
    """Write a benchmark's numbers, and say where."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"Written: {path}")


def figure(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """Return an empty figure and its axes, as an array of rows and columns."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
    except ImportError:
        sys.exit("The figures need matplotlib: pip install 'valuetrack[plot]'.")
    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    options = {"layout": "constrained", "squeeze": False, **options}
    return plt.subplots(rows, columns, figsize=size, **options)


def save_figure(drawn: Any, described: dict[str, Any], folder: Path, name: str) -> None:
    """Write a figure as PNG, with the machine at its foot."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - an extra

    folder.mkdir(parents=True, exist_ok=True)
    jax = described["versions"].get("jax", "?")
    where = f"{described['cpu']}, {described['cores']} cores, JAX {jax}"
    drawn.supxlabel(where, fontsize=8, color="0.4")
    drawn.savefig(folder / f"{name}.png", dpi=150)
    plt.close(drawn)


def draw_bars(
    axis: Any, labels: Sequence[str], numbers: Sequence[dict[str, float]], form: str
) -> Any:
    """Draw a bar with its spread and its median for each label, the first one on top."""
    medians = [each["median"] for each in numbers]
    below = [each["median"] - each["low"] for each in numbers]
    above = [each["high"] - each["median"] for each in numbers]
    bars = axis.barh(labels, medians, xerr=[below, above], error_kw={"capsize": 2, "lw": 0.8})
    for place, each in enumerate(numbers):
        axis.annotate(
            f"{each['median']:{form}}",
            (each["high"], place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axis.set_xlim(0, 1.15 * max(each["high"] for each in numbers))
    axis.invert_yaxis()
    axis.grid(axis="x", alpha=0.3)
    axis.set_axisbelow(True)
    return bars
