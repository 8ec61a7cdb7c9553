"""The linear-Gaussian check as a table, as JSON and Markdown, and as figures."""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import methodcaller
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from valuetrack import __version__
from valuetrack.checks import cases as suite
from valuetrack.checks import latent_bias
from valuetrack.checks.cases import Row
from valuetrack.checks.linear_gaussian import Gaussian
from valuetrack.io.atomic import write_atomically

FALSE_ALARM = 1e-4
"""How often a check of right samplers may fail; each row gets its share of it."""

PLOT_HINT = "No figures: matplotlib is missing; pip install 'valuetrack[plot]' brings it."

Columns = Mapping[str, Callable[[Row], str]]
"""A column's title -> what it says about a row."""

KEYS: Columns = {
    "sampler": lambda row: row.case.sampler,
    "form": lambda row: row.case.form or "–",
    "K": lambda row: str(row.case.inner_iterations),
    "N": lambda row: f"{row.case.pseudo_population:g}",
    "α": lambda row: f"{row.case.alpha:g}" if row.case.sampler == "lktd" else "–",
    "ε": lambda row: f"{row.case.step_size:g}",
}
AGREEMENT: Columns = {
    "sd\nexact": lambda row: f"{first_sd(row.exact):.4f}",
    "sd\nchains": lambda row: f"{first_sd(row.sampled):.4f}",
    "z\nmean": lambda row: f"{row.test.mean_z:.1f}",
    "z\ncov": lambda row: f"{row.test.covariance_z:.1f}",
    "p": lambda row: f"{row.test.p_value:.2g}",
}
DISTANCE: Columns = {
    "W2\nat ε": lambda row: f"{row.w2_exact:.4f}",
    "W2\nε→0": lambda row: f"{row.w2_limit:.4f}" if row.w2_limit else "0",
    "limit": lambda row: row.limit.label,
}
WORDS = {"sampler", "form", "limit"}
"""Columns that do not hold numbers."""

LEGEND = (
    "sd: of the first parameter. z: largest deviation of a mean and of a covariance, in standard "
    "errors. W2: distance of the exact law to the posterior. limit: the law of small steps: the "
    "posterior, the posterior with σ² shrunk to α σ², or the posterior at temperature τ."
)


def run_check(
    out: Path, *, chains: int = 4096, seed: int = 0, quick: bool = False, console: Console
) -> bool:
    """Run the check, show it, write it to ``out``, and return whether every row passed."""
    prepare_directory(out)
    cases = suite.QUICK_CASES if quick else suite.CASES
    console.print(
        f"Linear-Gaussian check: {len(cases)} rows of {chains} chains each, seed {seed}.\n"
        "Does each sampler keep the law that its equations give at this step?"
    )
    with progress(console, len(cases)) as advance:
        rows = suite.run_cases(cases, chains=chains, seed=seed, on_row=lambda row: advance())
    for table in tables(rows, console.width):
        console.print(table)
    console.print(LEGEND, style="dim")
    good = all(passed(row, rows) for row in rows)
    console.print(verdict(rows), style="bold green" if good else "bold red")
    for path in write_all(rows, out, chains=chains, seed=seed, console=console):
        console.print(f"Wrote {path}", highlight=False, markup=False, soft_wrap=True)
    return good


@contextlib.contextmanager
def progress(console: Console, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar of rows done and time left; yield the function that moves it on."""
    shown = (
        TextColumn("rows"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*shown, console=console, transient=True) as bar:
        task = bar.add_task("check", total=total)
        yield lambda: bar.advance(task)


def first_sd(law: Gaussian) -> float:
    """Return the standard deviation of the first parameter."""
    return math.sqrt(law.covariance[0, 0])


def threshold(rows: Sequence[Row]) -> float:
    """Return the p-value below which a row fails."""
    return FALSE_ALARM / len(rows)


def passed(row: Row, rows: Sequence[Row]) -> bool:
    """Return whether the chains of a row follow its exact law; moments that are NaN do not."""
    return bool(row.test.p_value >= threshold(rows))


def verdict(rows: Sequence[Row]) -> str:
    """Sum up the check in a sentence."""
    good = sum(passed(row, rows) for row in rows)
    smallest = min(row.test.p_value for row in rows)
    return (
        f"{good} of {len(rows)} rows follow their exact law "
        f"(smallest p {smallest:.2g}; a row fails below {threshold(rows):.1g})."
    )


def tables(rows: Sequence[Row], width: int) -> list[Table]:
    """Return one table, or two where the terminal is too narrow for all columns."""
    if width >= 102:
        return [_table(rows, {**KEYS, **AGREEMENT, **DISTANCE})]
    return [_table(rows, {**KEYS, **AGREEMENT}), _table(rows, {**KEYS, **DISTANCE})]


def _table(rows: Sequence[Row], columns: Columns) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column("", no_wrap=True, min_width=1)
    for title in columns:
        table.add_column(title, justify="left" if title in WORDS else "right", no_wrap=True)
    for i, row in enumerate(rows):
        mark = "[green]✓[/]" if passed(row, rows) else "[red]✗[/]"
        last_of_block = i + 1 < len(rows) and rows[i + 1].case.sampler == rows[0].case.sampler
        table.add_row(mark, *(cell(row) for cell in columns.values()), end_section=last_of_block)
    return table


def write_all(
    rows: Sequence[Row], out: Path, *, chains: int, seed: int, console: Console
) -> Iterator[Path]:
    """Write the results and the figures; yield each path when the file is there."""
    document = json.dumps(as_json(rows, chains=chains, seed=seed), indent=1, ensure_ascii=False)
    yield write(out / "check.json", (document + "\n").encode())
    yield write(out / "check.md", as_markdown(rows).encode())
    try:
        from valuetrack.checks import figures  # noqa: PLC0415  (matplotlib is an extra)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        console.print(PLOT_HINT, style="yellow", markup=False)
        return
    for name, content in figures.render_all(rows):
        yield write(out / name, content)


def as_json(rows: Sequence[Row], *, chains: int, seed: int) -> dict[str, object]:
    """Return everything but the samples; the same for the same seed."""
    derived = ("ratio", "scaled_time", "effective_variance", "many")
    return {
        "valuetrack": __version__,
        "check": "linear-gaussian",
        "chains": chains,
        "seed": seed,
        "fails_below": threshold(rows),
        "passed": all(passed(row, rows) for row in rows),
        "rows": [_row_as_json(row, passed(row, rows)) for row in rows],
        "latent_bias": [bias._asdict() for bias in latent_bias.table()],
        "latent_bias_settings": [
            setting._asdict() | {name: getattr(setting, name) for name in derived}
            for setting in latent_bias.SETTINGS
        ],
    }


def _row_as_json(row: Row, good: bool) -> dict[str, object]:
    laws = {"exact": row.exact, "sampled": row.sampled, "posterior": row.posterior}
    return {
        **row.case._asdict(),
        "updates": row.updates,
        **{name: {k: v.tolist() for k, v in law._asdict().items()} for name, law in laws.items()},
        **row.test._asdict(),
        "p_value": row.test.p_value,
        "passed": good,
        "w2_exact": row.w2_exact,
        "w2_sampled": row.w2_sampled,
        "w2_range": list(row.w2_range),
        "w2_limit": row.w2_limit,
        "limit": row.limit._asdict(),
    }


def as_markdown(rows: Sequence[Row]) -> str:
    """Return the tables for the docs."""
    columns = {**KEYS, **AGREEMENT, **DISTANCE}
    lines = [
        "| | " + " | ".join(title.replace("\n", " ") for title in columns) + " |",
        "|---|" + "|".join("---" if title in WORDS else "---:" for title in columns) + "|",
    ]
    for row in rows:
        cells = ["✓" if passed(row, rows) else "✗", *(cell(row) for cell in columns.values())]
        lines.append("| " + " | ".join(cells) + " |")
    check = "\n".join(lines)
    return f"{check}\n\n{latent_bias.markdown()}\n\n{latent_bias.settings_markdown()}\n"


def prepare_directory(out: Path) -> None:
    """Make the directory, and find out before the work begins whether files can be written."""
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out} is a file; --out takes a directory.")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=out):
        pass


def write(path: Path, content: bytes) -> Path:
    """Write a file whole or not at all, and return its path."""
    write_atomically(path, methodcaller("write", content))
    return path
