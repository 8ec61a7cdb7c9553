"""What a model has learned: its state, its updates, its values."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from valuetrack import posterior, rng
from valuetrack.api.agent import AnyAgent
from valuetrack.api.estimate import INITIAL, Estimate
from valuetrack.api.options import Options
from valuetrack.api.queries import Queries
from valuetrack.api.settings import pool_of
from valuetrack.interrupts import Uninterrupted
from valuetrack.io.arrays import from_arrays, to_arrays
from valuetrack.learner import LearnerState, Task
from valuetrack.posterior import Pool
from valuetrack.registry import agent_type
from valuetrack.training.trainer import LEARNED
from valuetrack.training.update import Learned, start, update
from valuetrack.types import Array, NDArray, Transition

KEY, THINNING = "key", "thinning"
"""The names in files of the random key, and of how many updates a sample of the pool stands for."""


class ModelState(NamedTuple):
    """Everything that updates need and change."""

    learned: Learned
    key: Array
    """The random key from which every update derives its own."""


class Compiled:
    """The functions of an agent in a task, each compiled on first use."""

    def __init__(self, agent: type[AnyAgent], task: Task, options: Options) -> None:
        self.agent, self.task, self.options = agent, task, options
        self.learner = agent.build(task, options)
        self.pool_size, self.thinning = pool_of(options, self.learner, seeds=1)
        self.queries = Queries(self.learner)
        self.start = jax.jit(self._start)
        self.update = jax.jit(self._update, donate_argnums=0, static_argnums=2)
        self.refresh = jax.jit(self._refresh)

    def _start(self, key: Array) -> ModelState:
        # Split as valuetrack's trainers do, so that a seed begins with the same parameters.
        noise, first, _ = jax.random.split(key, 3)
        return ModelState(start(self.learner, first, self.pool_size), noise)

    def _update(
        self, state: ModelState, batches: Transition, refresh: bool
    ) -> tuple[ModelState, Array]:
        """Make one update per batch; return the mean squared residuals."""

        def update_once(learned: Learned, batch: Transition) -> tuple[Learned, Array]:
            done = learned.learner.sampler.updates
            key = jax.random.fold_in(state.key, done)
            learned, info = update(
                self.learner, key, learned, batch, done, thinning=self.thinning, refresh=refresh
            )
            return learned, info.mean_squared_residual

        learned, residuals = jax.lax.scan(update_once, state.learned, batches)
        if refresh:  # a copy, because an update cannot take over the same memory twice
            target = jax.tree.map(jnp.copy, learned.learner.target)
            learned = learned._replace(learner=learned.learner._replace(target=target))
        return ModelState(learned, state.key), residuals

    def _refresh(self, learner: LearnerState) -> LearnerState:
        target = self.learner.refresh_target(learner).target
        # A copy, because an update cannot take over the same memory twice.
        return learner._replace(target=jax.tree.map(jnp.copy, target))


@functools.lru_cache(maxsize=8)
def compiled(agent: str, task: Task, options: Options) -> Compiled:
    """Return the functions of an agent by its name; models with the same options share them."""
    return Compiled(agent_type(agent), task, options)


class ModelLearner:
    """An agent's state, and what can be asked of it.

    It has ``state_dict`` and ``load_state_dict`` as PyTorch's modules do, so that SB3 saves, loads
    and exchanges it like one of its own networks. ``seed`` is that of the first parameters and of
    all noise.
    """

    def __init__(self, functions: Compiled, seed: int) -> None:
        self.functions = functions
        self.state: ModelState = functions.start(rng.key(seed))

    @property
    def updates(self) -> int:
        """How many updates have been made."""
        return int(self._learner.sampler.updates)

    @property
    def diverged(self) -> int:
        """The first update after which something was not finite, or -1."""
        return int(self.state.learned.diverged)

    def update(self, batches: Transition, *, refresh: bool = False) -> NDArray:
        """Make one update per batch, all in one call; return the mean squared residuals.

        Every field has the leading axes (updates, batch). ``refresh`` moves the target network
        after every update; otherwise that is left to :meth:`refresh_target`.
        """
        with Uninterrupted():
            self.state, residuals = self.functions.update(self.state, batches, refresh)
        return np.asarray(residuals)

    def refresh_target(self) -> None:
        """Move the target network towards the current parameters."""
        learned = self.state.learned._replace(learner=self.functions.refresh(self._learner))
        self.state = self.state._replace(learned=learned)

    def reseed(self, seed: int) -> None:
        """Draw all further noise from this seed."""
        self.state = self.state._replace(key=jax.random.split(rng.key(seed), 3)[0])

    def greedy(self, observations: NDArray) -> NDArray:
        """Return the best action of the current sample for each observation."""
        legal = np.ones((len(observations), self.functions.task.actions), bool)
        return self.functions.queries.choose(self._learner, observations, legal)[0]

    def values(self, observations: NDArray, *, of_target: bool = False) -> NDArray:
        """Return the Q-values of the current sample or of its target network, (n, actions)."""
        state = self._learner
        if of_target:
            state = state._replace(sampler=state.sampler._replace(params=state.target))
        found: NDArray = self.functions.queries.values(state, observations)[0]
        return found

    def posterior(self, observations: NDArray) -> Estimate:
        """Return posterior samples of the Q-values, (samples, n, actions)."""
        queries, pool = self.functions.queries, self.state.learned.pool
        latest = self.values(observations)
        if not self.updates:
            return Estimate(latest[None], latest, INITIAL, is_posterior=False)
        agent, drawn, weights = self.functions.agent, latest[None], None
        if isinstance(pool, Pool):
            # All slots, so that one program serves a pool that is still filling up.
            every = queries.values_of_pool(self._learner, pool.samples, observations)[:, 0]
            drawn, weights = posterior.in_order(pool._replace(samples=(every, pool.weights)))
        return Estimate(drawn, latest, agent.sample_name, agent.is_sampler, weights)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return a copy of the state as named tensors, and the pool's thinning."""
        tensors = {name: torch.from_numpy(array.copy()) for name, array in self._arrays().items()}
        return {**tensors, THINNING: torch.tensor(self.functions.thinning)}

    def load_state_dict(self, state_dict: Mapping[str, torch.Tensor], strict: bool = True) -> None:
        """Take over a state; with ``strict=False`` it may be a part of one.

        Raises
        ------
        RuntimeError
            If a tensor is missing, unknown, or of another shape or dtype, or if the pool was
            filled with another thinning. (PyTorch's modules raise the same. SB3 takes a
            ValueError here for an old file of its own.)
        """
        # Copies, because the tensors may change later.
        given = {name: tensor.detach().cpu().numpy().copy() for name, tensor in state_dict.items()}
        current = {**self._arrays(), THINNING: np.array(self.functions.thinning)}
        if unknown := sorted(given.keys() - current.keys()):
            raise RuntimeError(f"This model's learner has no array {unknown[0]!r}.")
        if strict and (missing := sorted(current.keys() - given.keys())):
            raise RuntimeError(f"The saved learner lacks the array {missing[0]!r}.")
        arrays = {**current, **given}
        if int(arrays[THINNING]) != self.functions.thinning:
            raise RuntimeError(
                f"The saved pool was filled with thinning={int(arrays[THINNING])}, and this model "
                f"has {self.functions.thinning}; load it with the options it was saved with."
            )
        try:
            learned = from_arrays(arrays, self.state.learned, LEARNED)
            self.state = ModelState(learned, from_arrays(arrays, self.state.key, KEY))
        except ValueError as error:
            raise RuntimeError(
                f"The saved array {error}; load it with the options it was saved with."
            ) from error

    @property
    def _learner(self) -> LearnerState:
        return self.state.learned.learner

    def _arrays(self) -> dict[str, NDArray]:
        """Return the state under names such as ``learned.learner.sampler.params.body.0.w``."""
        return {**to_arrays(self.state.learned, LEARNED), **to_arrays(self.state.key, KEY)}
