"""One page that holds a whole report and needs nothing else to be read."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from valuetrack.report.run_data import Manifest, Row, SpecRow
from valuetrack.report.style import Drawing
from valuetrack.report.table import NONE, Table, to_html

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1f23; --dim: #5b626b; --page: #ffffff;
  --line: #d9dde2; --band: #f4f6f8; --link: #0b5cad; --yes: #0a7a4b; --no: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --dim: #a0a8b2; --page: #14171a; --line: #353b42; --band: #1d2226;
    --link: #7db8f0; --yes: #5fd09b; --no: #ff8f85; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 72rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { margin: 0 0 .25rem; font-size: 1.8rem; } h2 { margin: 2.5rem 0 .5rem; font-size: 1.35rem; }
h3 { margin: 1.75rem 0 .5rem; font-size: 1.05rem; }
p.lead { margin: 0; color: var(--dim); } a { color: var(--link); }
nav { margin: 1rem 0; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.25rem; margin: 0; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
code { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: .9em; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .6rem; text-align: right; white-space: nowrap; }
th.words, td.words { text-align: left; }
#claims td.words { white-space: normal; vertical-align: top; }
thead { border-bottom: 2px solid var(--line); } th { font-weight: 600; }
th.group { text-align: center; border-bottom: 1px solid var(--line); }
tbody tr:nth-child(even) { background: var(--band); }
td.yes, td.no { text-align: center; font-weight: 700; vertical-align: top; }
td.yes { color: var(--yes); } td.no { color: var(--no); }
ul.notes { margin: .5rem 0 0; padding-left: 1.1rem; color: var(--dim); font-size: .85rem; }
figure { margin: 1rem 0 2rem; } figcaption { color: var(--dim); font-size: .88rem; }
figure img { display: block; width: 100%; max-width: 60rem; height: auto; margin-bottom: .5rem;
  background: #ffffff; border: 1px solid var(--line); border-radius: 6px; padding: .5rem; }
"""

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
    title, hint = escape(report.title), escape(" ".join(hints))
    shown = "\n".join(to_html(table) for table in report.tables)
    drawn = "\n".join(_figure(drawing) for drawing in drawings)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p class="lead">{escape(report.lead)}</p>
</header>
<nav><a href="#claims">What it shows</a><a href="#tables">Tables</a>
<a href="#figures">Figures</a><a href="#facts">The run</a></nav>
<main>
{to_html(report.claims)}
<h2 id="tables">Tables</h2>
{shown}
<h2 id="figures">Figures</h2>
{f"<p>{hint}</p>" if hint else ""}
{drawn}
<h2 id="facts">The run</h2>
{_definitions(report.facts)}
</main>
</body>
</html>
"""


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
