"""Q-values with what is known about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from valuetrack.metrics import policy_probabilities
from valuetrack.posterior import IntervalKind

NDArray = npt.NDArray[Any]

INITIAL = "the initial parameters, not a posterior"
"""What the only sample is before the first update."""


class Bounds(NamedTuple):
    """The ends of an interval for every Q-value."""

    low: NDArray
    high: NDArray


@dataclass(frozen=True)
class Estimate:
    """Samples of Q-values at some observations.

    Attributes
    ----------
    samples
        From the oldest to the latest, (samples, ..., actions).
    latest
        The values of the current parameters, (..., actions).
    what
        What the samples are: draws from a posterior, or something weaker.
    is_posterior
        Whether they are draws from a posterior.
    """

    samples: NDArray
    latest: NDArray
    what: str
    is_posterior: bool

    @property
    def mean(self) -> NDArray:
        """The mean over the samples."""
        return np.asarray(self.samples.mean(axis=0))

    @property
    def std(self) -> NDArray:
        """The standard deviation over the samples; NaN if there is only one."""
        if len(self.samples) < 2:
            return np.full_like(self.latest, np.nan)
        return np.asarray(self.samples.std(axis=0, ddof=1))

    def interval(self, level: float = 0.95, kind: IntervalKind = "credible") -> Bounds:
        """Return an interval for every Q-value.

        ``"credible"`` goes from quantile to quantile of the samples; ``"prediction"`` is as wide,
        and centred on the latest sample: the interval of the paper's coverage rates. A single
        sample has no interval: NaN.
        """
        if not 0 < level < 1:
            raise ValueError(f"The level of an interval lies between 0 and 1; {level} does not.")
        low, high = np.quantile(self.samples, [(1 - level) / 2, (1 + level) / 2], axis=0)
        if len(self.samples) < 2:
            low, high = np.full_like(low, np.nan), np.full_like(high, np.nan)
        if kind == "credible":
            return Bounds(low, high)
        if kind == "prediction":
            half = (high - low) / 2
            return Bounds(self.latest - half, self.latest + half)
        raise ValueError(f"An interval is 'credible' or 'prediction', not {kind!r}.")

    def policy_probabilities(self, mask: Any = None) -> NDArray:
        """Return how often each action is the greedy one among the samples, (..., actions).

        ``mask`` marks the legal actions, with the shape of one sample or of its last axis. Where a
        sample is NaN, so are the probabilities.
        """
        shape = self.samples.shape[1:]
        legal = np.ones(shape, bool) if mask is None else np.broadcast_to(mask, shape)
        count = len(self.samples)
        flat = self.samples.reshape(count, -1, shape[-1])
        probabilities = policy_probabilities(flat, legal.reshape(-1, shape[-1]))
        undefined = np.asarray(np.isnan(self.samples).any(axis=(0, -1)))
        return np.where(undefined[..., None], np.nan, np.reshape(probabilities, shape))
