"""The figure of tracked values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from valuetrack import posterior
from valuetrack.types import Keywords, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from valuetrack.api.tracking import SolvedPoints, Tracking

POINTS = 400
"""How many records a figure shows at most."""
ALARM: Keywords = {"color": "0.3", "linestyle": ":", "linewidth": 1}
"""How the line of an alarm looks."""
TOO_FEW = "(too few for an interval)"


def draw(
    record: Tracking, state: int, seed: int, window: int, level: float, truth: NDArray | None
) -> Figure:
    """Draw the values of one state: sliding mean, intervals and, if it is known, the truth."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError("Matplotlib is missing: pip install 'valuetrack[plot]'.") from error
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    of_states = len(record.shape) == 3
    for action in range(1 if of_states else record.shape[-1]):
        where = (seed, state) if of_states else (seed, state, action)
        label, colour = "this state" if of_states else f"action {action}", f"C{action}"
        exact = None if truth is None else float(truth if of_states else truth[action])
        _draw_one(axes, record, where, window, level, exact, label, colour)
    if record.alarms is not None:
        for step in record.alarms.steps[record.alarms.members == seed]:
            axes.axvline(step, **ALARM)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("V-value" if of_states else "Q-value")
    axes.set_title(_title(record, state, window, level), fontsize="medium")
    alarmed = record.alarms is not None and bool((record.alarms.members == seed).any())
    _add_legend(axes, known=truth is not None, alarmed=alarmed)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _draw_one(
    axes: Axes,
    record: Tracking,
    where: tuple[int, ...],
    window: int,
    level: float,
    truth: float | None,
    label: str,
    colour: str,
) -> None:
    """Draw the values of one action, or of the state itself."""
    at: Any = (slice(None), *where)
    band: Keywords = {"alpha": 0.2, "color": colour, "linewidth": 0}
    if len(record):
        shown = np.unique(np.linspace(0, len(record) - 1, POINTS).astype(int))
        steps = record.steps[shown]
        axes.plot(steps, record.mean(window)[shown][at], color=colour, linewidth=1.2, label=label)
        if record.solved is None and _suffices(record, window, level):
            low, high = record.interval(level, window, shown)
            axes.fill_between(steps, low[at], high[at], **band)
    if record.solved is not None:
        _draw_solved(axes, record, record.solved, at, level, colour, None if len(record) else label)
    if truth is not None and np.isfinite(truth):
        axes.axhline(truth, color=colour, linestyle="--", linewidth=1)


def _draw_solved(
    axes: Axes,
    record: Tracking,
    solved: SolvedPoints,
    at: Any,
    level: float,
    colour: str,
    label: str | None,
) -> None:
    """Draw points with bars, side by side; nothing is known between two points."""
    count = 1 if len(record.shape) == 3 else record.shape[-1]
    spacing = float(np.min(np.diff(solved.steps))) if len(solved.steps) > 1 else 0.0
    beside = 0.08 * spacing * (at[-1] - (count - 1) / 2) if count > 1 else 0.0
    low, high = record.value_interval(level)
    half, mean = (high[at] - low[at]) / 2, solved.mean[at]
    axes.errorbar(
        solved.steps + beside, mean, half, fmt="o", color=colour, markersize=3, capsize=2,
        linewidth=1, label=label,
    )  # fmt: skip


def _suffices(record: Tracking, window: int, level: float) -> bool:
    """Return whether a window holds the samples that an interval needs."""
    return bool(window * record.samples.shape[2] >= posterior.samples_needed(level))


def _title(record: Tracking, state: int, window: int, level: float) -> str:
    sliding = f"sliding mean of {window} records"
    if record.solved is None:
        suffices = _suffices(record, window, level)
        interval = f"and their {level:.0%} credible interval" if suffices else TOO_FEW
        return f"Values of state {state}: {sliding} {interval}"
    solved = f"solved from the replay memory, with the {level:.0%} interval for the value"
    lines = f"; lines: {sliding}" if len(record) else ""
    return f"Values of state {state}{lines}\npoints: {solved}"


def _add_legend(axes: Axes, *, known: bool, alarmed: bool) -> None:
    """Put the legend beside the axes, where it hides nothing."""
    from matplotlib.lines import Line2D  # noqa: PLC0415 - an extra

    handles, labels = axes.get_legend_handles_labels()
    if known:
        handles.append(Line2D([], [], color="0.4", linestyle="--", linewidth=1))
        labels.append("exact value")
    if alarmed:
        handles.append(Line2D([], [], **ALARM))
        labels.append("alarm")
    axes.legend(handles, labels, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
