"""The reliability diagram of a calibrated agent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from valuetrack.api.calibration import Calibration, Checked
from valuetrack.report.style import INK, LINE, Drawn, drawings, plain
from valuetrack.types import Floats
from valuetrack.values.conformal import rank

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAND = 0.95
"""How many coverages of exchangeable episodes the band contains."""
BEFORE, AFTER = "#E69F00", "#0072B2"
MOST_IN_LEGEND = 8


def reliability_diagram(
    title: str,
    seeds: Sequence[int],
    members: Sequence[Calibration | None],
    checked: Sequence[Checked | None],
    levels: Sequence[float],
) -> bytes:
    """Draw what fresh episodes say of a calibration, as PNG; needs the extra ``plot``.

    Left, how many of the fresh returns are in their intervals, by level; right, returns by value,
    before and after the correction.
    """
    every = zip(seeds, members, checked, strict=True)
    known = [(seed, c, fresh) for seed, c, fresh in every if c is not None and fresh is not None]

    def figures() -> Iterator[tuple[str, str, Drawn | None]]:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

        figure = Figure(figsize=(10, 4.8))
        left, right = figure.subplots(1, 2)
        figure.suptitle(plain(title))
        _coverage(left, known, levels)
        _values(right, known)
        yield "calibration", title, (figure, title)

    return drawings(figures())[0].png


def band(scores: int, episodes: int, levels: Sequence[float]) -> tuple[Floats, Floats]:
    """Return between which shares coverage lies in 95 % of all calibrations.

    If episodes are exchangeable and no two scores equal, the number of covered returns has a
    beta-binomial distribution with k and n + 1 - k, where k is the rank of the quantile.
    """
    ranks = np.array([rank(scores, level) for level in levels])
    ends = [
        stats.betabinom(episodes, k, scores + 1 - k).ppf([(1 - BAND) / 2, (1 + BAND) / 2])
        if k <= scores
        else (np.nan, np.nan)
        for k in ranks
    ]
    low, high = np.asarray(ends, np.float64).T / episodes
    return low, high


def _coverage(
    axes: Axes, known: Sequence[tuple[int, Calibration, Checked]], levels: Sequence[float]
) -> None:
    axes.plot([0, 1], [0, 1], **LINE)
    if known:
        _, one, fresh = known[0]
        low, high = band(len(one.scores), len(fresh.returns), levels)
        told = f"{BAND:.0%} of calibrations with {len(one.scores)} episodes"
        axes.fill_between(levels, low, high, color="#CCCCCC", alpha=0.6, linewidth=0, label=told)
    for place, (seed, _, fresh) in enumerate(known):
        label = f"seed {seed}" if place < MOST_IN_LEGEND else None
        axes.plot(levels, fresh.covered.mean(axis=1), marker="o", markersize=3, label=label)
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="level of the interval for the return")
    axes.set_ylabel("share of fresh returns in it")
    axes.legend(frameon=False, loc="upper left", fontsize=9)


def _values(axes: Axes, known: Sequence[tuple[int, Calibration, Checked]]) -> None:
    for place, (_, one, fresh) in enumerate(known):
        after = fresh.values + one.bias(fresh.values)
        for values, colour, label in (
            (fresh.values, BEFORE, "value"),
            (after, AFTER, "corrected value"),
        ):
            named = label if place == 0 else None
            axes.scatter(values, fresh.returns, s=12, alpha=0.6, color=colour, label=named)
    low, high = axes.get_xlim()
    axes.plot([low, high], [low, high], **LINE)
    axes.set(xlim=(low, high), xlabel="value at a random state of an episode")
    axes.set_ylabel("discounted return from there")
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
