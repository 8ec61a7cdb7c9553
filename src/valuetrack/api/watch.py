"""What an agent is told of itself, once: values and returns that cannot both be true."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
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
APPROACH, LEAST_APPROACH = 0.05, 0.01
"""The share of the gap by which values come nearer to the returns if they merely lag behind: the
second where the target network allows no more."""


class Window(NamedTuple):
    """Means over the episodes of a window, for one seed.

    Attributes
    ----------
    episodes
        How many there are.
    value, came
        The value at their start, and their discounted return.
    gap, error
        By how much the values are too large, judged by what came while the policy was followed that
        they are of, and its standard error; see :mod:`valuetrack.training.beliefs`.
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

    came, squares = mean("discounted_returns"), mean("squared_reaches")
    gap, error = 0.0, np.inf
    if squares > 0:  # else every episode began with a random action
        gap = mean("reached_gaps") / squares
        left = max(0.0, mean("squared_gaps") - gap * mean("reached_gaps"))
        error = np.sqrt(left / squares / (count - 1))
    scale = max(abs(came), 4 * np.sqrt(max(0.0, mean("squared_returns") - came**2)))
    return Window(count, mean("start_values"), came, gap, float(error), float(scale))


def is_wrong(windows: Sequence[Window], lag: float = APPROACH) -> bool:
    """Return whether the last windows say that the values are wrong, and stay so.

    The gap must be wide in each and of one sign. Values that have come nearer to the returns by a
    share ``lag`` of it merely lag behind, as in every training.
    """
    recent = windows[-WINDOWS:]
    if len(recent) < WINDOWS or not all(window.is_wide for window in recent):
        return False
    first, last = recent[0], recent[-1]
    sign = np.sign(last.gap)
    if any(np.sign(window.gap) != sign for window in recent):
        return False
    return bool(sign * (first.value - last.value) < lag * abs(last.gap))


SUMS = (
    "believed",
    "start_values",
    "discounted_returns",
    "squared_returns",
    "squared_reaches",
    "reached_gaps",
    "squared_gaps",
)


class Watch:
    """Follows an agent's values and returns, window by window, and speaks once.

    Windows are cut where reports are made, so that nothing more is kept than sums.

    Parameters
    ----------
    name, seeds
        Of the agent.
    discount, target_every
        gamma, and after how many updates the target network is refreshed: each time, values come
        nearer to the truth by a share 1 - gamma at best.
    """

    def __init__(
        self, name: str, seeds: Sequence[int], discount: float, target_every: int | None
    ) -> None:
        self.name, self.seeds = name, seeds
        self.has_spoken = self.has_told_of_guard = False
        refreshed = (WINDOWS - 1) * UPDATES / (target_every or 1)
        self._lag = max(LEAST_APPROACH, min(APPROACH, (1 - discount**refreshed) / 2))
        self._sums = {name: np.zeros(len(seeds)) for name in SUMS}
        self._since = np.zeros(len(seeds), int)
        self._windows: list[list[Window]] = [[] for _ in seeds]

    def look(self, trace: Trace, updates: int) -> None:
        """Take the sums since the last look; warn, once, of the first seed that is wrong."""
        new = {name: np.asarray(getattr(trace, name), np.float64) for name in SUMS}
        self._sums = {name: total + new[name] for name, total in self._sums.items()}
        if not np.asarray(trace.learning).any():  # before the first update
            self._begin(np.ones_like(self._since, bool), updates)
        whole = (self._sums["believed"] >= EPISODES) & (updates - self._since >= UPDATES)
        closed: list[int] = np.flatnonzero(whole).tolist()
        for seed in closed:
            self._windows[seed] = [*self._windows[seed], window_of(self._sums, seed)][-WINDOWS:]
        self._begin(whole, updates)
        wrong = [seed for seed in closed if is_wrong(self._windows[seed], self._lag)]
        if wrong and not self.has_spoken:
            self.has_spoken = True
            said = sentence(self.name, self.seeds[wrong[0]], self._windows[wrong[0]][-1])
            warnings.warn(said, RuntimeWarning, stacklevel=2)

    def look_at_guard(self, halvings: NDArray) -> None:
        """Warn, once, that the guard has halved the step of some seeds; it is told how often."""
        if halvings.any() and not self.has_told_of_guard:
            self.has_told_of_guard = True
            seeds = ", ".join(
                str(seed) for seed, count in zip(self.seeds, halvings, strict=True) if count
            )
            warnings.warn(
                f"{self.name}'s values ran beyond what rewards and discount allow (seed {seeds}), "
                "so its step was halved and it goes on; a smaller step, or a target network that "
                "is refreshed less often, may help.",
                RuntimeWarning,
                stacklevel=2,
            )

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


def divergence(at: Mapping[int, int]) -> str:
    """Say which seeds diverged, and when."""
    return ", ".join(f"seed {seed} at update {update}" for seed, update in at.items())


def warn_of_divergence(name: str, at: Mapping[int, int]) -> None:
    """Say once, after a training, that seeds have diverged."""
    if at:
        said = f"{name} diverged: {divergence(at)}. Its values are NaN from there on; use a smaller"
        warnings.warn(f"{said} step size.", RuntimeWarning, stacklevel=3)
