"""The policy that an agent follows when it is asked to act: greedy in the mean of its samples.

One posterior sample is a noisy estimate of the values; the mean over several of them is a better
one, and so is the policy that is greedy in it. Agents that sample from a posterior therefore act
by the mean over samples spread evenly over their pool. While they train they act by the latest
sample, as others always do.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack import posterior
from valuetrack.api.queries import Queries
from valuetrack.learner import Learner, LearnerState
from valuetrack.posterior import Pool
from valuetrack.training.trainer import Clock, Trainer
from valuetrack.types import Array, NDArray, Params

COMMITTEE = 16
"""Over how many samples values are averaged."""


class Actor:
    """What acts for the seeds of an agent.

    Parameters
    ----------
    trainer
        Who has learned.
    learner
        What the trainer trains.
    by_samples
        Whether values are averaged over samples of the pool.
    """

    def __init__(self, trainer: Trainer, learner: Learner, by_samples: bool) -> None:
        self.trainer = trainer
        self._members = min(COMMITTEE, trainer.settings.pool_size) if by_samples else 1
        self.learner = learner if self._members <= 1 else averaging(learner)
        self.queries = Queries(self.learner, lambda: trainer.present_env)
        self._known: tuple[Clock, list[LearnerState]] | None = None

    @property
    def states(self) -> LearnerState:
        """The states of all seeds, with a leading axis, for :attr:`learner`."""
        if self._members <= 1:
            return self.trainer.states
        stacked: LearnerState = jax.tree.map(lambda *leaves: jnp.stack(leaves), *self._each())
        return stacked

    def member(self, index: int) -> LearnerState:
        """Return the state of one seed, for :attr:`learner`."""
        if self._members <= 1:
            return self.trainer.member(index).learner
        return self._each()[index]

    def values(self, index: int, observations: NDArray) -> NDArray:
        """Return the values that a seed acts on at encoded observations, (n, actions)."""
        return np.asarray(self.queries.values(self.member(index), observations).mean(axis=0))

    def _each(self) -> list[LearnerState]:
        now = self.trainer.clock
        if self._known is None or self._known[0] != now:
            self._known = now, [self._one(index) for index in range(len(self.trainer.seeds))]
        return self._known[1]

    def _one(self, index: int) -> LearnerState:
        learned = self.trainer.member(index)
        state, pool = learned.learner, learned.pool
        if isinstance(pool, Pool) and self.trainer.clock.updates:
            slots = posterior.order(pool)
            chosen = slots[np.linspace(len(slots) - 1, 0, self._members).round().astype(int)]
            samples: Params = jax.tree.map(lambda leaf: leaf[chosen], pool.samples)
        else:
            samples = jax.tree.map(
                lambda leaf: jnp.broadcast_to(leaf, (self._members, *leaf.shape)),
                state.sampler.params,
            )
        return state._replace(sampler=state.sampler._replace(params=samples))


def averaging(learner: Learner) -> Learner:
    """Return the learner for states whose parameters are several samples, on a leading axis.

    Their values are what heads are: many opinions, averaged when it acts greedily.
    """

    def values(key: Array, state: LearnerState, observations: Array) -> Array:
        def of_one(params: Params) -> Array:
            one = state._replace(sampler=state.sampler._replace(params=params))
            return learner.values(key, one, observations)

        found = jax.vmap(of_one)(state.sampler.params)
        return found.reshape(-1, *found.shape[2:])

    return learner._replace(values=values)
