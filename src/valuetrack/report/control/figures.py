"""The figures of the control tasks; needs Matplotlib, the extra ``plot``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from valuetrack.report.control.data import (
    ControlRow,
    ControlRun,
    Task,
    forward_filled,
)
from valuetrack.report.control.tables import full_names, seed_notes, task_notes
from valuetrack.report.statistics import LEVEL
from valuetrack.report.style import INK, LINE, OTHER, Drawn, Figures, colour_of, name_rows, plain

BAND = (0.05, 0.95)
"""The quantiles over seeds between which the bands reach: without 5 % at either end."""

CROWD = 4
"""With more lines than this in a panel, bands would hide them."""

_Dashes = Literal["-", "--", ":"]

_SEVERAL = (
    INK, "#0072B2", OTHER, "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#5D3A9B", "#8C6D31",
    "#999999",
)  # fmt: skip
_DASHES: tuple[_Dashes, ...] = ("-", "--", ":")
_WIDTH = 11.0
_LETTER, _HANDLE = 0.071, 0.7
"""Inches that a letter of a legend takes, and the space around a label."""
_PANELS = {
    "training_return": "training return",
    "evaluation_return": "evaluation return",
    "best_return": "best model so far",
}
"""What the panels of a task show, and their titles."""
_STEPS = (1, 2, 2.5, 5, 10)  # of the ticks: round numbers only


class _Look(NamedTuple):
    """How a row's line looks."""

    colour: str
    dashes: _Dashes


def figures(run: ControlRun) -> Figures:
    """Draw all figures that can be made from what has finished of a run."""
    for task in run.tasks:
        yield f"returns-{task.key}", f"Returns on {task.env}", task_figure(task)
    yield "iqm", "Interquartile means of the training return", iqm_figure(run.tasks)


def task_figure(task: Task) -> Drawn | None:
    """Draw the three returns of a task over the environment steps."""
    rows = [row for row in task.rows if row.curves]
    if not rows:
        return None
    looks, threshold, band = _looks(task), task.known.solved, len(task.rows) <= CROWD
    handles = [_legend_line(row, looks[row.id]) for row in task.rows]
    if threshold is not None:
        solved = f"solved: {threshold:g}".replace("-", "−")  # as on the axes
        handles.append(Line2D([], [], label=solved, **LINE))
    columns = _columns(handles)
    figure = _figure(_WIDTH, 3.6 + 0.2 * math.ceil(len(handles) / columns))
    panels = figure.subplots(1, 3, sharex=True)
    for axes, (name, title) in zip(panels, _PANELS.items(), strict=True):
        for row in rows:
            _line(axes, row, name, looks[row.id], band=band)
        _finish_panel(axes, title)
    panels[0].set_ylabel("return")
    if threshold is not None:
        for axes in panels[1:]:
            axes.axhline(threshold, **LINE)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)
    return figure, _task_caption(task, band=band)


def _finish_panel(axes: Axes, title: str) -> None:
    axes.set(title=title, xlabel="environment steps")
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=_STEPS))
    axes.xaxis.set_major_formatter(lambda steps, _: f"{steps / 1000:g}k" if steps else "0")
    axes.margins(x=0.01)
    axes.set_xlim(left=0)


def _task_caption(task: Task, *, band: bool) -> str:
    bands = "; the bands leave out the upper and the lower 5 % of the seeds" if band else ""
    return " ".join([
        f"Mean over seeds{bands}. Training return: episodes that ended since the previous point, "
        "exploration included; where none did, the last known value. Evaluation: greedy episodes. "
        "A line begins where all seeds have a value. Each panel has its own scale.",
        *task_notes([task]),
        *seed_notes(task.named),
    ])  # fmt: skip


def iqm_figure(tasks: Sequence[Task], metric: str = "training_return") -> Drawn | None:
    """Draw the interquartile mean of every row with its interval, one panel per task.

    A panel is as tall as its rows need.
    """
    tasks = [task for task in tasks if any(row.metrics[metric]["seeds"] for row in task.rows)]
    if not tasks:
        return None
    longest = max(len(task.rows) for task in tasks)
    columns = min(2, len(tasks)) if longest <= CROWD else 1  # labels of many rows are long
    beside = [tasks[i : i + columns] for i in range(0, len(tasks), columns)]
    heights = [0.95 + 0.36 * max(len(task.rows) for task in line) for line in beside]
    figure = _figure(9.6, sum(heights) + 0.4)
    panels = figure.subplots(len(beside), columns, squeeze=False, height_ratios=heights).ravel()
    for axes, task in zip(panels, tasks, strict=False):
        _iqm_panel(axes, task, metric)
    for axes in panels[len(tasks) :]:
        axes.remove()
    for axes in panels[max(0, len(tasks) - columns) : len(tasks)]:
        axes.set_xlabel(metric.replace("_", " "))
    return figure, " ".join([
        f"Large points: the mean of the middle half of the seeds, with its {100 * LEVEL:g} % "
        "percentile bootstrap interval over seeds (none with a single seed). Small points: the "
        "seeds.",
        *task_notes(tasks),
        *seed_notes(full_names(tasks)),
    ])  # fmt: skip


def _figure(width: float, height: float) -> Figure:
    """Return an empty figure whose labels keep clear of its edges and of each other."""
    figure = Figure(figsize=(width, height))
    figure.set_layout_engine("constrained", w_pad=0.09, h_pad=0.09)
    return figure


def _looks(task: Task) -> dict[str, _Look]:
    """Return each row's line: in its algorithm's colour, unless several have the same algorithm.

    With more rows than colours, the colours repeat with other dashes.
    """
    if len({row.algorithm for row in task.rows}) == len(task.rows):
        return {row.id: _Look(colour_of(row.algorithm), "-") for row in task.rows}
    looks = [_Look(colour, dashes) for dashes in _DASHES for colour in _SEVERAL]
    return {row.id: looks[i % len(looks)] for i, row in enumerate(task.rows)}


def _line(axes: Axes, row: ControlRow, name: str, look: _Look, *, band: bool) -> None:
    """Draw mean and band from the first point at which every seed has a value."""
    values = row.curves[name]
    if name == "training_return":
        values = forward_filled(values)
    values = values[np.isfinite(values).any(axis=1)]
    known = np.isfinite(values).all(axis=0)
    if not len(values) or not known.any():
        return
    steps = np.nanmax(row.curves["step"][:, known], axis=0)
    mean = values[:, known].mean(axis=0)
    above = 3 if row.algorithm == "lktd" else 2  # the figure is about LKTD
    axes.plot(steps, mean, color=look.colour, linestyle=look.dashes, linewidth=1.6, zorder=above)
    if band and len(values) > 1:
        low, high = np.quantile(values[:, known], BAND, axis=0)
        axes.fill_between(steps, low, high, color=look.colour, alpha=0.16, linewidth=0)


def _legend_line(row: ControlRow, look: _Look) -> Line2D:
    used, total = len(row.used), len(row.seeds)
    count = f"{used} of {total}" if row.diverged else str(total)
    label = f"{plain(row.label)} ({count} {'seed' if total == 1 else 'seeds'})"
    return Line2D([], [], color=look.colour, linestyle=look.dashes, linewidth=2, label=label)


def _columns(handles: list[Line2D]) -> int:
    """Return in how many columns, four at most, the legend fits the width of the figure."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    return max(1, min(4, int(_WIDTH / (_LETTER * longest + _HANDLE))))


def _iqm_panel(axes: Axes, task: Task, metric: str) -> None:
    looks = _looks(task)
    for place, row in enumerate(task.rows):
        figures = row.metrics[metric]
        if figures["iqm"] is None:
            away = axes.get_yaxis_transform()  # across the panel, whatever the returns are
            axes.text(0.02, place, "no seed to show", transform=away, va="center", color="#5b626b")
            continue
        shade = looks[row.id].colour
        values = [v for v in row.seed_values[metric].values() if np.isfinite(v)]
        below = np.full(len(values), place + 0.27)
        axes.scatter(values, below, s=9, color=shade, alpha=0.45, linewidth=0)
        if figures["iqm_interval"] is not None:
            axes.plot(figures["iqm_interval"], [place, place], color=shade, linewidth=2.4)
        axes.plot(figures["iqm"], place, marker="o", markersize=6.5, color=shade)
    name_rows(axes, [row.label for row in task.rows], top=0.5, bottom=0.45)
    axes.set_title(plain(task.env))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=_STEPS))
