"""A table as data, and how it is shown: in the terminal, as HTML and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby
from typing import TypeVar

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

NONE = "–"
"""Shown where there is no number."""

YES, NO = "✓", "✗"

_STYLES = {YES: "green", NO: "red"}
_CLASSES = {YES: "yes", NO: "no"}


class Best(str):
    """A cell that stands out, for it is the best of its line or column."""

    __slots__ = ()


@dataclass(frozen=True)
class Column:
    """A column's title, the group it belongs to, and whether it holds words or numbers."""

    title: str
    group: str = ""
    words: bool = False


RowT = TypeVar("RowT")
Cells = Mapping[Column, Callable[[RowT], str]]
"""A column -> what it says about a row."""


@dataclass(frozen=True)
class Table:
    """A table of finished cells, with notes to print below it.

    Attributes
    ----------
    key
        A short name for links and tests.
    title, notes
        What is printed above and below.
    columns, lines
        Each line has a cell for each column. A cell of ``YES`` or ``NO`` is coloured.
    """

    key: str
    title: str
    columns: tuple[Column, ...]
    lines: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def make_table(
    key: str, title: str, cells: Cells[RowT], rows: Iterable[RowT], notes: Iterable[str] = ()
) -> Table:
    """Return a table with a line for each row."""
    lines = tuple(tuple(cell(row) for cell in cells.values()) for row in rows)
    return Table(key, title, tuple(cells), lines, tuple(notes))


def to_rich(table: Table, width: int | None = None) -> RenderableType:
    """Return a table for the terminal; wider than ``width``, its groups go below each other."""
    parts = [table] if width is None or _natural_width(table) <= width else _split(table)
    notes = [Padding(Text(note, style="dim"), (0, 0, 0, 2)) for note in table.notes]
    shown = [Padding(_rich_part(part), (0, 0, 1, 0)) for part in parts]
    return Group(*shown, *notes, Text(""))


def _rich_part(table: Table) -> RichTable:
    shown = RichTable(
        title=Text(table.title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0), show_edge=False,
    )  # fmt: skip
    for column in table.columns:
        title = f"{column.group}\n{column.title}" if column.group else column.title
        shown.add_column(Text(title), justify="left" if column.words else "right", vertical="top")
    for line in table.lines:
        shown.add_row(*(Text(cell, style=_style(cell)) for cell in line))
    return shown


def _style(cell: str) -> str:
    return "bold" if isinstance(cell, Best) else _STYLES.get(cell, "")


def _natural_width(table: Table) -> int:
    """Return how wide a table is if no cell is broken."""
    heads = [(column.group, column.title) for column in table.columns]
    cells = zip(*table.lines, strict=True) if table.lines else [()] * len(heads)
    pairs = zip(heads, cells, strict=True)
    return sum(max(map(len, (*head, *column))) + 2 for head, column in pairs)


def _split(table: Table) -> list[Table]:
    """Return a table for each group of columns, each with the columns that belong to none."""
    groups = dict.fromkeys(column.group for column in table.columns if column.group)
    parts = []
    for group in groups:
        chosen = [i for i, column in enumerate(table.columns) if column.group in {"", group}]
        columns = tuple(replace(table.columns[i], group="") for i in chosen)
        lines = tuple(tuple(line[i] for i in chosen) for line in table.lines)
        parts.append(Table(table.key, f"{table.title}: {group}", columns, lines))
    return parts or [table]


def to_markdown(table: Table) -> str:
    """Return a table as GitHub's Markdown, under a heading of the third level."""
    head = [_escape_markdown(f"{column.group} {column.title}") for column in table.columns]
    rule = [":--" if column.words else "--:" for column in table.columns]
    body = [[_markdown_cell(cell) for cell in line] for line in table.lines]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, rule, *body)]
    notes = [f"- {_escape_markdown(note)}" for note in table.notes]
    parts = [f"### {_escape_markdown(table.title)}", "\n".join(lines), "\n".join(notes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown_cell(cell: str) -> str:
    text = _escape_markdown(cell)
    return f"**{text}**" if isinstance(cell, Best) else text


def to_html(table: Table, level: int = 3) -> str:
    """Return a table as a section of HTML, under a heading of a level."""
    body = "\n".join(f"<tr>{_cells(table.columns, line)}</tr>" for line in table.lines)
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    return (
        f'<section id="{escape(table.key)}">\n<h{level}>{escape(table.title)}</h{level}>\n'
        f'<div class="wide"><table>\n<thead>{_head(table.columns)}</thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>\n"
        + (f'<ul class="notes">{notes}</ul>\n' if notes else "")
        + "</section>"
    )


def _head(columns: Sequence[Column]) -> str:
    """Return one or, where columns are grouped, two lines of column titles."""
    titles = "".join(
        f'<th scope="col"{_word_class(column)}>{escape(column.title)}</th>' for column in columns
    )
    if not any(column.group for column in columns):
        return f"<tr>{titles}</tr>"
    groups = ((group, len(list(run))) for group, run in groupby(columns, lambda c: c.group))
    spans = "".join(
        f'<th scope="colgroup" class="group" colspan="{count}">{escape(group)}</th>'
        if group
        else f'<td colspan="{count}"></td>'
        for group, count in groups
    )
    return f"<tr>{spans}</tr>\n<tr>{titles}</tr>"


def _cells(columns: Sequence[Column], line: Sequence[str]) -> str:
    return "".join(
        f'<td class="{_CLASSES[cell]}">{cell}</td>'
        if cell in _CLASSES
        else f"<td{_word_class(column)}>{_html_cell(cell)}</td>"
        for column, cell in zip(columns, line, strict=True)
    )


def _html_cell(cell: str) -> str:
    return f"<strong>{escape(cell)}</strong>" if isinstance(cell, Best) else escape(cell)


def _word_class(column: Column) -> str:
    return ' class="words"' if column.words else ""


def _escape_markdown(text: str) -> str:
    text = escape(" ".join(text.split()), quote=False).replace("&gt;", ">")
    for mark in "\\`*_|[]~":
        text = text.replace(mark, f"\\{mark}")
    return text
