"""Values solved from an agent's replay memory, once for each time it has learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from valuetrack import posterior
from valuetrack.api.queries import in_blocks
from valuetrack.learner import LearnerState
from valuetrack.posterior import Pool
from valuetrack.training.evaluation import values_key
from valuetrack.training.trainer import Clock, Trainer
from valuetrack.types import NDArray
from valuetrack.values import features, sandwich
from valuetrack.values.features import Linearised
from valuetrack.values.sandwich import Solution, Values

OTHERWISE = "or ask for kind='credible'."


class _Solved(NamedTuple):
    """The solution of one seed, the state it was found at, and when."""

    clock: Clock
    state: LearnerState
    solution: Solution


class Solver:
    """Solves the values of an agent's seeds, and remembers the solutions until it learns on.

    Parameters
    ----------
    trainer
        Who has the replay memory.
    of_mean
        Whether to start from the mean of the pool, as for posterior samples, and not from the
        current parameters.
    """

    def __init__(self, trainer: Trainer, *, of_mean: bool) -> None:
        self.trainer, self._of_mean = trainer, of_mean
        self._linearised: Linearised | None = None
        self._solved: dict[int, _Solved] = {}

    def later(self, member: int, observations: NDArray, single: bool) -> Callable[[], Values]:
        """Return what solves the values at encoded observations when it is called, or refuses."""
        asked = self.trainer.clock

        def solve() -> Values:
            found = self.values(member, asked, observations)
            return Values(*(part[0] for part in found)) if single else found

        return solve

    def values(self, member: int, asked: Clock, observations: NDArray) -> Values:
        """Return the values at encoded observations and their standard errors, (n, actions).

        ``asked`` is when the estimate was made that they are for.

        Raises
        ------
        ValueError
            If there is no replay memory to solve them from, or another one than there was.
        """
        self._check(asked)
        known = self._solved.get(member)
        if known is None or known.clock != asked:
            known = self._solved[member] = self._solve(member, observations[0])
        _, state, solution = known
        of = self._linearisation(state, observations[0])

        def block(some: NDArray) -> Values:
            q, found = of.query(state, some)
            gradients = np.asarray(of.gradients(np.asarray(found)), np.float64)
            rows = gradients.reshape(-1, gradients.shape[-1])
            mean = np.asarray(q) + solution.change(rows).reshape(q.shape)
            return Values(mean, solution.sd(rows).reshape(q.shape))

        both: Values = in_blocks(block, observations)
        return both

    def _solve(self, member: int, example: NDArray) -> _Solved:
        trainer, learned = self.trainer, self.trainer.member(member)
        acting, memory = learned.learner, trainer.memory(member)
        if not len(memory.reward):
            raise ValueError(
                "The replay memory is empty, and values are solved from it: save the agent with "
                f"replay=True, let it learn on, {OTHERWISE}"
            )
        state = acting
        if self._of_mean and isinstance(learned.pool, Pool):
            mean = jax.jit(posterior.weighted_mean)(learned.pool)
            state = acting._replace(sampler=acting.sampler._replace(params=mean))
        of = self._linearisation(state, example)
        epsilon = float(trainer.settings.exploration(trainer.steps))
        solution = sandwich.solve(
            lambda: features.batches_of_rows(of, state, acting, memory, epsilon), of.blocks, of.k
        )
        return _Solved(trainer.clock, state, solution)

    def _linearisation(self, state: LearnerState, example: NDArray) -> Linearised:
        if self._linearised is None:
            learner = self.trainer.learner
            self._linearised = features.linearised(learner, state, values_key(), example)
        return self._linearised

    def _check(self, asked: Clock) -> None:
        clock, settings = self.trainer.clock, self.trainer.settings
        if asked != clock:
            raise ValueError(
                "The agent has learned on since this estimate was made, and its replay memory is "
                "another one now; call posterior again."
            )
        if not clock.updates:
            raise ValueError(
                "Values are solved from the replay memory of an agent that has made updates; call "
                f"learn first, {OTHERWISE}"
            )
        if settings.replay_capacity is None:
            raise ValueError(
                "On-policy training keeps no replay memory to solve values from; set "
                f"replay_capacity, {OTHERWISE}"
            )
