"""Q-values with what is known about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from valuetrack import posterior
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
        return np.asarray(posterior.mean(self._pool))

    @property
    def std(self) -> NDArray:
        """The standard deviation over the samples; NaN if there is only one."""
        return np.asarray(posterior.std(self._pool))

    def interval(self, level: float = 0.95, kind: IntervalKind = "credible") -> Bounds:
        """Return an interval for every Q-value.

        ``"credible"`` goes from quantile to quantile of the samples; ``"prediction"`` is as wide,
        and centred on the latest sample: the interval of the paper's coverage rates. A single
        sample has no interval: NaN.
        """
        if kind == "prediction":
            low, high = posterior.prediction_interval(self._pool, level, self.latest)
        else:
            low, high = posterior.interval(self._pool, level, kind)
        if len(self.samples) < 2:
            return Bounds(np.full_like(low, np.nan), np.full_like(high, np.nan))
        return Bounds(low, high)

    def policy_probabilities(self, mask: Any = None) -> NDArray:
        """Return how often each action is the greedy one among the samples, (..., actions).

        ``mask`` marks the legal actions, with the shape of one sample or of its last axis. Where a
        sample is NaN, so are the probabilities.
        """
        return np.asarray(posterior.policy_probabilities(self._pool, mask))

    @property
    def _pool(self) -> posterior.Pool:
        return posterior.from_samples(self.samples)
