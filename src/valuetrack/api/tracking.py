"""Values that were watched while the policy learned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from valuetrack import posterior
from valuetrack.types import NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = 400
"""How many records a figure shows at most."""


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
    """

    steps: NDArray
    updates: NDArray
    samples: NDArray

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

        ``records`` are the indices at which it is wanted; all by default.
        """
        self._check(window)
        wanted = np.arange(len(self)) if records is None else np.asarray(records)
        low, high = np.empty((2, len(wanted), *self._shape[1:]))
        for place, record in enumerate(wanted):
            recent = self.samples[max(0, record + 1 - window) : record + 1]
            # The heads of an ensemble count as samples.
            recent = np.moveaxis(recent, 2, 1).reshape(-1, *self._shape[1:])
            ends = posterior.credible_interval(posterior.from_samples(recent), level)
            low[place], high[place] = ends
        return low, high

    def plot(
        self,
        path: str | Path | None = None,
        *,
        state: int = 0,
        seed: int = 0,
        window: int = 100,
        level: float = 0.95,
    ) -> Figure | None:
        """Draw the values of one state over the training; return the figure, or save it.

        Needs the extra ``plot``.
        """
        try:
            from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ImportError("Matplotlib is missing: pip install 'valuetrack[plot]'.") from error
        self._check(window)
        for name, index, count in (
            ("seed", seed, self._shape[1]),
            ("state", state, self._shape[2]),
        ):
            if not 0 <= index < count:
                raise ValueError(f"There are {count} {name}s, numbered from 0, so no {index}.")
        shown = np.unique(np.linspace(0, max(0, len(self) - 1), POINTS).astype(int))
        low, high = self.interval(level, window, shown)
        mean, steps = self.mean(window)[shown], self.steps[shown]
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes = figure.add_subplot()
        of_states = len(self._shape) == 3
        for action in range(1 if of_states else self._shape[-1]):
            where = (slice(None), seed, state, *(() if of_states else (action,)))
            (line,) = axes.plot(
                steps, mean[where], label="this state" if of_states else f"action {action}"
            )
            axes.fill_between(
                steps, low[where], high[where], alpha=0.2, color=line.get_color(), linewidth=0
            )
        axes.set_xlabel("environment steps")
        axes.set_ylabel("V-value" if of_states else "Q-value")
        axes.set_title(
            f"Values of state {state}: sliding mean and {level:.0%} interval of {window} records"
        )
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        if path is None:
            return figure
        figure.savefig(path, dpi=150)
        return None

    def save(self, path: str | Path) -> None:
        """Write all records to an ``.npz`` file of plain arrays."""
        np.savez_compressed(path, steps=self.steps, updates=self.updates, samples=self.samples)

    @property
    def _shape(self) -> tuple[int, ...]:
        """The shape of the means: (records, seeds, states, actions), or without the last."""
        records, seeds, _, *values = self.samples.shape
        return records, seeds, *values

    def _check(self, window: int) -> None:
        if window < 1:
            raise ValueError(f"A window holds at least one record, not {window}.")
        if not len(self):
            raise ValueError("Nothing was tracked: pass `track=observations` to `learn`.")
