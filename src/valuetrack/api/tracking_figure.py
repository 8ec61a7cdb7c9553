"""The figure of tracked values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from valuetrack.types import Keywords, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from valuetrack.api.tracking import Tracking

POINTS = 400
"""How many records a figure shows at most."""


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
    axes.set_xlabel("environment steps")
    axes.set_ylabel("V-value" if of_states else "Q-value")
    axes.set_title(_title(record, state, window, level), fontsize="medium")
    _add_legend(axes, known=truth is not None)
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
        if record.solved is None:
            low, high = record.interval(level, window, shown)
            axes.fill_between(steps, low[at], high[at], **band)
    if record.solved is not None:
        low, high = record.value_interval(level)
        steps = record.solved.steps
        given = None if len(record) else label
        axes.plot(steps, record.solved.mean[at], "o", color=colour, markersize=3, label=given)
        axes.fill_between(steps, low[at], high[at], **band)
    if truth is not None and np.isfinite(truth):
        axes.axhline(truth, color=colour, linestyle="--", linewidth=1)


def _title(record: Tracking, state: int, window: int, level: float) -> str:
    sliding = f"sliding mean of {window} records"
    if record.solved is None:
        return f"Values of state {state}: {sliding} and their {level:.0%} credible interval"
    solved = f"points: solved from the replay memory, with the {level:.0%} interval for the value"
    return f"Values of state {state}\n{f'lines: {sliding}; ' if len(record) else ''}{solved}"


def _add_legend(axes: Axes, *, known: bool) -> None:
    """Put the legend beside the axes, where it hides nothing."""
    from matplotlib.lines import Line2D  # noqa: PLC0415 - an extra

    handles, labels = axes.get_legend_handles_labels()
    if known:
        handles.append(Line2D([], [], color="0.4", linestyle="--", linewidth=1))
        labels.append("exact value")
    axes.legend(handles, labels, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
