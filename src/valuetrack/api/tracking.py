"""Values that were watched while the policy learned."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from valuetrack import posterior
from valuetrack.api import tracking_figure
from valuetrack.api.alarms import ALARMS, Raised
from valuetrack.posterior import Interval
from valuetrack.types import Arrays, NDArray
from valuetrack.values.sandwich import Values

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOLVED = "solved"
"""What the names of saved arrays begin with."""


class SolvedPoints(NamedTuple):
    """Values solved from the replay memory at some points of a training."""

    steps: NDArray
    updates: NDArray
    """Environment steps and updates at each point, (points,)."""
    mean: NDArray
    sd: NDArray
    bound: NDArray
    """The values, their standard errors, and how large a value could be at all by the rewards that
    were remembered: (points, seeds, states, actions). V-values have no axis of actions."""


@dataclass(frozen=True)
class Tracking:
    """Values at chosen observations over the updates of a training.

    Attributes
    ----------
    steps, updates
        Environment steps and updates at each record, (records,).
    samples
        The Q-values after these updates, (records, seeds, m, states, actions), with m > 1 for an
        agent of several heads; V-values have no axis of actions.
    solved
        The values solved from the replay memory, if they were.
    alarms
        When the errors of the values said that the world has changed, if somebody looked.
    """

    steps: NDArray
    updates: NDArray
    samples: NDArray
    solved: SolvedPoints | None = None
    alarms: Raised | None = None

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.updates)

    def mean(self, window: int = 100) -> NDArray:
        """Return the sliding mean over ``window`` records, without the axis m of the samples.

        The first records have a shorter window.
        """
        self._check(window)
        values = self.samples.mean(axis=2, dtype=np.float64)
        total = np.cumsum(values, axis=0)
        total[window:] -= total[:-window].copy()
        count = np.minimum(np.arange(1, len(self) + 1), window)
        return np.asarray(total / count.reshape(-1, *(1,) * (total.ndim - 1)))

    def interval(
        self, level: float = 0.95, window: int = 100, records: npt.ArrayLike | None = None
    ) -> tuple[NDArray, NDArray]:
        """Return the sliding credible interval: quantiles of the last ``window`` records.

        ``records`` are the indices at which it is wanted; all by default. The first records, whose
        window does not hold the samples that the level needs yet, have none: NaN.
        """
        self._check(window)
        heads, needed = self.samples.shape[2], posterior.samples_needed(level)
        if window * heads < needed:
            raise ValueError(
                f"An interval of level {level:g} from samples needs at least {needed} of them, "
                f"more than a window of {window} records holds; choose a larger window."
            )
        wanted = np.arange(len(self)) if records is None else np.asarray(records)
        low, high = np.full((2, len(wanted), *self.shape[1:]), np.nan)
        for place, record in enumerate(wanted):
            recent = self.samples[max(0, record + 1 - window) : record + 1]
            if len(recent) * heads < needed:
                continue
            # The heads of an ensemble count as samples.
            recent = np.moveaxis(recent, 2, 1).reshape(-1, *self.shape[1:])
            ends = posterior.credible_interval(posterior.from_samples(recent), level)
            low[place], high[place] = ends
        return low, high

    def value_interval(self, level: float = 0.95) -> Interval:
        """Return the intervals for the value itself, at the points of ``solved``.

        Each end has the shape (points, seeds, states, actions).
        """
        if self.solved is None:
            raise ValueError(
                "No values were solved in this training: pass `track_intervals_every=1000` to "
                "`learn`."
            )
        return Values(self.solved.mean, self.solved.sd, bound=self.solved.bound).interval(level)

    def plot(
        self,
        path: str | Path | None = None,
        *,
        state: int = 0,
        seed: int = 0,
        window: int = 100,
        level: float = 0.95,
        truth: npt.ArrayLike | None = None,
    ) -> Figure | None:
        """Draw the values of one state over the training; return the figure, or save it.

        Bars are the intervals for the value itself, at the points where they were solved; without
        any, a band is the sliding credible interval. Dotted lines are the seed's alarms. Needs the
        extra ``plot``.

        Parameters
        ----------
        path
            Where to save the figure; without it, the figure is returned.
        state, seed
            Positions among the tracked observations and among the seeds.
        window, level
            Of the sliding mean, and of the intervals.
        truth
            The exact values, (states, actions), where they are known; NaN where they are not.
        """
        if not len(self) and self.solved is None:
            self._check(window)
        for name, index, count in (("seed", seed, self.shape[1]), ("state", state, self.shape[2])):
            if not 0 <= index < count:
                raise ValueError(f"There are {count} {name}s, numbered from 0, so no {index}.")
        exact = None if truth is None else np.asarray(truth, np.float64)
        if exact is not None and exact.shape != self.shape[2:]:
            raise ValueError(
                f"truth has the shape {self.shape[2:]} of the tracked values, not {exact.shape}."
            )
        figure = tracking_figure.draw(
            self, state, seed, window, level, None if exact is None else exact[state]
        )
        if path is None:
            return figure
        figure.savefig(path, dpi=150)
        return None

    def save(self, path: str | Path) -> None:
        """Write all records to an ``.npz`` file of plain arrays."""
        np.savez_compressed(path, **self.arrays())  # type: ignore[arg-type]

    def arrays(self) -> dict[str, NDArray]:
        """Return all records as named arrays."""
        plain = {"steps": self.steps, "updates": self.updates, "samples": self.samples}
        solved = {} if self.solved is None else self.solved._asdict()
        raised = {} if self.alarms is None else self.alarms._asdict()
        return {
            **plain,
            **{f"{SOLVED}.{name}": array for name, array in solved.items()},
            **{f"{ALARMS}.{name}": array for name, array in raised.items()},
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Return the records that :meth:`arrays` gave.

        Raises
        ------
        KeyError
            If one is missing.
        """
        solved = None
        if f"{SOLVED}.steps" in arrays:
            solved = SolvedPoints(*(arrays[f"{SOLVED}.{name}"] for name in SolvedPoints._fields))
        alarms = None
        if f"{ALARMS}.steps" in arrays:
            alarms = Raised(*(arrays[f"{ALARMS}.{name}"] for name in Raised._fields))
        return cls(arrays["steps"], arrays["updates"], arrays["samples"], solved, alarms)

    def until(self, updates: int) -> Tracking:
        """Return the records up to an update."""
        known, solved, alarms = self.updates <= updates, self.solved, self.alarms
        if solved is not None:
            kept = solved.updates <= updates
            solved = SolvedPoints(*(part[kept] for part in solved))
        if alarms is not None:
            alarms = Raised(*(part[alarms.updates <= updates] for part in alarms))
        return Tracking(self.steps[known], self.updates[known], self.samples[known], solved, alarms)

    def then(self, later: Tracking) -> Tracking:
        """Return these records and those of a training that went on, which begin where they do."""
        before = self.until(int(later.updates[0]) - 1) if len(later) else self
        parts = [part for part in (before, later) if len(part)] or [self]
        steps, updates, samples = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("steps", "updates", "samples")
        )
        # Alarms are kept from the beginning, also by a training that goes on.
        alarms = self.alarms if later.alarms is None else later.alarms
        return Tracking(steps, updates, samples, _joined(self.solved, later.solved), alarms)

    def of_states(self) -> Tracking:
        """Return the records without the axis of actions, as those of V-values have none."""
        solved = self.solved
        if solved is not None:
            mean, sd, bound = (part[..., 0] for part in (solved.mean, solved.sd, solved.bound))
            solved = solved._replace(mean=mean, sd=sd, bound=bound)
        return dataclasses.replace(self, samples=self.samples[..., 0], solved=solved)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the means: (records, seeds, states, actions), or without the last."""
        if not len(self) and self.solved is not None:
            return 0, *self.solved.mean.shape[1:]
        records, seeds, _, *values = self.samples.shape
        return records, seeds, *values

    def _check(self, window: int) -> None:
        if window < 1:
            raise ValueError(f"A window holds at least one record, not {window}.")
        if not len(self):
            raise ValueError("Nothing was tracked: pass `track=observations` to `learn`.")


def _joined(before: SolvedPoints | None, later: SolvedPoints | None) -> SolvedPoints | None:
    """Return the points of both; the later ones begin where they do."""
    if before is None or later is None:
        return later if before is None else before
    kept = before.updates < later.updates[0]
    pairs = zip(before, later, strict=True)
    return SolvedPoints(*(np.concatenate([old[kept], new]) for old, new in pairs))
