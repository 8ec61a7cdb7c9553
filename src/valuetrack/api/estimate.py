"""Values with what is known about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from valuetrack import posterior
from valuetrack.api.calibration import Lookup
from valuetrack.posterior import Interval, Pool
from valuetrack.posterior import IntervalKind as PoolIntervalKind
from valuetrack.types import NDArray
from valuetrack.values.sandwich import Values

IntervalKind = Literal["value", "return"] | PoolIntervalKind

INITIAL = "the initial parameters, not a posterior"
"""What the only sample is before the first update."""


@dataclass(frozen=True, repr=False)
class Estimate:
    """Samples of Q-values at some observations, or of V-values, which have no axis of actions.

    Attributes
    ----------
    samples
        From the oldest to the latest, (samples, ..., actions), or (samples, ...) of V-values.
    latest
        The values of the current parameters, (..., actions) or (...).
    what
        What the samples are: draws from a posterior, or something weaker.
    is_posterior
        Whether they are draws from a posterior.
    weights
        The weight of each sample: the step size it was drawn with, as in the paper's Remark 1.
    of
        Whether they are values of actions, Q(s, a), or of states, V(s).
    solve
        Solves the values from the replay memory; ``None`` where there is none.
    calibration
        What the agent's own episodes have taught, if it was calibrated.
    """

    samples: NDArray
    latest: NDArray
    what: str
    is_posterior: bool
    weights: NDArray | None = None
    of: Literal["q", "v"] = "q"
    solve: Callable[[], Values] | None = field(default=None, compare=False)
    calibration: Lookup = field(default=Lookup(), compare=False)

    @cached_property
    def pool(self) -> Pool:
        """The samples as a pool, for the functions of :mod:`valuetrack.posterior`."""
        return posterior.from_samples(self.samples, self.weights)

    @property
    def mean(self) -> NDArray:
        """The mean over the samples, weighted by their step sizes."""
        return np.asarray(posterior.weighted_mean(self.pool), self.samples.dtype)

    @property
    def std(self) -> NDArray:
        """The standard deviation over the samples; NaN if there is only one."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.sqrt(posterior.variance(self.pool)), self.samples.dtype)

    @cached_property
    def solved(self) -> Values:
        """The values solved from the replay memory, ``mean``, and their standard errors, ``sd``.

        They are those of the policy that ``predict`` follows, or of the one that SARSA and a
        ``ValueTracker`` learn the values of. See :mod:`valuetrack.values`.
        """
        if self.solve is None:
            raise ValueError(
                "This estimate has no replay memory behind it to solve values from; ask for "
                "kind='credible', or ask an agent's posterior."
            )
        return Values(*(np.asarray(part, self.samples.dtype) for part in self.solve()))

    def interval(self, level: float = 0.95, kind: IntervalKind = "credible") -> Interval:
        """Return an interval for every Q-value.

        ``"value"`` is for the value itself: :attr:`solved` with normal quantiles, corrected and
        scaled if the agent is calibrated. ``"credible"`` goes from quantile to quantile of the
        samples; ``"prediction"`` is as wide, and centred on the latest sample: the interval of the
        paper's coverage rates. A single sample has neither of these two: NaN.

        ``"return"`` is for the discounted return of one episode that goes on from here with the
        policy's own actions; the agent must be calibrated. Take a new episode, and a state drawn
        uniformly from its steps: the interval there, of the action that the policy takes, contains
        the return with a probability of at least ``level``, and of at most ``level + 1 / (n + 1)``
        if no two scores are equal, where n is half the number of calibrating episodes. This needs
        nothing but that episodes are exchangeable: one state of each was used, since those of one
        episode depend on each other. It is an average over states and calibrations, not a promise
        for each. Other actions have the same spread around their own values, without a guarantee.
        Where episodes were cut off, it is for states and returns as
        :meth:`~valuetrack.api.playing.Player.calibrate` uses them.
        """
        if kind == "value":
            return self.calibration.value_interval(self.solved, level)
        if kind == "return":
            return self.calibration.return_interval(self.latest, level)
        if kind not in get_args(PoolIntervalKind):
            raise ValueError(
                f"An interval is 'value', 'return', 'credible' or 'prediction', not {kind!r}."
            )
        low, high = posterior.interval(self.pool, level, kind, centre=self.latest)
        if len(self.samples) < 2:
            low, high = np.full_like(low, np.nan), np.full_like(high, np.nan)
        return Interval(low, high)

    def policy_probabilities(self, mask: npt.ArrayLike | None = None) -> NDArray:
        """Return how often each action is the greedy one among the samples, (..., actions).

        ``mask`` marks the legal actions, with the shape of one sample or of its last axis. Where a
        sample is NaN, so are the probabilities.
        """
        if self.of == "v":
            raise ValueError("V-values choose no action; track Q-values with of='q'.")
        legal = None if mask is None else np.broadcast_to(mask, self.samples.shape[1:])
        return np.asarray(posterior.policy_probabilities(self.pool, legal))

    def __repr__(self) -> str:
        """Say what it is in a few lines."""
        count, *shape = self.samples.shape
        name = f"{self.of.upper()}-value"
        values = f"{' x '.join(map(str, shape))} {name}s" if shape else f"one {name}"
        mean = np.array2string(self.mean, precision=4, threshold=8)
        return f"Estimate of {values} from {count} samples\n  what: {self.what}\n  mean: {mean}"
