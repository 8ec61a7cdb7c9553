"""Tables, figures and the page of a run; made from its folder and nothing else.

::

    from valuetrack.report import write_report
    from valuetrack.store import RunFolder

    write_report(RunFolder.open("runs/indoor-escape"))
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from valuetrack.files import write_atomically
from valuetrack.report.claims import Claim, claims
from valuetrack.report.data import Run, load
from valuetrack.report.html import page
from valuetrack.report.render import Table, to_html, to_markdown, to_rich
from valuetrack.report.summary import SUMMARY, summarise, summarise_run
from valuetrack.report.tables import claims_table, tables
from valuetrack.store import RunFolder

if TYPE_CHECKING:
    from valuetrack.report.figures import Drawing

PAGE = "report.html"
TABLES = "tables.md"
FIGURES = "figures"

NO_PLOT = 'Figures need Matplotlib: pip install "valuetrack[plot]", then make the report again.'
NO_TIMES = "Times per update were not measured for this run, so their table is left out."

__all__ = [
    "Claim",
    "Run",
    "Table",
    "claims",
    "claims_table",
    "load",
    "summarise",
    "tables",
    "to_html",
    "to_markdown",
    "to_rich",
    "write_report",
]


def write_report(folder: RunFolder, console: Console | None = None) -> Path:
    """Write ``summary.json``, ``tables.md``, ``figures/`` and ``report.html``; print the tables.

    Parameters
    ----------
    folder
        A run, finished or not; what is finished of it is reported.
    console
        Where to print; standard output unless given.

    Returns
    -------
    Path
        Of ``report.html``.

    Raises
    ------
    StoreError
        If no unit of the run is finished.
    """
    console = console or Console()
    run = load(folder)
    summary = summarise_run(run)
    folder.write_json(SUMMARY, summary)
    shown = [claims_table(run, claims(run, summary)), *tables(run, summary)]
    _write(folder.path / TABLES, _markdown(run, shown))
    hints = [NO_TIMES] if run.timing is None else []
    drawings = _drawings(run)
    if drawings is None:
        hints.append(NO_PLOT)
    for drawing in drawings or []:
        _write_drawing(folder.path / FIGURES, drawing)
    content = page(run, shown[0], shown[1:], drawings or [], " ".join(hints))
    _write(folder.path / PAGE, content)
    for table in [*shown[1:], shown[0]]:
        console.print(to_rich(table, console.width))
    for hint in hints:
        console.print(hint, style="yellow", markup=False)
    return folder.path / PAGE


def _markdown(run: Run, shown: list[Table]) -> str:
    parts = [to_markdown(table) for table in shown]
    return "\n".join([*parts, f"{NO_TIMES}\n"] if run.timing is None else parts)


def _drawings(run: Run) -> list[Drawing] | None:
    """Return the figures, or ``None`` if Matplotlib is not installed."""
    try:
        from valuetrack.report.figures import draw  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        return None
    return draw(run)


def _write_drawing(path: Path, drawing: Drawing) -> None:
    path.mkdir(exist_ok=True)
    for ending, content in (("png", drawing.png), ("svg", drawing.svg)):
        _write(path / f"{drawing.name}.{ending}", content)


def _write(path: Path, content: str | bytes) -> None:
    data = content.encode() if isinstance(content, str) else content
    write_atomically(path, lambda stream: stream.write(data))
