"""The figures of scored intervals; needs Matplotlib, the extra ``plot``."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize, SymLogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator, PercentFormatter

from valuetrack.io.run_folder import Columns
from valuetrack.report.honest_values.data import (
    ESCAPE,
    KINDS,
    LEVELS,
    ScoredRow,
    ScoredRun,
    Task,
)
from valuetrack.report.honest_values.tables import notes_on_seeds
from valuetrack.report.style import INK, LINE, Drawn, Figures, colour_of, marker_of, plain
from valuetrack.types import Floats

PANELS = 3
"""How many panels a line of a reliability diagram has."""
MAPPED = "grid-lktd"
"""The row whose errors and widths are drawn on the grid."""
SPREAD = ("value", "credible")
"""The kinds that are drawn there."""
# A square's corners in turn from the south-east, and its middle: each action points to a side.
_CORNERS = np.array([(0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (-0.5, -0.5), (0.5, -0.5)])


def figures(run: ScoredRun) -> Figures:
    """Draw all figures that can be made from what has finished of a run."""
    if (row := run.row(MAPPED)) is not None:
        yield "map", "Where LKTD is wrong, and where it says so", map_figure(row)
    for task in run.tasks:
        title = f"Reliability on {task.title}"
        yield f"reliability-{task.name}", title, reliability_figure(task)


def reliability_figure(task: Task) -> Drawn | None:
    """Draw the coverage of every kind of interval over its level, one line per algorithm."""
    kinds = [kind for kind in KINDS if any(kind in row.kinds for row in task.rows)]
    if not kinds:
        return None
    columns = 2 if len(kinds) == 4 else min(PANELS, len(kinds))
    lines = math.ceil(len(kinds) / columns)
    figure = Figure(figsize=(3.1 * columns + 0.4, 2.9 * lines + 0.5))
    panels = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
    for axes, kind in zip(panels, kinds, strict=False):
        _reliability(axes, task, kind)
    for axes in panels[len(kinds) :]:
        axes.remove()
    for axes in panels[max(0, len(kinds) - columns) : len(kinds)]:
        axes.set_xlabel("level of the interval, %")
    for axes in panels[: len(kinds) : columns]:
        axes.set_ylabel("coverage, %")
    handles = [_legend_line(row) for row in task.rows if row.kinds]
    columns = min(len(handles), 2 * columns)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)
    return figure, " ".join([
        "Share of state-actions whose true value lies in the interval, over the interval's level; "
        "means over seeds, with bars of two standard errors. Honest intervals lie on the dashed "
        "line: below it they promise too much, above it they are wider than they need be.",
        *notes_on_seeds([(row.label, row) for row in task.rows]),
    ])  # fmt: skip


def _reliability(axes: Axes, task: Task, kind: str) -> None:
    axes.plot([0.4, 1.0], [0.4, 1.0], **LINE)
    levels = np.array(LEVELS) / 100
    rows = [row for row in task.rows if kind in row.kinds]
    for place, row in enumerate(rows):
        found = [row.over_seeds(f"coverage_{level}", kind) for level in LEVELS]
        bars = [0.0 if math.isnan(one.se) else 2 * one.se for one in found]
        apart = 0.004 * (place - (len(rows) - 1) / 2)  # so that bars do not hide each other
        axes.errorbar(
            levels + apart, [one.mean for one in found], bars, color=colour_of(row.algorithm),
            marker=marker_of(row.algorithm), markersize=4.5, linewidth=1.3, elinewidth=0.9,
        )  # fmt: skip
    axes.set(title=kind, xlim=(0.46, 1.02), ylim=(-0.03, 1.03))
    axes.xaxis.set_major_locator(MultipleLocator(0.1))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, symbol=""))


def _legend_line(row: ScoredRow) -> Line2D:
    colour, marker = colour_of(row.algorithm), marker_of(row.algorithm)
    used = len(row.used)
    label = f"{plain(row.label)} ({used} {'seed' if used == 1 else 'seeds'})"
    return Line2D([], [], color=colour, marker=marker, markersize=5, linewidth=1.5, label=label)


def map_figure(row: ScoredRow) -> Drawn | None:
    """Draw truth and visits of one seed on the grid, beside the errors and widths of two kinds."""
    tables = {kind: _of_kind(row, kind) for kind in SPREAD}
    if row.entry.env != ESCAPE or not all(len(table.get("state", ())) for table in tables.values()):
        return None
    error = {kind: np.abs(table["centre"] - table["truth"]) for kind, table in tables.items()}
    width = {kind: table["high"] - table["low"] for kind, table in tables.items()}
    # The largest two in a hundred share a colour, so that a few do not take it all.
    most_error, most_width = (
        max(float(np.quantile(values, 0.98)) for values in part.values()) for part in (error, width)
    )
    figure = Figure(figsize=(10.4, 7.0))
    panels = figure.subplots(len(SPREAD), 3)
    table = tables["value"]
    _map(panels[0, 0], row, table, table["truth"], "true value", Normalize(), "viridis")
    counts = SymLogNorm(1, vmin=0, vmax=max(10, int(table["visits"].max())), base=10)
    _map(panels[1, 0], row, table, table["visits"], "visits in the memory", counts, "cividis")
    for line, (kind, table) in zip(panels, tables.items(), strict=True):
        to_error, to_width = Normalize(0.0, most_error), Normalize(0.0, most_width)
        _map(line[1], row, table, error[kind], f"{kind}: |error|", to_error, "magma_r")
        _map(line[2], row, table, width[kind], f"{kind}: width of 95 %", to_width, "magma_r")
    return figure, (
        f"{row.label}, seed {int(row.states['seed'][0])}, the paper's grid. A cell has a triangle "
        "for each action, pointing where that leads; illegal ones are left white. Where intervals "
        "are honest, the map of their widths looks like that of the errors. Errors share one "
        "scale, widths another, and the largest 2 % a colour. Start at the lower left, goal at the "
        "upper right."
    )


def _of_kind(row: ScoredRow, kind: str) -> Columns:
    if not row.states:
        return {}
    return {name: column[row.states["kind"] == kind] for name, column in row.states.items()}


def _map(
    axes: Axes, row: ScoredRow, table: Columns, values: Floats, title: str, scale: Normalize,
    colours: str,
) -> None:  # fmt: skip
    """Draw a number for each cell and action as coloured triangles."""
    options = row.entry.env_options
    width, height = int(options.get("width", 10)), int(options.get("height", 10))
    actions = table["action"].astype(int)
    y, x = np.divmod(table["state"], width)
    middle = np.stack([x, y], axis=-1)[:, None].astype(float)
    sides = np.stack([_CORNERS[actions], _CORNERS[actions + 1]], axis=1)
    triangles = np.concatenate([middle, middle + sides], axis=1)
    drawn = PolyCollection(
        list(triangles), array=values, norm=scale, cmap=colours, edgecolor="white", linewidth=0.3
    )
    axes.add_collection(drawn)
    axes.set(xlim=(-0.55, width - 0.45), ylim=(-0.55, height - 0.45), aspect="equal", title=title)
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set(visible=True, color=INK, linewidth=0.6)
    extend = "max" if scale.vmax is not None and np.max(values) > scale.vmax else "neither"
    axes.figure.colorbar(drawn, ax=axes, shrink=0.82, extend=extend)
