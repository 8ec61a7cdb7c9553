"""One page that holds a whole report and needs nothing else to be read."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any, Protocol

from valuetrack.report import paper
from valuetrack.report.data import Run
from valuetrack.report.render import NONE, Table, to_html
from valuetrack.report.tables import describe

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


class Picture(Protocol):
    """What the page needs of a figure; `valuetrack.report.figures.Drawing` has it."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def title(self) -> str: ...  # noqa: D102
    @property
    def caption(self) -> str: ...  # noqa: D102
    @property
    def svg(self) -> bytes: ...  # noqa: D102


def page(
    run: Run, claims: Table, tables: Sequence[Table], pictures: Sequence[Picture], hint: str = ""
) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    run
        For the facts about it.
    claims, tables, pictures
        What to show, in this order.
    hint
        A sentence on what is missing, to stand among the figures.
    """
    return document(run.manifest, _lead(run), claims, tables, pictures, hint, facts(run))


def document(
    manifest: Mapping[str, Any],
    lead: str,
    claims: Table,
    tables: Sequence[Table],
    pictures: Sequence[Picture],
    hint: str,
    about: Sequence[tuple[str, str]],
) -> str:
    """Return the page of any experiment; ``lead`` stands under the title, ``about`` at the end."""
    title = f"{manifest['experiment']}, {manifest['preset']} settings"
    shown = "\n".join(to_html(table) for table in tables)
    drawn = "\n".join(_figure(picture) for picture in pictures)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p class="lead">{escape(lead)}</p>
</header>
<nav><a href="#claims">What it shows</a><a href="#tables">Tables</a>
<a href="#figures">Figures</a><a href="#facts">The run</a></nav>
<main>
{to_html(claims)}
<h2 id="tables">Tables</h2>
{shown}
<h2 id="figures">Figures</h2>
{f"<p>{escape(hint)}</p>" if hint else ""}
{drawn}
<h2 id="facts">The run</h2>
{_definitions(about)}
</main>
</body>
</html>
"""


def facts(run: Run) -> list[tuple[str, str]]:
    """Return what one needs to know to judge a run or to repeat it."""
    device = sum(row.wall_seconds for row in run.rows)
    manifest = run.manifest
    return all_facts(manifest, f"{run.steps:,}", _seeds(run), device, command(manifest))


def all_facts(
    manifest: Mapping[str, Any], steps: str, seeds: str, device_seconds: float, to_repeat: str
) -> list[tuple[str, str]]:
    """Return the facts of any experiment, from its manifest and what only its report knows."""
    wall = manifest.get("wall_seconds")
    return [
        ("experiment", describe(manifest["experiment"])),
        ("preset", describe(manifest["preset"])),
        ("environment steps", steps),
        ("seeds", seeds),
        ("spec hash", describe(manifest.get("spec_hash"))),
        ("commit", _commits(manifest)),
        ("versions", describe(manifest.get("versions"))),
        ("machine", describe(manifest.get("machine"))),
        ("begun", describe(manifest.get("created"))),
        ("wall time", NONE if wall is None else _duration(float(wall))),
        ("device time", _duration(device_seconds)),
        ("to repeat", to_repeat),
    ]


def command(manifest: Mapping[str, Any]) -> str:
    """Return the command that repeats a run: the one it was made with, if the manifest has it.

    Rows with different numbers of seeds take a command each, into one folder.
    """
    steps = manifest.get("spec", {}).get("training", {}).get("steps", paper.STEPS)
    return repeat(manifest, None if steps == paper.STEPS else steps, paper.indoor_escape())


def repeat(manifest: Mapping[str, Any], steps: int | None, whole: Collection[str]) -> str:
    """Return the command that repeats a run of any experiment.

    Parameters
    ----------
    manifest
        Of the run.
    steps
        Its environment steps, if they are not those of the experiment.
    whole
        The ids of all rows of the experiment, which need not be listed.
    """
    if manifest.get("command"):
        given = manifest["command"]
        return given if isinstance(given, str) else shlex.join(map(str, given))
    groups: dict[int, list[str]] = {}
    for row in manifest["rows"]:
        groups.setdefault(planned(manifest, row), []).append(row["id"])
    common = _common_words(manifest, steps)
    return " && ".join(
        shlex.join([*common, "--seeds", str(count), *_row_words(rows, whole, len(groups) == 1)])
        for count, rows in groups.items()
    )


def planned(manifest: Mapping[str, Any], row: Mapping[str, Any]) -> int:
    """Return how many seeds a row was to have."""
    if "units" in row:
        return sum(int(count) for _, count in row["units"])
    return int(manifest.get("seeds", {}).get("count", paper.RUNS))


def _common_words(manifest: Mapping[str, Any], steps: int | None) -> list[str]:
    words = ["valuetrack", "reproduce", manifest["experiment"], "--preset", manifest["preset"]]
    if steps is not None:
        words += ["--steps", str(steps)]
    return [*words, "--seed", str(manifest.get("seeds", {}).get("first", 0))]


def _row_words(rows: list[str], whole: Collection[str], alone: bool) -> list[str]:
    words = [] if set(rows) == set(whole) else ["--rows", ",".join(rows)]
    return words if alone else [*words, "--out", "RUN"]


def _lead(run: Run) -> str:
    finished, asked = len(run.rows), len(run.manifest["rows"])
    return f"{finished} of {asked} rows, {run.steps:,} environment steps a seed."


def _seeds(run: Run) -> str:
    return ", ".join(f"{row.name}: {len(row.seeds)}" for row in run.rows)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _commits(manifest: Mapping[str, Any]) -> str:
    """Name the source of a run; of each row, if they differ."""
    of_row = {row["id"]: row.get("commit", manifest.get("commit")) for row in manifest["rows"]}
    commits = list(dict.fromkeys(of_row.values()))
    if len(commits) == 1:
        return describe(commits[0])
    groups = ([row for row, made in of_row.items() if made == commit] for commit in commits)
    parts = zip(commits, groups, strict=True)
    return "; ".join(f"{describe(commit)} ({', '.join(rows)})" for commit, rows in parts)


def _definitions(pairs: Sequence[tuple[str, str]]) -> str:
    entries = "\n".join(
        f"<dt>{escape(name)}</dt><dd>{_value(name, text)}</dd>" for name, text in pairs
    )
    return f"<dl>\n{entries}\n</dl>"


def _value(name: str, text: str) -> str:
    exact = name in {"spec hash", "commit", "to repeat"}
    return f"<code>{escape(text)}</code>" if exact else escape(text)


def _figure(picture: Picture) -> str:
    """Return a figure whose picture travels inside the page."""
    content = base64.b64encode(picture.svg).decode()
    return (
        f'<figure id="figure-{escape(picture.name)}">\n<h3>{escape(picture.title)}</h3>\n'
        f'<img alt="{escape(picture.title)}" src="data:image/svg+xml;base64,{content}">\n'
        f"<figcaption>{escape(picture.caption)}</figcaption>\n</figure>"
    )
