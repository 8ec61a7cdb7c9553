"""Noticing that an agent's values and the returns of its episodes cannot both be true."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from valuetrack.training.trainer import Trace
from valuetrack.types import NDArray

EPISODES, UPDATES = 20, 1_000
"""What a window holds at least: that many episodes, and that many updates."""
WINDOWS = 3
"""In how many windows, one after the other, a gap must show."""
ERRORS, SHARE = 5.0, 0.25
"""How many standard errors, and which share of the scale of the returns, a gap must exceed."""
APPROACH = 0.1
"""The share of the gap by which values come nearer to the returns if they merely lag behind."""


class Window(NamedTuple):
    """Means over the episodes of a window, for one seed.

    Attributes
    ----------
    episodes
        How many there are.
    value, came
        The value at their start, and their discounted return.
    gap, error
        The value less what came while the policy was followed that the values are of, and the
        standard error of its mean; see :mod:`valuetrack.training.beliefs`.
    scale
        Of the returns: four times their sd, or the size of their mean if that is larger.
    """

    episodes: int
    value: float
    came: float
    gap: float
    error: float
    scale: float

    @property
    def is_wide(self) -> bool:
        """Whether the gap is more than noise, and more than a detail."""
        return abs(self.gap) > max(ERRORS * self.error, SHARE * self.scale)


def window_of(sums: dict[str, NDArray], seed: int) -> Window:
    """Return the means of a seed's sums, which are those of :class:`Trace` by their names."""
    count = int(sums["believed"][seed])

    def mean(name: str) -> float:
        return float(sums[name][seed]) / count

    def sd(name: str, squared: str) -> float:
        return float(np.sqrt(max(0.0, mean(squared) - mean(name) ** 2)))

    came, gap = mean("discounted_returns"), mean("gaps")
    error = sd("gaps", "squared_gaps") / np.sqrt(count - 1)
    scale = max(abs(came), 4 * sd("discounted_returns", "squared_returns"))
    return Window(count, mean("start_values"), came, gap, float(error), scale)


def is_wrong(windows: list[Window]) -> bool:
    """Return whether the last windows say that the values are wrong, and stay so.

    The gap must be wide in each and of one sign. Values that are on their way towards the returns
    lag behind, as in every training, and are not wrong.
    """
    recent = windows[-WINDOWS:]
    if len(recent) < WINDOWS or not all(window.is_wide for window in recent):
        return False
    first, last = recent[0], recent[-1]
    sign = np.sign(last.gap)
    if any(np.sign(window.gap) != sign for window in recent):
        return False
    return bool(sign * (first.value - last.value) < APPROACH * abs(last.gap))


SUMS = (
    "believed",
    "start_values",
    "discounted_returns",
    "squared_returns",
    "gaps",
    "squared_gaps",
)


class Watch:
    """Follows an agent's values and returns, window by window, and speaks once.

    Windows are cut where reports are made, so that nothing more is kept than sums.
    """

    def __init__(self, name: str, seeds: Sequence[int]) -> None:
        self.name, self.seeds, self.has_spoken = name, seeds, False
        self._sums = {name: np.zeros(len(seeds)) for name in SUMS}
        self._since = np.zeros(len(seeds), int)
        self._windows: list[list[Window]] = [[] for _ in seeds]

    def look(self, trace: Trace, updates: int) -> None:
        """Take the sums since the last look; warn, once, of the first seed that is wrong."""
        for name, total in self._sums.items():
            total += np.asarray(getattr(trace, name), np.float64)
        if not np.asarray(trace.learning).any():  # before the first update
            self._begin(np.ones_like(self._since, bool), updates)
        whole = (self._sums["believed"] >= EPISODES) & (updates - self._since >= UPDATES)
        for seed in np.flatnonzero(whole):
            self._windows[seed] = [*self._windows[seed], window_of(self._sums, seed)][-WINDOWS:]
        self._begin(whole, updates)
        wrong = [seed for seed in np.flatnonzero(whole) if is_wrong(self._windows[seed])]
        if wrong and not self.has_spoken:
            self.has_spoken = True
            said = sentence(self.name, self.seeds[wrong[0]], self._windows[wrong[0]][-1])
            warnings.warn(said, RuntimeWarning, stacklevel=2)

    def _begin(self, which: NDArray, updates: int) -> None:
        for total in self._sums.values():
            total[which] = 0.0
        self._since[which] = updates


def sentence(name: str, seed: int, window: Window) -> str:
    """Say what was believed, and what came."""
    direction = "high" if window.gap > 0 else "low"
    cure = "a smaller step, or a target network that is refreshed less often, may help"
    if window.gap < 0:
        cure = "a larger step, or a target network that is refreshed more often, may help"
    return (
        f"{name}'s values are too {direction}: over the last {window.episodes} episodes of seed "
        f"{seed}, it expected a discounted return of {window.value:.4g} at their start, and "
        f"{window.came:.4g} came on average; {cure}."
    )
