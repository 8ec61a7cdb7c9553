"""What can be asked of an agent between updates, each compiled when it is first asked.

Observations come in blocks whose sizes are powers of two, up to :data:`BLOCK`, so that few programs
are compiled, however the batch sizes vary.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack import rng
from valuetrack.envs.base import JaxEnvironment
from valuetrack.envs.gym.vectorised import Observed
from valuetrack.learner import Learner, LearnerState
from valuetrack.training import evaluation
from valuetrack.training.evaluation import Episodes, evaluate_compiled, greedy_choice, values_key
from valuetrack.training.rollouts import Rollout, rollout_compiled
from valuetrack.types import Array, NDArray, Params, Tree

Choose = Callable[[LearnerState, NDArray, NDArray], tuple[Array, Array]]
"""(state, observations, masks) -> the greedy legal actions, and their values."""

EPISODE_LIMIT = 100_000
"""Steps after which an evaluation gives up on an episode."""
BLOCK = 256
"""The largest number of observations that one call computes."""


def in_blocks(function: Callable[..., Tree], *batches: NDArray) -> Tree:
    """Call a function of batches block by block, and put the results together again.

    ``function`` returns a pytree of arrays whose first axis is that of the batch. A block is
    filled up with copies of its last row, which are dropped afterwards.
    """
    parts = []
    for start in range(0, len(batches[0]), BLOCK):
        blocks = [batch[start : start + BLOCK] for batch in batches]
        count = len(blocks[0])
        size = 1 << (count - 1).bit_length()
        padded = [np.concatenate([b, np.repeat(b[-1:], size - count, axis=0)]) for b in blocks]
        parts.append(jax.tree.map(lambda leaf, n=count: np.asarray(leaf)[:n], function(*padded)))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


class _Played(NamedTuple):
    """Compiled episodes in one environment."""

    env: JaxEnvironment
    play: Callable[..., Episodes]
    rollout: Callable[..., Rollout]


class Queries:
    """Compiled functions of a learner's state, in an environment in JAX if there is one.

    ``find`` returns the environment; in a world that changes it may be another one each time.
    """

    def __init__(
        self, learner: Learner, find: Callable[[], JaxEnvironment | None] = lambda: None
    ) -> None:
        self.learner, self._find = learner, find
        self._played: list[_Played] = []
        choose = functools.partial(greedy_choice, learner)
        self.choose_for_all: Choose = jax.jit(jax.vmap(choose))
        """(states, observations, masks) -> actions and values of all seeds."""
        self._choose: Choose = jax.jit(choose)
        self._values = jax.jit(self._values_in_block)
        self._values_of_pool = jax.jit(self._pool_values_in_block)
        self._quantiles = learner.quantiles and jax.jit(learner.quantiles)

    def values(self, state: LearnerState, observations: NDArray) -> NDArray:
        """Return the Q-values of the current sample, (heads, n, actions)."""
        found = in_blocks(functools.partial(self._values, state), observations)
        return np.moveaxis(found, 0, 1)

    def choose(
        self, state: LearnerState, observations: NDArray, mask: NDArray
    ) -> tuple[NDArray, NDArray]:
        """Return the greedy legal action for each observation, and its value."""
        chosen: tuple[NDArray, NDArray] = in_blocks(
            functools.partial(self._choose, state), observations, mask
        )
        return chosen

    def values_of_pool(
        self, state: LearnerState, samples: Params, observations: NDArray
    ) -> NDArray:
        """Return the Q-values of every sample of the parameters, (samples, heads, n, actions)."""
        found = in_blocks(functools.partial(self._values_of_pool, state, samples), observations)
        return np.moveaxis(found, 0, 2)

    def quantiles(self, state: LearnerState, observations: NDArray) -> NDArray:
        """Return the quantiles of the return, (n, actions, M), of a learner that has them."""
        assert self._quantiles is not None
        found: NDArray = in_blocks(functools.partial(self._quantiles, state), observations)
        return found

    def play(
        self, states: LearnerState, seed: int, episodes: int, discount: float, limit: int
    ) -> Episodes:
        """Play greedy episodes with all seeds, in the environment in JAX."""
        count = states.head.shape[0]
        keys = jax.random.split(jax.random.fold_in(rng.key(seed), 1), count)
        limit = min(limit, 2**31 - 1)
        played = self._in_jax().play(states, keys, episodes, discount, np.int32(limit))
        numbers = (np.asarray(part, np.float64) for part in played[:3])
        return Episodes(*numbers, *map(np.asarray, played[3:]))

    def rollout(
        self, state: LearnerState, keys: Array, branches: Array, at: NDArray, discount: float
    ) -> Rollout:
        """Play episodes with one seed, in the environment in JAX, and see them from a step."""
        steps = jnp.asarray(at, jnp.int32)
        found = self._in_jax().rollout(state, keys, branches, steps, discount)
        return Rollout(*(np.asarray(part) for part in found))

    def greedily(self, states: LearnerState) -> evaluation.Choose:
        """Return how to act greedily with all seeds, each in an environment on the host."""

        def choose(seen: Observed) -> tuple[NDArray, NDArray]:
            batches = seen.observation[:, None], seen.mask[:, None]
            action, value = self.choose_for_all(states, *batches)
            return np.asarray(action)[:, 0], np.asarray(value)[:, 0]

        return choose

    def _values_in_block(self, state: LearnerState, observations: Array) -> Array:
        return jnp.moveaxis(self.learner.values(values_key(), state, observations), 1, 0)

    def _pool_values_in_block(
        self, state: LearnerState, samples: Params, observations: Array
    ) -> Array:
        def of_one(params: Params) -> Array:
            one = state._replace(sampler=state.sampler._replace(params=params))
            return self.learner.values(values_key(), one, observations)

        # One sample after the other: the outputs of many large networks would not fit.
        values: Array = jax.lax.map(of_one, samples)
        return jnp.moveaxis(values, 2, 0)

    def _rollout_of_one(
        self,
        env: JaxEnvironment,
        state: LearnerState,
        keys: Array,
        branches: Array,
        at: Array,
        discount: Array,
    ) -> Rollout:
        limit = EPISODE_LIMIT
        return rollout_compiled(
            env, self.learner, state, keys, branches, at, limit=limit, discount=discount
        )

    def _in_jax(self) -> _Played:
        """Return the compiled episodes in the environment as it is now."""
        env = self._find()
        if env is None:
            raise ValueError("The environment is not written in JAX.")
        for known in self._played:
            if known.env is env:
                return known
        play = jax.jit(functools.partial(self._play_with_all, env), static_argnums=2)
        rollout = jax.jit(functools.partial(self._rollout_of_one, env))
        self._played.append(_Played(env, play, rollout))
        return self._played[-1]

    def _play_with_all(
        self,
        env: JaxEnvironment,
        states: LearnerState,
        keys: Array,
        episodes: int,
        discount: Array,
        limit: Array,
    ) -> Episodes:
        def one(state: LearnerState, key: Array) -> Episodes:
            return evaluate_compiled(
                env, self.learner, state, key, episodes, limit=limit, discount=discount
            )

        return jax.vmap(one)(states, keys)
