"""Values solved from a replay memory, once for each time its owner has learned."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple, Protocol

import jax
import numpy as np

from valuetrack import posterior
from valuetrack.api.acting import Actor
from valuetrack.api.queries import in_blocks
from valuetrack.learner import Learner, LearnerState, first_chain
from valuetrack.posterior import Pool
from valuetrack.replay import remembered
from valuetrack.training.evaluation import values_key
from valuetrack.training.trainer import Clock, Trainer
from valuetrack.training.update import Learned
from valuetrack.types import NDArray, Transition
from valuetrack.values import features, misfit, sandwich, turnover
from valuetrack.values.equations import Rows
from valuetrack.values.features import Linearised
from valuetrack.values.misfit import Waves
from valuetrack.values.pooling import pooled
from valuetrack.values.sandwich import Solution, Values

OTHERWISE = "or ask for kind='credible'."
KEPT_ROWS = 48_000_000
"""Up to how many numbers the rows of all transitions are kept between two passes over them."""


class Source(Protocol):
    """Whose values are solved: a replay memory and what was learned from it, for each seed."""

    @property
    def learner(self) -> Learner:
        """The learner."""

    @property
    def moment(self) -> Hashable:
        """What differs whenever the memory, or what was learned, does."""

    @property
    def epsilon(self) -> float:
        """How often it explores now."""

    def member(self, index: int) -> Learned:
        """Return what one of the seeds has learned."""

    def memory(self, index: int) -> Transition:
        """Return the transitions that it remembers, (n, ...), in NumPy.

        Raises
        ------
        ValueError
            If there are none, with what to do.
        """

    def seen(self, index: int, pool: Pool) -> float:
        """Return from how many times the memory's transitions the mean of a pool was learned."""


class TrainerSource:
    """The replay memories of a trainer."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.learner = trainer, trainer.learner

    @property
    def moment(self) -> Clock:
        """The trainer's clock."""
        return self.trainer.clock

    @property
    def epsilon(self) -> float:
        """How often it explores now."""
        return float(self.trainer.settings.exploration(self.trainer.steps))

    def member(self, index: int) -> Learned:
        """Return what one of the seeds has learned."""
        return self.trainer.member(index)

    def check(self) -> None:
        """Refuse a training that keeps no replay memory."""
        if self.trainer.settings.replay_capacity is None:
            raise ValueError(
                "On-policy training keeps no replay memory to solve values from; set "
                f"replay_capacity, {OTHERWISE}"
            )

    def memory(self, index: int) -> Transition:
        """Return the transitions that a seed remembers, or refuse."""
        if not self.trainer.clock.updates:
            raise ValueError(
                "Values are solved from the replay memory of an agent that has made updates; call "
                f"learn first, {OTHERWISE}"
            )
        self.check()
        half_life = self.trainer.settings.half_life
        memory = self.trainer.memory(index, None if half_life is None else remembered(half_life))
        if not len(memory.reward):
            raise ValueError(
                "The replay memory is empty, and values are solved from it: save the agent with "
                f"replay=True, let it learn on, {OTHERWISE}"
            )
        return memory

    def seen(self, index: int, pool: Pool) -> float:
        """Return how much the mean of a pool has seen, in memories."""
        settings, clock = self.trainer.settings, self.trainer.clock
        if settings.n_step > 1:  # the mean solves another equation than the memory's single steps
            return 1.0
        cycles = int(pool.filled) * settings.thinning / settings.updates_per_cycle
        total = clock.remembered * settings.transitions_per_cycle
        memory = min(total, settings.ring_capacity)
        if settings.half_life is not None:
            memory = min(memory, remembered(settings.half_life))
        return turnover.seen(cycles * settings.transitions_per_cycle, memory, total)


class _Solved(NamedTuple):
    """The solution of one seed, the state it was found at, and when."""

    moment: Hashable
    state: LearnerState
    solution: Solution
    waves: Waves | None
    bound: float
    """How large a value can be at all, by the rewards in the memory."""


class Solver:
    """Solves the values of seeds, and remembers the solutions until they learn on.

    Parameters
    ----------
    source
        Who has the replay memories.
    of_mean
        Whether to start from the mean of the pool, as for posterior samples, and not from the
        current parameters.
    actor
        Who acts, and so chooses the next actions; the current parameters by default.
    """

    def __init__(self, source: Source, *, of_mean: bool, actor: Actor | None = None) -> None:
        self.source, self._of_mean, self.actor = source, of_mean, actor
        self._linearised: Linearised | None = None
        self._solved: dict[int, _Solved] = {}

    def later(
        self, members: int | range, observations: NDArray, single: bool
    ) -> Callable[[], Values]:
        """Return what solves the values at encoded observations when it is called, or refuses.

        Those of several seeds are :func:`~valuetrack.values.pooling.pooled`.
        """
        asked = self.source.moment
        every = [members] if isinstance(members, int) else members

        def solve() -> Values:
            found = pooled([self.values(member, asked, observations) for member in every])
            return found.at(0) if single else found

        return solve

    def values(self, member: int, asked: Hashable, observations: NDArray) -> Values:
        """Return the values at encoded observations and their standard errors, (n, actions).

        ``asked`` is the moment of the estimate that they are for.

        Raises
        ------
        ValueError
            If there is no replay memory to solve them from, or another one than there was.
        """
        if asked != self.source.moment:
            raise ValueError(
                "The agent has learned on since this estimate was made, and its replay memory is "
                "another one now; call posterior again."
            )
        known = self._solved.get(member)
        if known is None or known.moment != asked:
            memory = self.source.memory(member)
            known = self._solved[member] = self._solve(member, memory, observations[0])
        return self._values_of(known, observations)

    def values_from_some(self, member: int, observations: NDArray, most: int | None) -> Values:
        """Return the values now, solved from at most ``most`` transitions, drawn from the memory.

        A solution from n transitions has a standard error of its own, which is about
        sqrt(whole / n) times that of the whole memory: the interval is wider, and as honest. The
        draw depends on the number of updates and on the seed's position alone.
        """
        memory = self.source.memory(member)
        learned, count = self.source.member(member), len(memory.reward)
        if most is not None and most < count:
            updates = int(learned.learner.sampler.updates)
            generator = np.random.default_rng([updates, member, 5])
            chosen = np.sort(generator.choice(count, most, replace=False))
            memory = jax.tree.map(lambda leaf: leaf[chosen], memory)
        return self._values_of(self._solve(member, memory, observations[0]), observations)

    def check(self, example: NDArray) -> None:
        """Refuse a network whose values cannot be solved; ``example`` is an observation."""
        self._linearisation(self._of_one_chain(self.source.member(0).learner), example)

    def _solve(self, member: int, memory: Transition, example: NDArray) -> _Solved:
        learned = self.source.member(member)
        state = learned.learner
        acting = state if self.actor is None else self.actor.member(member)
        seen = 1.0
        if self._of_mean and isinstance(learned.pool, Pool):
            mean, seen = _mean_of_pool(learned.pool), self.source.seen(member, learned.pool)
            state = state._replace(sampler=state.sampler._replace(params=mean))
        state = self._of_one_chain(state)
        of, epsilon = self._linearisation(state, example), self.source.epsilon
        room = of.most_waves
        waves = misfit.waves(np.asarray(memory.observation), room) if room else None
        columns = of.columns(waves)

        def batches() -> Iterator[Rows]:
            return features.batches_of_rows(of, state, acting, memory, epsilon, waves)

        numbers = 2 * (of.k + columns) * len(memory.reward)
        kept = list(batches()) if numbers <= KEPT_ROWS else None
        solution = sandwich.solve(
            lambda: batches() if kept is None else kept,
            of.blocks,
            of.k,
            seen=seen,
            waves=columns,
        )
        bound = sandwich.bound_of(np.asarray(memory.reward), np.asarray(memory.discount))
        return _Solved(self.source.moment, state, solution, waves, bound)

    def _values_of(self, known: _Solved, observations: NDArray) -> Values:
        _, state, solution, waves, bound = known
        of = self._linearisation(state, observations[0])

        def block(some: NDArray) -> tuple[NDArray, NDArray]:
            q, found = of.query(state, some, waves)
            gradients = np.asarray(of.gradients(np.asarray(found)), np.float64)
            rows = gradients.reshape(-1, gradients.shape[-1])
            mean = np.asarray(q) + solution.change(rows).reshape(q.shape)
            return mean, solution.sd(rows).reshape(q.shape)

        mean, sd = in_blocks(block, observations)
        return Values(np.clip(mean, -bound, bound), sd, bound=bound)

    def _linearisation(self, state: LearnerState, example: NDArray) -> Linearised:
        if self._linearised is None:
            learner = self.source.learner
            acting = learner if self.actor is None else self.actor.learner
            solved = learner.chain or learner
            self._linearised = features.linearised(solved, state, values_key(), example, acting)
        return self._linearised

    def _of_one_chain(self, state: LearnerState) -> LearnerState:
        """Return the state of the first of several chains: all have the same memory to solve."""
        return state if self.source.learner.chain is None else first_chain(state)


_mean_of_pool = jax.jit(posterior.weighted_mean)
