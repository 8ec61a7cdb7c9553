"""The figures of a report; needs Matplotlib, the extra ``plot``.

Colours are those of Okabe and Ito, which stay apart for colour-blind readers: one per algorithm,
paler for smaller N.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from valuetrack.report import paper
from valuetrack.report.data import Row, Run
from valuetrack.report.maps import plain, policy_maps

DPI = 150

COLOURS = {
    "lktd": "#0072B2",
    "sgld": "#009E73",
    "sghmc": "#D55E00",
    "dqn": "#6E6E6E",
    "bootdqn": "#CC79A7",
    "qrdqn": "#E69F00",
    "kova": "#5D3A9B",
}
_MARKERS = {
    "lktd": "o", "sgld": "s", "sghmc": "^", "dqn": "X", "bootdqn": "D", "qrdqn": "P", "kova": "v",
}  # fmt: skip
_ACTIONS = ("E", "N")
_LUMINANCE = (0.2126, 0.7152, 0.0722)
STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "valuetrack",
}


@dataclass(frozen=True)
class Drawing:
    """A finished figure.

    Attributes
    ----------
    name
        Of the files, without ending.
    title, caption
        What stands above and below it in the report; the caption also describes it in words.
    png, svg
        The files' contents.
    """

    name: str
    title: str
    caption: str
    png: bytes
    svg: bytes


def draw(run: Run) -> list[Drawing]:
    """Draw all figures that can be made from what is finished of a run."""
    makers: list[tuple[str, str, Callable[[Run], tuple[Figure, str] | None]]] = [
        ("mse", "Mean squared error", _mse_boxes),
        ("coverage", "Coverage of 95 % prediction intervals", _coverage_boxes),
        ("width", "Width of 95 % intervals", _width_boxes),
        ("policy", "Policy probabilities", policy_maps),
        ("reliability", "Reliability", _reliability),
        ("learning", "Learning curves", _learning),
    ]
    drawings = []
    with mpl.rc_context(STYLE):
        for name, title, make in makers:
            if (made := make(run)) is not None:
                figure, caption = made
                drawings.append(Drawing(name, title, caption, *contents(figure)))
    return drawings


def colour(run: Run, row: Row) -> tuple[float, float, float]:
    """Return a row's colour: its algorithm's, mixed with white for all but the largest N."""
    red, green, blue = to_rgb(COLOURS.get(row.algorithm, "#56B4E9"))
    family = run.family(row.algorithm)
    paleness = 0.28 * (len(family) - 1 - family.index(row))
    paleness = min(paleness, 0.7)
    return (
        red + (1 - red) * paleness,
        green + (1 - green) * paleness,
        blue + (1 - blue) * paleness,
    )


def _mse_boxes(run: Run) -> tuple[Figure, str] | None:
    return _boxes(run, "mse", "MSE of the mean Q-value (log scale)", log=True)


def _coverage_boxes(run: Run) -> tuple[Figure, str] | None:
    return _boxes(run, "coverage", "coverage", line=0.95)


def _width_boxes(run: Run) -> tuple[Figure, str] | None:
    return _boxes(run, "width", "width")


def _boxes(
    run: Run, metric: str, label: str, log: bool = False, line: float | None = None
) -> tuple[Figure, str] | None:
    """Draw one horizontal box per row, actions side by side."""
    rows = [row for row in run.rows if _finite(run.final(row, "E", metric)[0]).size]
    if not rows:
        return None
    figure = Figure(figsize=(9, 1.35 + 0.29 * len(rows)))
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, action in zip(panels, _ACTIONS, strict=True):
        _box_panel(axes, run, rows, action, metric)
        axes.set(title=f"action {action}", xlabel=label)
        if log:
            axes.set_xscale("log")
        if line is not None:
            axes.axvline(line, color="#222222", linewidth=1, linestyle="--", zorder=1)
    handles = [_paper_mark()] + ([_line_mark(f"nominal {line:.0%}")] if line else [])
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    caption = (
        "Each box holds the final windows of all seeds that did not diverge: quartiles, median, "
        "whiskers to 1.5 interquartile ranges, and every value beyond. Nothing is cut. The "
        "triangle is the mean of the paper's table, which is after cutting."
    )
    return figure, caption


def _box_panel(axes: Axes, run: Run, rows: Sequence[Row], action: str, metric: str) -> None:
    values = [_finite(run.final(row, action, metric)[0]) for row in rows]
    places = np.arange(len(rows))
    drawn = axes.boxplot(
        values, positions=places, orientation="horizontal", widths=0.56,
        patch_artist=True, manage_ticks=False, medianprops={"linewidth": 1.4},
        flierprops={"marker": "o", "markersize": 2.5, "markeredgewidth": 0.5},
    )  # fmt: skip
    parts = (drawn["boxes"], drawn["medians"], drawn["fliers"])
    for row, patch, median, flier in zip(rows, *parts, strict=True):
        shade = colour(run, row)
        patch.set(facecolor=shade, edgecolor="#333333", linewidth=0.8)
        median.set_color("white" if np.dot(shade, _LUMINANCE) < 0.33 else "black")
        flier.set(markeredgecolor=shade)
    for place, row in zip(places, rows, strict=True):
        theirs = paper.indoor_escape().get(row.id)
        if theirs is not None:
            axes.plot(theirs[action][metric].mean, place - 0.4, **_PAPER_MARK)
    axes.set_yticks(places, [plain(row.name) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.7)
    axes.grid(axis="y", visible=False)


_PAPER_MARK: dict[str, Any] = {
    "marker": "v", "markersize": 5, "markerfacecolor": "#000000", "markeredgecolor": "white",
    "markeredgewidth": 0.6, "linestyle": "none", "zorder": 4,
}  # fmt: skip


def _paper_mark() -> Line2D:
    return Line2D([], [], label="the paper's mean", **_PAPER_MARK)


def _line_mark(label: str) -> Line2D:
    return Line2D([], [], color="#222222", linewidth=1, linestyle="--", label=label)


def _reliability(run: Run) -> tuple[Figure, str] | None:
    """Draw observed coverage over the nominal level: two kinds of interval, two actions."""
    rows = [row for row in run.rows if row.id in run.calibration]
    if not rows:
        return None
    kinds = {"coverage": "prediction interval", "credible_coverage": "credible interval"}
    figure = Figure(figsize=(9, 7.6))
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for line, (kind, title) in zip(panels, kinds.items(), strict=True):
        for axes, action in zip(line, _ACTIONS, strict=True):
            axes.plot([0, 1], [0, 1], color="#222222", linewidth=1, linestyle="--", zorder=1)
            for row in rows:
                _reliability_line(axes, run, row, action, kind)
            axes.set(title=f"{title}, action {action}", xlim=(0.47, 1.02), ylim=(-0.03, 1.03))
    for axes in panels[1]:
        axes.set_xlabel("nominal level")
    for axes in panels[:, 0]:
        axes.set_ylabel("observed coverage")
    _legend(figure, panels[0][0], _line_mark("perfect"))
    return figure, (
        "How often intervals of a nominal level hold the exact value, averaged over states and "
        "seeds. Lines below the diagonal are overconfident, lines above it cautious. Above: "
        "intervals centred on the latest sample; below: between the pool's own quantiles."
    )


def _reliability_line(axes: Axes, run: Run, row: Row, action: str, kind: str) -> None:
    part = run.calibration[row.id]
    chosen = (part["action"] == action) & np.isfinite(part[kind])
    levels = np.unique(part["level"][chosen])
    means = [part[kind][chosen & (part["level"] == level)].mean() for level in levels]
    axes.plot(
        levels, means, color=colour(run, row), marker=_MARKERS.get(row.algorithm, "."),
        markersize=4, linewidth=1.3, label=plain(row.name),
    )  # fmt: skip


def _learning(run: Run) -> tuple[Figure, str] | None:
    """Draw the MSE over the steps; bands for the largest N of each algorithm only."""
    rows = [row for row in run.rows if row.id in run.metrics and len(row.seeds) > len(row.diverged)]
    if not rows:
        return None
    figure = Figure(figsize=(9, 4.6))
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, action in zip(panels, _ACTIONS, strict=True):
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


def _learning_line(axes: Axes, run: Run, row: Row, action: str) -> None:
    part = run.metrics[row.id]
    chosen = (part["action"] == action) & np.isfinite(part["mse"])
    steps = np.unique(part["step"][chosen])
    bands = np.array(
        [
            np.quantile(part["mse"][chosen & (part["step"] == step)], [0.25, 0.5, 0.75])
            for step in steps
        ]
    ).reshape(-1, 3)
    shade, main = colour(run, row), row == run.family(row.algorithm)[-1]
    axes.plot(
        steps, bands[:, 1], color=shade, linewidth=1.8 if main else 1.1, label=plain(row.name)
    )
    if main:
        axes.fill_between(steps, bands[:, 0], bands[:, 2], color=shade, alpha=0.18, linewidth=0)


def _legend(figure: Figure, axes: Axes, *more: Line2D) -> None:
    handles = [*axes.get_legend_handles_labels()[0], *more]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=9)


def _finite(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    finite: npt.NDArray[Any] = values[np.isfinite(values)]
    return finite


def contents(figure: Figure) -> tuple[bytes, bytes]:
    """Return a figure as PNG and SVG; the same figure gives the same bytes."""
    figure.draw_without_rendering()  # lays it out, once for both
    figure.set_layout_engine("none")
    png, svg = io.BytesIO(), io.BytesIO()
    figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
    figure.savefig(svg, format="svg", metadata={"Date": None})
    return png.getvalue(), svg.getvalue()
