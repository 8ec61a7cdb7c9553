"""Tables, figures and the page of a run; made from its folder and nothing else.

::

    from valuetrack.report import write_report
    from valuetrack.io.run_folder import RunFolder

    write_report(RunFolder.open("runs/indoor-escape"))
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from valuetrack.io.atomic import write_atomically
from valuetrack.io.run_folder import RunFolder, StoreError
from valuetrack.report.claims import Claim, claims
from valuetrack.report.control_claims import control_claims, settings_claims
from valuetrack.report.control_data import load_control
from valuetrack.report.control_page import control_page
from valuetrack.report.control_summary import summarise_control
from valuetrack.report.control_tables import control_claims_table, control_tables
from valuetrack.report.data import Run, load
from valuetrack.report.html import page
from valuetrack.report.render import Table, to_html, to_markdown, to_rich
from valuetrack.report.summary import SUMMARY, summarise, summarise_run
from valuetrack.report.tables import claims_table, tables

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
        If no unit of the run is finished, or its experiment has no report.
    """
    console = console or Console()
    experiment = str(folder.manifest().get("experiment"))
    if experiment not in _MAKERS:
        raise StoreError(f"{folder.path} is a run of {experiment!r}, of which there is no report.")
    made = _MAKERS[experiment](folder)
    folder.write_json(SUMMARY, made.summary)
    markdown = [to_markdown(table) for table in (made.claims, *made.tables)]
    _write(folder.path / TABLES, "\n".join([*markdown, *made.remarks]))
    for drawing in made.drawings:
        _write_drawing(folder.path / FIGURES, drawing)
    _write(folder.path / PAGE, made.page)
    for table in [*made.tables, made.claims]:
        console.print(to_rich(table, console.width))
    for hint in made.hints:
        console.print(hint, style="yellow", markup=False)
    return folder.path / PAGE


class _Made(NamedTuple):
    """A report before it is written; ``remarks`` are lines that end ``tables.md``."""

    summary: Mapping[str, Any]
    claims: Table
    tables: list[Table]
    drawings: list[Drawing]
    hints: list[str]
    remarks: list[str]
    page: str


def _indoor_escape(folder: RunFolder) -> _Made:
    run = load(folder)
    summary = summarise_run(run)
    verdicts, shown = claims_table(run, claims(run, summary)), tables(run, summary)

    def drawings_of_run() -> list[Drawing]:
        from valuetrack.report.figures import draw  # noqa: PLC0415 - needs an extra

        return draw(run)

    hints = [NO_TIMES] if run.timing is None else []
    remarks = [f"{hint}\n" for hint in hints]
    drawings = _drawn(drawings_of_run, hints)
    content = page(run, verdicts, shown, drawings, " ".join(hints))
    return _Made(summary, verdicts, shown, drawings, hints, remarks, content)


def _control(folder: RunFolder, claims_of: Callable[[Any, Any], list[Claim]]) -> _Made:
    run = load_control(folder)
    summary = summarise_control(run)
    verdicts = control_claims_table(run, summary, claims_of(run, summary))
    shown = control_tables(run, summary)

    def drawings_of_run() -> list[Drawing]:
        from valuetrack.report.control_figures import draw_control  # noqa: PLC0415 - needs an extra

        return draw_control(run, summary)

    hints: list[str] = []
    drawings = _drawn(drawings_of_run, hints)
    content = control_page(run, verdicts, shown, drawings, " ".join(hints))
    return _Made(summary, verdicts, shown, drawings, hints, [], content)


_MAKERS: Mapping[str, Callable[[RunFolder], _Made]] = {
    "indoor-escape": _indoor_escape,
    "classic-control": functools.partial(_control, claims_of=control_claims),
    "lktd-settings": functools.partial(_control, claims_of=settings_claims),
}
"""The experiment's name -> what makes its report."""


def _drawn(draw: Callable[[], list[Drawing]], hints: list[str]) -> list[Drawing]:
    """Return the figures; without Matplotlib none, and add a hint."""
    try:
        return draw()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        hints.append(NO_PLOT)
        return []


def _write_drawing(path: Path, drawing: Drawing) -> None:
    path.mkdir(exist_ok=True)
    for ending, content in (("png", drawing.png), ("svg", drawing.svg)):
        _write(path / f"{drawing.name}.{ending}", content)


def _write(path: Path, content: str | bytes) -> None:
    data = content.encode() if isinstance(content, str) else content
    write_atomically(path, lambda stream: stream.write(data))
