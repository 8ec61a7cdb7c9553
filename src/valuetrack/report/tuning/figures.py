"""The figures of a search; needs Matplotlib, the extra ``plot``."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from valuetrack.report.control.data import Task
from valuetrack.report.control.figures import task_figure
from valuetrack.report.style import INK, OTHER, Drawn, Figures, name_rows, plain
from valuetrack.report.tuning.data import Trial, TuneRun
from valuetrack.types import Floats, Json

_COLOURS = "viridis"
_WIDTH = 9.6
_COLUMNS = 3


def figures(run: TuneRun) -> Figures:
    """Draw all figures that can be made from what has finished of a search."""
    done = [trial for trial in run.finished if trial.value is not None]
    yield "history", "The search", history(run, done)
    yield "settings", "Each setting and what came of it", slices(run, done)
    yield "parallel", "All settings of each trial", parallel(run, done)
    yield "importances", "What matters", importances(run)
    if run.fresh:
        task = Task(run.search.env, "fresh", tuple(run.fresh))
        yield "fresh", f"Returns on {run.search.env}, fresh seeds", task_figure(task)


def history(run: TuneRun, done: Sequence[Trial]) -> Drawn | None:
    """Draw the value of each trial, and the best so far."""
    if not done:
        return None
    figure = Figure(figsize=(_WIDTH, 3.4))
    axes = figure.subplots()
    numbers, values = [t.number for t in done], [float(t.value or 0.0) for t in done]
    early = [
        (t.number, list(t.points.values())[-1])
        for t in run.finished
        if t.state == "pruned" and t.points
    ]
    axes.step(numbers, np.maximum.accumulate(values), where="post", color=INK, label="best so far")
    axes.plot(numbers, values, "o", color=OTHER, label="finished")
    if early:
        axes.plot(*zip(*early, strict=True), "x", color="#999999", label="stopped early")
    axes.set(xlabel="trial", ylabel=run.search.objective)
    axes.legend(frameon=False)
    return figure, (
        "The objective of every trial, and the best so far; of trials that were stopped early, at "
        "their last point."
    )


def slices(run: TuneRun, done: Sequence[Trial]) -> Drawn | None:
    """Draw the value of every finished trial over each of its settings."""
    if not done:
        return None
    names = list(run.search.space)
    lines = math.ceil(len(names) / _COLUMNS)
    figure = Figure(figsize=(_WIDTH, 2.6 * lines))
    panels = figure.subplots(lines, _COLUMNS, squeeze=False, sharey=True).ravel()
    for axes, name in zip(panels, names, strict=False):
        places = _places(run.search.space[name], [trial.settings.get(name) for trial in done])
        axes.scatter(
            places, [trial.value for trial in done], s=16, color=OTHER, edgecolor=INK, linewidth=0.4
        )
        _name_axis(axes, run.search.space[name], name)
    for axes in panels[: len(names) : _COLUMNS]:
        axes.set_ylabel(run.search.objective)
    for axes in panels[len(names) :]:
        axes.remove()
    return figure, "The objective of the trials that came to their end, over each setting."


def parallel(run: TuneRun, done: Sequence[Trial]) -> Drawn | None:
    """Draw every finished trial as a line through its settings, coloured by its value."""
    if len(done) < 2:
        return None
    names = list(run.search.space)
    values = np.array([float(trial.value or 0.0) for trial in done])
    shade = ScalarMappable(Normalize(values.min(), values.max()), _COLOURS)
    figure = Figure(figsize=(_WIDTH, 3.8))
    axes = figure.subplots()
    heights = np.stack([_heights(run.search.space[name], done, name) for name in names], axis=1)
    for place in np.argsort(values):
        axes.plot(heights[place], color=shade.to_rgba(values[place]), linewidth=1.4)
    axes.set_xticks(range(len(names)), [plain(name) for name in names], rotation=30, ha="right")
    axes.set_yticks([0, 1], ["low", "high"])
    figure.colorbar(shade, ax=axes, label=run.search.objective)
    return figure, (
        "A line for every trial that came to its end, through its settings, each from the lowest "
        "to the highest value, or from the first choice to the last."
    )


def importances(run: TuneRun) -> Drawn | None:
    """Draw how much each setting matters."""
    if not run.importances:
        return None
    figure = Figure(figsize=(_WIDTH, 0.9 + 0.32 * len(run.importances)))
    axes = figure.subplots()
    axes.barh(range(len(run.importances)), list(run.importances.values()), color=OTHER)
    name_rows(axes, list(run.importances), top=0.6, bottom=0.4)
    axes.set_xlabel("share")
    return figure, (
        "How much each setting decides whether a trial is among the best tenth (PED-ANOVA), from "
        "the trials that came to their end; with few trials, a hint and no more."
    )


def _places(parameter: Json, values: Sequence[object]) -> Floats:
    """Return where values stand on their axis: choices in their order."""
    choices = parameter.get("choices")
    if choices is None:
        return np.array([float(str(value)) for value in values])
    written = [json.dumps(choice) for choice in choices]
    return np.array([written.index(json.dumps(value)) for value in values], np.float64)


def _heights(parameter: Json, done: Sequence[Trial], name: str) -> Floats:
    """Return values between 0 and 1, from one end of the space to the other."""
    places = _places(parameter, [trial.settings.get(name) for trial in done])
    choices = parameter.get("choices")
    if choices is not None:
        return places / max(1, len(choices) - 1)
    ends = np.array([parameter["low"], parameter["high"]], np.float64)
    if parameter.get("log"):
        places, ends = np.log(places), np.log(ends)
    return np.asarray((places - ends[0]) / (ends[1] - ends[0]))


def _name_axis(axes: Axes, parameter: Json, name: str) -> None:
    choices = parameter.get("choices")
    axes.set_xlabel(plain(name))
    if choices is not None:
        axes.set_xticks(range(len(choices)), [plain(str(choice)) for choice in choices], fontsize=8)
    elif parameter.get("log"):
        axes.set_xscale("log")
