"""What can be asked of an agent between updates, each compiled when it is first asked."""

from __future__ import annotations

import functools
from typing import Any

import jax

from valuetrack.envs.base import Environment
from valuetrack.learner import Learner, LearnerState
from valuetrack.training.evaluation import VALUES_KEY, Episodes, evaluate_compiled, greedy_choice
from valuetrack.types import Array

EPISODE_LIMIT = 100_000
"""Steps after which an evaluation gives up on an episode."""


class Views:
    """Compiled functions of an agent's state."""

    def __init__(self, agent: Learner, env: Environment[Any] | None) -> None:
        self.agent, self.env = agent, env

    @functools.cached_property
    def values(self) -> Any:
        """Return the function (state, observations) -> (m, n, actions)."""
        return jax.jit(functools.partial(self.agent.values, VALUES_KEY))

    @functools.cached_property
    def choose(self) -> Any:
        """Return the function (state, observations, masks) -> greedy actions, their values."""
        return jax.jit(functools.partial(greedy_choice, self.agent))

    @functools.cached_property
    def choose_for_all(self) -> Any:
        """Return the same for all seeds, each with observations of its own."""
        return jax.jit(jax.vmap(functools.partial(greedy_choice, self.agent)))

    @functools.cached_property
    def values_of_pool(self) -> Any:
        """Return the function (state, pool, observations) -> (samples, m, n, actions)."""

        def of_pool(state: LearnerState, pool: Any, observations: Array) -> Array:
            def one(params: Any) -> Array:
                sampler = state.sampler._replace(params=params)
                return self.agent.values(VALUES_KEY, state._replace(sampler=sampler), observations)

            # One sample after the other: a batch of large networks would need their outputs all
            # at once.
            values: Array = jax.lax.map(one, pool)
            return values

        return jax.jit(of_pool)

    @functools.cached_property
    def play(self) -> Any:
        """Return the function (states, keys, episodes, discount) -> episodes of all seeds."""
        env = self.env
        if env is None:
            raise ValueError("The environment is not written in JAX.")

        def play(states: LearnerState, keys: Array, episodes: int, discount: Array) -> Episodes:
            def one(state: LearnerState, key: Array) -> Episodes:
                return evaluate_compiled(
                    env, self.agent, state, key, episodes, limit=EPISODE_LIMIT, discount=discount
                )

            return jax.vmap(one)(states, keys)

        return jax.jit(play, static_argnums=2)
