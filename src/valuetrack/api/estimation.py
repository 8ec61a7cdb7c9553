"""From what seeds have learned to estimates of their values."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from valuetrack import posterior
from valuetrack.api.estimate import INITIAL, Estimate
from valuetrack.api.queries import Queries
from valuetrack.api.solving import Solver
from valuetrack.diagnostics import MINIMUM_DRAWS
from valuetrack.learner import LearnerState
from valuetrack.posterior import Pool
from valuetrack.training.trainer import Trainer
from valuetrack.types import NDArray

LARGEST_R_HAT = 1.1
"""Above it, chains are said to disagree."""


class Estimator:
    """Makes estimates of the values of an agent's seeds.

    Parameters
    ----------
    trainer, queries, solver
        Who has learned, and what computes and solves values.
    what, is_sampler
        What the samples are, and whether they are draws from a posterior.
    """

    def __init__(
        self, trainer: Trainer, queries: Queries, solver: Solver, what: str, is_sampler: bool
    ) -> None:
        self.trainer, self.queries, self.solver = trainer, queries, solver
        self.what, self.is_sampler = what, is_sampler

    def of_one(self, member: int, observations: NDArray, single: bool) -> Estimate:
        """Return the values of one seed at encoded observations, or at the only one."""
        state, drawn, weights = self._samples(member, observations)
        heads = drawn.shape[1]
        drawn = drawn.reshape(-1, *drawn.shape[2:])  # heads count as samples
        solve = self.solver.later(member, observations, single)
        return self._estimate(
            drawn[:, 0] if single else drawn,
            self._latest(state, observations, single),
            np.repeat(weights, heads),
            solve=solve,
            read_quantiles=self._quantiles(state, observations, single),
        )

    def of_all(self, observations: NDArray, single: bool) -> Estimate:
        """Return the values of all seeds together; say so if they disagree.

        Every head of every seed is a chain.
        """
        members = range(len(self.trainer.seeds))
        states, drawn, weights = zip(
            *(self._samples(member, observations) for member in members), strict=True
        )
        by_head = np.concatenate([np.moveaxis(each, 1, 0) for each in drawn])
        chains, draws, *shape = by_head.shape
        samples = by_head.reshape(-1, *shape)
        latest = np.mean([self._latest(state, observations, single) for state in states], axis=0)
        found = self._estimate(
            samples[:, 0] if single else samples,
            latest,
            np.repeat(np.stack(weights), chains // len(members), axis=0).reshape(-1),
            solve=self.solver.later(members, observations, single),
            chains=chains,
        )
        if draws >= MINIMUM_DRAWS:
            _warn_of_disagreement(found.rhat)
        return found

    def _samples(self, member: int, observations: NDArray) -> tuple[LearnerState, NDArray, NDArray]:
        """Return a seed's state, its samples (m, heads, n, actions) and their weights (m,)."""
        learned = self.trainer.member(member)
        state, pool = learned.learner, learned.pool
        if not (isinstance(pool, Pool) and self.trainer.clock.updates):
            return state, self.queries.values(state, observations)[None], np.ones(1, np.float32)
        # All slots at once, so that one program serves pools that fill up; then those in use.
        every = self.queries.values_of_pool(state, pool.samples, observations)
        return state, *posterior.in_order(pool._replace(samples=(every, pool.weights)))

    def _latest(self, state: LearnerState, observations: NDArray, single: bool) -> NDArray:
        latest = self.queries.values(state, observations).mean(axis=0)
        return np.asarray(latest[0] if single else latest)

    def _quantiles(
        self, state: LearnerState, observations: NDArray, single: bool
    ) -> Callable[[], NDArray] | None:
        if self.queries.learner.quantiles is None:
            return None

        def read() -> NDArray:
            found = self.queries.quantiles(state, observations)
            return np.asarray(found[0] if single else found)

        return read

    def _estimate(
        self, samples: NDArray, latest: NDArray, weights: NDArray, **more: Any
    ) -> Estimate:
        if not self.trainer.clock.updates:
            return Estimate(samples, latest, INITIAL, is_posterior=False, **more)
        return Estimate(samples, latest, self.what, self.is_sampler, weights, **more)


def _warn_of_disagreement(rhat: NDArray) -> None:
    above = int(np.sum(rhat > LARGEST_R_HAT))
    if above:
        warnings.warn(
            f"The seeds disagree: R-hat is above {LARGEST_R_HAT} for {above} of {rhat.size} values "
            f"and reaches {np.nanmax(rhat):.2f}; train longer, or ask each seed with member=0, 1, "
            "... before you trust what they say together.",
            RuntimeWarning,
            stacklevel=4,
        )
