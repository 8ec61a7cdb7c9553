"""Tables, figures and the page of a run, made from its folder and nothing else.

Each experiment has a module that turns a run into a `Report`: `indoor_escape` compares it with
the paper's tables, `control` compares algorithms, or settings of one, on control tasks,
`honest_values` compares intervals with the truth, `exploration` who finds what is far away,
`changing_worlds` who is right again after a change, `defaults` what users get without options, and
`sweep` the settings of a sweep of one's own, `tuning` the trials of a search.

Examples
--------
::

    from valuetrack.report import write_report
    from valuetrack.io.run_folder import RunFolder

    write_report(RunFolder.open("runs/indoor-escape"))
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from operator import methodcaller
from pathlib import Path

from rich.console import Console

from valuetrack.io.atomic import write_atomically
from valuetrack.io.manifest import Manifest
from valuetrack.io.run_folder import RunFolder, StoreError
from valuetrack.report import (
    changing_worlds,
    control,
    defaults,
    exploration,
    honest_values,
    indoor_escape,
    sweep,
    tuning,
)
from valuetrack.report.page import Report, page
from valuetrack.report.run_data import read_manifest
from valuetrack.report.style import Drawing, drawings
from valuetrack.report.table import Column, Table, to_html, to_markdown, to_rich

PAGE = "report.html"
SUMMARY = "summary.json"
TABLES = "tables.md"
FIGURES = "figures"

NO_PLOT = 'Figures need Matplotlib: pip install "valuetrack[plot]", then make the report again.'

__all__ = ["Column", "Report", "Table", "to_html", "to_markdown", "to_rich", "write_report"]

_REPORTS: Mapping[str, Callable[[RunFolder, Manifest], Report]] = {
    "indoor-escape": indoor_escape.make_report,
    "indoor-escape-forms": partial(indoor_escape.make_report, claims_of=indoor_escape.forms_claims),
    "classic-control": partial(control.make_report, claims_of=control.algorithm_claims),
    "lktd-settings": partial(control.make_report, claims_of=control.settings_claims),
    "lktd-forms": partial(control.make_report, claims_of=control.settings_claims),
    "honest-values": honest_values.make_report,
    "defaults": defaults.make_report,
    "deep-sea": exploration.make_report,
    "n-chain": exploration.make_report,
    "changing-worlds": changing_worlds.make_report,
    "sweep": sweep.make_report,
    "tune": tuning.make_report,
}
"""The experiment's name -> what makes its report."""


def write_report(folder: RunFolder, console: Console | None = None) -> Path:
    """Write ``summary.json``, ``tables.md``, ``figures/`` and ``report.html``; print the tables.

    Parameters
    ----------
    folder
        A run, finished or not; the report shows what has finished.
    console
        Where to print; standard output unless given.

    Returns
    -------
    Path
        The path of ``report.html``.

    Raises
    ------
    StoreError
        If no unit of the run has finished, its experiment has no report, the folder is damaged,
        or a file to be written is a link.
    """
    console = console or Console()
    report = make_report(folder)
    drawings, hints = _draw(report)
    tables = [report.claims, *report.tables]
    files: dict[str, str | bytes] = {
        SUMMARY: json.dumps(report.summary, indent=2) + "\n",
        TABLES: "\n".join([*map(to_markdown, tables), *(f"{text}\n" for text in report.remarks)]),
        **{f"{FIGURES}/{drawing.name}.png": drawing.png for drawing in drawings},
        PAGE: page(report, drawings, hints),
    }
    _write_all(folder.path, files)
    for table in [*report.tables, report.claims]:
        console.print(to_rich(table, console.width))
    for hint in hints:
        console.print(hint, style="yellow", markup=False)
    return folder.path / PAGE


def make_report(folder: RunFolder) -> Report:
    """Make the report of a run without drawing or writing anything."""
    manifest = read_manifest(folder)
    if manifest.experiment not in _REPORTS:
        raise StoreError(f"{folder.path} is a run of {manifest.experiment!r}, which has no report.")
    return _REPORTS[manifest.experiment](folder, manifest)


def _draw(report: Report) -> tuple[list[Drawing], list[str]]:
    """Return the figures and what is missing; without Matplotlib, that is the figures."""
    try:
        return drawings(report.draw()), [*report.remarks]
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        return [], [*report.remarks, NO_PLOT]


def _write_all(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files below a folder, and none of them if one would end up elsewhere."""
    for name in files:
        _refuse_links(folder, name)
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        write_atomically(folder / name, methodcaller("write", data))


def _refuse_links(folder: Path, name: str) -> None:
    """Refuse a path that leaves the folder, which it does only through a link."""
    path = folder
    for part in Path(name).parts:
        path /= part
        if path.is_symlink():
            raise StoreError(f"{path} is a link, and a report writes into its own folder only.")
    if path.parent.exists() and not path.parent.is_dir():
        raise StoreError(f"{path.parent} is a file, where the report needs a folder.")
