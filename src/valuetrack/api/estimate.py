"""Values with what is known about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from valuetrack import diagnostics, posterior
from valuetrack.api.calibration import Lookup
from valuetrack.posterior import Interval, Pool
from valuetrack.posterior import IntervalKind as PoolIntervalKind
from valuetrack.types import NDArray
from valuetrack.values.sandwich import Values

IntervalKind = Literal["value", "return"] | PoolIntervalKind

INITIAL = "the initial parameters, not a posterior"
"""What the only sample is before the first update."""


class Quantiles(NamedTuple):
    """Quantiles of the return's law, which the environment's and the policy's randomness make.

    They say nothing of how sure the values are: of a game of dice whose law is known exactly they
    still lie apart. They are as learned, so that neighbours may have crossed.
    """

    levels: NDArray
    """(M,), each between 0 and 1."""
    values: NDArray
    """(..., actions, M)."""


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
    chains
        How many chains the samples are, one after the other, if they are those of all seeds: one
        per seed, and per head of an agent with several.
    read_quantiles
        Reads the quantiles of the return, (..., actions, M); ``None`` where none are learned.
    calibration
        What the agent's own episodes have taught, if it was calibrated.
    acted_on
        The values that ``predict`` acts on, (..., actions), if they are not the latest.
    """

    samples: NDArray
    latest: NDArray
    what: str
    is_posterior: bool
    weights: NDArray | None = None
    of: Literal["q", "v"] = "q"
    solve: Callable[[], Values] | None = field(default=None, compare=False)
    chains: int | None = None
    read_quantiles: Callable[[], NDArray] | None = field(default=None, compare=False)
    calibration: Lookup = field(default=Lookup(), compare=False)
    acted_on: NDArray | None = field(default=None, compare=False)

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
        found, dtype = self.solve(), self.samples.dtype
        return found._replace(mean=np.asarray(found.mean, dtype), sd=np.asarray(found.sd, dtype))

    def interval(self, level: float = 0.95, kind: IntervalKind = "value") -> Interval:
        """Return an interval for every value.

        Parameters
        ----------
        level
            The probability that it stands for.
        kind
            ``"value"``: where is the value, given all that the replay memory holds? See
            :attr:`solved`. ``"credible"``: where are the samples? From quantile to quantile.
            ``"prediction"``: where will the next sample be? As wide, around the latest: the
            interval of the paper's coverage rates. ``"return"``: what may an episode from here
            bring? For calibrated agents.

        Raises
        ------
        ValueError
            If there is no replay memory to solve the value from, or if there are fewer samples
            than :func:`~valuetrack.posterior.samples_needed` says.

        Notes
        -----
        A calibrated agent's ``"value"`` is corrected and scaled by what its episodes taught.

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
        needed = posterior.samples_needed(level)
        if kind == "value":
            return self.calibration.value_interval(self.solved, level)
        if kind == "return":
            values = self.latest if self.acted_on is None else self.acted_on
            return self.calibration.return_interval(values, level)
        if kind not in get_args(PoolIntervalKind):
            raise ValueError(
                f"An interval is 'value', 'return', 'credible' or 'prediction', not {kind!r}."
            )
        if kind == "prediction" and self.chains is not None:
            raise ValueError(
                "A prediction interval is for the next sample of one chain; ask one seed, with "
                "member=0, or ask for kind='credible'."
            )
        if len(self.samples) < needed:
            raise ValueError(
                f"An interval of level {level:g} from samples needs at least {needed}, and here "
                f"are {len(self.samples)}: let the agent learn on, give it `samples={needed}` or "
                "more, or ask for kind='value'."
            )
        return posterior.interval(self.pool, level, kind, centre=self.latest)

    @cached_property
    def rhat(self) -> NDArray:
        """Split R-hat of every value over the chains; above about 1.1 they disagree.

        See :func:`valuetrack.diagnostics.split_r_hat`.
        """
        return diagnostics.split_r_hat(self._by_chain())

    @cached_property
    def ess(self) -> NDArray:
        """The effective sample size of every value over the chains.

        See :func:`valuetrack.diagnostics.effective_sample_size`.
        """
        return diagnostics.effective_sample_size(self._by_chain())

    @property
    def quantiles(self) -> Quantiles:
        """The quantiles of the return that the current parameters have learned.

        They are those of what an episode may bring, not of the value's uncertainty.
        """
        if self.read_quantiles is None:
            one_seed = " of one seed, which member=0 asks" if self.chains is not None else ""
            raise ValueError(
                f"Quantiles of the return are learned by QRDQN and IQN alone, and read from an "
                f"estimate{one_seed}; ask for an interval instead."
            )
        values = self.read_quantiles()
        count = values.shape[-1]
        return Quantiles((np.arange(count) + 0.5) / count, values)

    def _by_chain(self) -> NDArray:
        """Return the samples as (chains, draws, ...)."""
        if self.chains is None:
            raise ValueError(
                "R-hat and the effective sample size compare chains: train several seeds, and ask "
                'posterior(observation, member="all").'
            )
        return self.samples.reshape(self.chains, -1, *self.samples.shape[1:])

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
        chains = "" if self.chains is None else f" in {self.chains} chains"
        source = f"{count} samples{chains}"
        return f"Estimate of {values} from {source}\n  what: {self.what}\n  mean: {mean}"
