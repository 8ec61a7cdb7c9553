"""One page that holds a whole report and needs nothing else to be read."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from string import Template

from valuetrack.io.manifest import Manifest, SpecRow
from valuetrack.report.run_data import Named, planned
from valuetrack.report.style import Drawing, Figures
from valuetrack.report.table import NONE, Table, to_html

Facts = list[tuple[str, str]]
"""What one needs to know to judge a run or to repeat it: names and values."""

_EXACT = {"spec hash", "commit", "to repeat"}
"""Facts to be copied rather than read."""

UsualSteps = Callable[[SpecRow], int | None]
"""Returns the environment steps of a row in the experiment as published, where they are known."""


@dataclass(frozen=True)
class Report:
    """A report before its figures are drawn and anything is written.

    Attributes
    ----------
    manifest, lead
        The run, and the sentence under the heading of its page.
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
    title
        The heading of its page; by default the experiment and its preset.
    """

    manifest: Manifest
    lead: str
    summary: Mapping[str, object]
    claims: Table
    tables: Sequence[Table]
    draw: Callable[[], Figures]
    facts: Facts
    remarks: Sequence[str] = ()
    title: str | None = None


def page(report: Report, drawings: Sequence[Drawing], hints: Sequence[str]) -> str:
    """Return a report as HTML; ``hints`` are sentences on what is missing."""
    manifest = report.manifest
    title = report.title or f"{manifest.experiment}, {manifest.preset} settings"
    hint = escape(" ".join(hints))
    return Template(_resource("page.html")).substitute(
        style=_resource("page.css"),
        title=escape(title),
        lead=escape(report.lead),
        claims=to_html(report.claims, level=2),
        tables="\n".join(to_html(table) for table in report.tables),
        hint=f"<p>{hint}</p>" if hint else "",
        figures="\n".join(_figure(drawing) for drawing in drawings),
        facts=_definitions(report.facts),
    )


def facts(manifest: Manifest, rows: Named, steps: str, usual: UsualSteps) -> Facts:
    """Return the facts of a run from its finished rows, with the steps of each seed in words."""
    counts = (f"{name}: {len(row.seeds)}" for name, row in rows)
    wall = manifest.wall_seconds
    device = sum(sum(row.wall_seconds.values()) for _, row in rows)
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
        groups.setdefault(planned(row), []).append(row.id)
    commands = []
    for count, rows in groups.items():
        words = [*common, "--seeds", str(count)]
        if set(rows) != {row.id for row in manifest.spec.rows}:
            words += ["--rows", ",".join(rows)]
        if len(groups) > 1:
            words += ["--out", "RUN"]
        commands.append(shlex.join(words))
    return " && ".join(commands)


def describe(content: object) -> str:
    """Return what someone wrote into JSON as a text that can be printed anywhere.

    A mapping becomes ``key: value`` pairs and a line break a space. A replacement character stands
    for what prints nothing, such as the escape sequences that a terminal would obey.
    """
    if isinstance(content, Mapping):
        return ", ".join(f"{describe(key)}: {describe(value)}" for key, value in content.items())
    if isinstance(content, (list, tuple)):
        return " ".join(map(describe, content))
    text = NONE if content is None else str(content)
    shown = (
        c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text
    )
    return "".join(shown)


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
    entries = []
    for name, text in pairs:
        value = f"<code>{escape(text)}</code>" if name in _EXACT else escape(text)
        entries.append(f"<dt>{escape(name)}</dt><dd>{value}</dd>")
    return "\n".join(["<dl>", *entries, "</dl>"])


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
