"""One page that holds a whole report and needs nothing else to be read."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from string import Template
from typing import Any

from valuetrack.report.run_data import Manifest, Row, SpecRow
from valuetrack.report.style import Drawing
from valuetrack.report.table import NONE, Table, to_html

Facts = list[tuple[str, str]]
"""What one needs to know to judge a run or to repeat it: names and values."""

UsualSteps = Callable[[SpecRow], int | None]
"""Returns the environment steps of a row in the experiment as published, where they are known."""


@dataclass(frozen=True)
class Report:
    """A report before its figures are drawn and anything is written.

    Attributes
    ----------
    title, lead
        The heading of the page and the sentence under it.
    summary
        The content of ``summary.json``.
    claims, tables
        What the page shows, in this order.
    draw
        Draws the figures; needs Matplotlib.
    facts
        The run, at the end of the page.
    remarks
        What is missing from the run, one sentence each.
    """

    title: str
    lead: str
    summary: Mapping[str, Any]
    claims: Table
    tables: Sequence[Table]
    draw: Callable[[], list[Drawing]]
    facts: Facts
    remarks: Sequence[str] = ()


def page(report: Report, drawings: Sequence[Drawing], hints: Sequence[str]) -> str:
    """Return a report as HTML; ``hints`` are sentences on what is missing."""
    hint = escape(" ".join(hints))
    return Template(_resource("page.html")).substitute(
        style=_resource("page.css"),
        title=escape(report.title),
        lead=escape(report.lead),
        claims=to_html(report.claims, level=2),
        tables="\n".join(to_html(table) for table in report.tables),
        hint=f"<p>{hint}</p>" if hint else "",
        figures="\n".join(_figure(drawing) for drawing in drawings),
        facts=_definitions(report.facts),
    )


def title_of(manifest: Manifest) -> str:
    """Return the heading of a run's page."""
    return f"{manifest.experiment}, {manifest.preset} settings"


def facts(
    manifest: Manifest, rows: Sequence[Row], names: Sequence[str], steps: str, usual: UsualSteps
) -> Facts:
    """Return the facts of a run.

    Parameters
    ----------
    manifest, rows, names
        The run, its finished rows, and what to call them.
    steps
        The environment steps of each seed, in words.
    usual
        As for `command`.
    """
    counts = (f"{name}: {len(row.seeds)}" for name, row in zip(names, rows, strict=True))
    wall = manifest.wall_seconds
    device = sum(sum(row.wall_seconds.values()) for row in rows)
    return [
        ("experiment", manifest.experiment),
        ("preset", manifest.preset),
        ("environment steps", steps),
        ("seeds", ", ".join(counts)),
        ("spec hash", describe(manifest.spec_hash)),
        ("commit", _commits(manifest)),
        ("versions", describe(manifest.versions)),
        ("machine", describe(manifest.machine)),
        ("started", describe(manifest.created)),
        ("wall time", NONE if wall is None else _duration(wall)),
        ("device time", _duration(device)),
        ("to repeat", command(manifest, usual)),
    ]


def command(manifest: Manifest, usual: UsualSteps) -> str:
    """Return the command that repeats a run: the one it was made with, if the manifest has it.

    Rows with different numbers of seeds take one command each, into the same folder. ``--steps``
    sets the steps of all rows at once, so a single row that differs from the published experiment
    shows that it was given.
    """
    if manifest.command:
        given = manifest.command
        return given if isinstance(given, str) else shlex.join(given)
    changed = [row.steps for row in manifest.rows if usual(row) not in {None, row.steps}]
    common = ["valuetrack", "reproduce", manifest.experiment, "--preset", manifest.preset]
    common += ["--steps", str(changed[0])] if changed else []
    common += ["--seed", str(manifest.seeds.first)]
    groups: dict[int, list[str]] = {}
    for row in manifest.rows:
        groups.setdefault(row.planned, []).append(row.id)
    whole = {row.id for row in manifest.spec.rows}
    return " && ".join(
        shlex.join([*common, "--seeds", str(count), *_row_words(rows, whole, len(groups) == 1)])
        for count, rows in groups.items()
    )


def _row_words(rows: list[str], whole: set[str], alone: bool) -> list[str]:
    words = [] if set(rows) == whole else ["--rows", ",".join(rows)]
    return words if alone else [*words, "--out", "RUN"]


def describe(content: object) -> str:
    """Return a value of the manifest as text, a mapping as ``key: value`` pairs."""
    if isinstance(content, Mapping):
        return ", ".join(f"{key}: {describe(value)}" for key, value in content.items())
    if isinstance(content, (list, tuple)):
        return " ".join(map(describe, content))
    return NONE if content is None else str(content)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _commits(manifest: Manifest) -> str:
    """Name the source of a run; of each row, if they differ."""
    rows_of: dict[str | None, list[str]] = {}
    for row in manifest.rows:
        rows_of.setdefault(row.commit or manifest.commit, []).append(row.id)
    if len(rows_of) == 1:
        return describe(next(iter(rows_of)))
    return "; ".join(f"{describe(commit)} ({', '.join(rows)})" for commit, rows in rows_of.items())


def _definitions(pairs: Facts) -> str:
    entries = "\n".join(
        f"<dt>{escape(name)}</dt><dd>{_value(name, text)}</dd>" for name, text in pairs
    )
    return f"<dl>\n{entries}\n</dl>"


def _value(name: str, text: str) -> str:
    exact = name in {"spec hash", "commit", "to repeat"}
    return f"<code>{escape(text)}</code>" if exact else escape(text)


def _figure(drawing: Drawing) -> str:
    """Return a figure whose picture travels inside the page."""
    content, title = base64.b64encode(drawing.png).decode(), escape(drawing.title)
    return (
        f'<figure id="figure-{escape(drawing.name)}">\n<h3>{title}</h3>\n'
        f'<img alt="{title}" src="data:image/png;base64,{content}">\n'
        f"<figcaption>{escape(drawing.caption)}</figcaption>\n</figure>"
    )


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
