"""The figures of the indoor escape; needs Matplotlib, the extra ``plot``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from valuetrack.report.indoor_escape import paper
from valuetrack.report.indoor_escape.data import LIKELY, GridRow, Run
from valuetrack.report.indoor_escape.policy_map import policy_maps
from valuetrack.report.style import LINE, Drawn, Figures, colour_of, marker_of, name_rows, plain
from valuetrack.types import Floats

_LUMINANCE = (0.2126, 0.7152, 0.0722)
_PAPER_MARK: dict[str, Any] = {
    "marker": "v", "markersize": 5, "markerfacecolor": "#000000", "markeredgecolor": "white",
    "markeredgewidth": 0.6, "linestyle": "none", "zorder": 4,
}  # fmt: skip


def figures(run: Run) -> Figures:
    """Draw all figures that can be made from what has finished of a run."""
    error = boxes(run, "mse", "MSE of the mean Q-value (log scale)", log=True)
    yield "mse", "Mean squared error", error
    coverage = boxes(run, "coverage", "coverage", line=0.95)
    yield "coverage", "Coverage of 95 % prediction intervals", coverage
    yield "width", "Width of 95 % intervals", boxes(run, "width", "width")
    yield "policy", "Policy probabilities", policy_maps(run)
    yield "reliability", "Reliability", reliability(run)
    yield "learning", "Learning curves", learning_curves(run)


def shade(run: Run, row: GridRow) -> tuple[float, float, float]:
    """Return a row's colour: its algorithm's, mixed with white for all but the largest N."""
    family = run.family(row.algorithm)
    paleness = min(0.28 * (len(family) - 1 - family.index(row)), 0.7)
    red, green, blue = (part + (1 - part) * paleness for part in to_rgb(colour_of(row.algorithm)))
    return red, green, blue


def boxes(
    run: Run, metric: str, label: str, log: bool = False, line: float | None = None
) -> Drawn | None:
    """Draw one horizontal box per row, actions side by side."""
    rows = [row for row in run.rows if _finite(row, "E", metric).size]
    if not rows:
        return None
    figure = Figure(figsize=(9, 1.35 + 0.29 * len(rows)))
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, action in zip(panels, LIKELY, strict=True):
        _box_panel(axes, run, rows, action, metric)
        axes.set(title=f"action {action}", xlabel=label)
        if log:
            axes.set_xscale("log")
        if line is not None:
            axes.axvline(line, **LINE)
    handles = [Line2D([], [], label="the paper's mean", **_PAPER_MARK)]
    handles += [Line2D([], [], label=f"nominal {line:.0%}", **LINE)] if line else []
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure, (
        "Each box shows the final windows of all seeds that did not diverge: quartiles, median, "
        "whiskers up to 1.5 interquartile ranges, and every value beyond. Nothing is cut. The "
        "triangle is the mean in the paper's table, which is taken after cutting."
    )


def _box_panel(axes: Axes, run: Run, rows: Sequence[GridRow], action: str, metric: str) -> None:
    values = [_finite(row, action, metric) for row in rows]
    drawn = axes.boxplot(
        values, positions=range(len(rows)), orientation="horizontal", widths=0.56,
        patch_artist=True, manage_ticks=False, medianprops={"linewidth": 1.4},
        flierprops={"marker": "o", "markersize": 2.5, "markeredgewidth": 0.5},
    )  # fmt: skip
    parts = (drawn["boxes"], drawn["medians"], drawn["fliers"])
    for row, patch, median, flier in zip(rows, *parts, strict=True):
        colour = shade(run, row)
        patch.set(facecolor=colour, edgecolor="#333333", linewidth=0.8)
        median.set_color("white" if np.dot(colour, _LUMINANCE) < 0.33 else "black")
        flier.set(markeredgecolor=colour)
    for place, row in enumerate(rows):
        theirs = paper.indoor_escape().get(row.id)
        if theirs is not None:
            axes.plot(theirs[action][metric].mean, place - 0.4, **_PAPER_MARK)
    name_rows(axes, [row.name for row in rows], top=0.7, bottom=0.5)


def reliability(run: Run) -> Drawn | None:
    """Draw observed coverage over the nominal level: two kinds of interval, two actions."""
    rows = [row for row in run.rows if row.calibration]
    if not rows:
        return None
    kinds = {"coverage": "prediction interval", "credible_coverage": "credible interval"}
    figure = Figure(figsize=(9, 7.6))
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for line, (kind, title) in zip(panels, kinds.items(), strict=True):
        for axes, action in zip(line, LIKELY, strict=True):
            axes.plot([0, 1], [0, 1], **LINE)
            for row in rows:
                _reliability_line(axes, run, row, action, kind)
            axes.set(title=f"{title}, action {action}", xlim=(0.47, 1.02), ylim=(-0.03, 1.03))
    for axes in panels[1]:
        axes.set_xlabel("nominal level")
    for axes in panels[:, 0]:
        axes.set_ylabel("observed coverage")
    _legend(figure, panels[0][0], Line2D([], [], label="perfect", **LINE))
    return figure, (
        "How often intervals of a nominal level contain the exact value, averaged over states and "
        "seeds. Lines below the diagonal are overconfident, lines above it cautious. Top: "
        "intervals centred on the latest sample; bottom: between the pool's own quantiles."
    )


def _reliability_line(axes: Axes, run: Run, row: GridRow, action: str, kind: str) -> None:
    part = row.calibration
    chosen = (part["action"] == action) & np.isfinite(part[kind])
    levels = np.unique(part["level"][chosen])
    means = [part[kind][chosen & (part["level"] == level)].mean() for level in levels]
    axes.plot(
        levels, means, color=shade(run, row), marker=marker_of(row.algorithm), markersize=4,
        linewidth=1.3, label=plain(row.name),
    )  # fmt: skip


def learning_curves(run: Run) -> Drawn | None:
    """Draw the MSE over the steps; bands for the largest N of each algorithm only."""
    rows = [row for row in run.rows if row.measured and row.used]
    if not rows:
        return None
    figure = Figure(figsize=(9, 4.6))
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, action in zip(panels, LIKELY, strict=True):
        for row in rows:
            _learning_line(axes, run, row, action)
        axes.set(title=f"action {action}", xlabel="environment steps", yscale="log")
        axes.ticklabel_format(axis="x", style="sci", scilimits=(0, 0), useMathText=True)
    panels[0].set_ylabel("MSE of the mean Q-value (log scale)")
    _legend(figure, panels[0])
    return figure, (
        "Median over the seeds that did not diverge, window by window. Bands reach from the lower "
        "to the upper quartile and are drawn for the largest N of each algorithm."
    )


def _learning_line(axes: Axes, run: Run, row: GridRow, action: str) -> None:
    part = row.measured
    chosen = (part["action"] == action) & np.isfinite(part["mse"])
    steps = np.unique(part["step"][chosen])
    values = (part["mse"][chosen & (part["step"] == step)] for step in steps)
    bands = np.array([np.quantile(v, [0.25, 0.5, 0.75]) for v in values]).reshape(-1, 3)
    colour, main = shade(run, row), row == run.family(row.algorithm)[-1]
    axes.plot(
        steps, bands[:, 1], color=colour, linewidth=1.8 if main else 1.1, label=plain(row.name)
    )
    if main:
        axes.fill_between(steps, bands[:, 0], bands[:, 2], color=colour, alpha=0.18, linewidth=0)


def _legend(figure: Figure, axes: Axes, *more: Line2D) -> None:
    handles = [*axes.get_legend_handles_labels()[0], *more]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=9)


def _finite(row: GridRow, action: str, metric: str) -> Floats:
    values = row.final(action, metric).values
    return values[np.isfinite(values)]
