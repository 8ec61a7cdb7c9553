"""Episodes played greedily, to see how good a policy is."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from valuetrack.agents.base import Agent, AgentState
from valuetrack.envs.base import Environment
from valuetrack.envs.lanes import Lanes
from valuetrack.policies import greedy
from valuetrack.types import Array


def greedy_action(agent: Agent, state: AgentState, observation: Array, mask: Array) -> Array:
    """Return the legal action of the largest value, averaged over heads where there are some."""
    return greedy(jnp.mean(agent.values(state, observation), axis=0), mask)


def evaluate_compiled(
    env: Environment[Any], agent: Agent, state: AgentState, key: Array, episodes: int, limit: int
) -> Array:
    """Play episodes in an environment written in JAX; return the return of each.

    An episode longer than ``limit`` steps counts with what it has by then.
    """
    reset_key, step_key = jax.random.split(key)
    start = jax.vmap(env.reset)(jax.random.uniform(reset_key, (episodes, env.reset_uniforms)))

    def goes_on(carry: tuple[Any, Array, Array, Array]) -> Array:
        _, _, over, step = carry
        return ~jnp.all(over) & (step < limit)

    def body(carry: tuple[Any, Array, Array, Array]) -> tuple[Any, Array, Array, Array]:
        envs, returns, over, step = carry
        observation, mask = jax.vmap(env.observe)(envs), jax.vmap(env.action_mask)(envs)
        action = greedy_action(agent, state, observation, mask)
        drawn = jax.random.fold_in(step_key, step)
        after = jax.vmap(env.step)(
            envs, action, jax.random.uniform(drawn, (episodes, env.step_uniforms))
        )
        returns = returns + jnp.where(over, 0.0, after.reward)
        return after.state, returns, over | after.terminated | after.truncated, step + 1

    none = jnp.zeros(episodes)
    _, returns, _, _ = jax.lax.while_loop(
        goes_on, body, (start, none, jnp.zeros(episodes, bool), jnp.int32(0))
    )
    return returns


def evaluate_on_host(
    act: Any, lanes: Lanes, seeds: Any, episodes: int, limit: int
) -> npt.NDArray[np.float64]:
    """Play episodes in Gymnasium lanes; return the returns of each lane, (lanes, episodes).

    ``act`` takes observations and masks, one row a lane. Each lane plays its own episodes, so
    that short ones do not count more often than long ones. An episode longer than ``limit`` steps
    counts with what it has by then, and what follows as another one.
    """
    places = lanes.reset(seeds)
    returns = np.zeros((lanes.count, episodes))
    played = np.zeros(lanes.count, int)
    lengths = np.zeros(lanes.count, int)
    while (played < episodes).any():
        arrived = lanes.step(act(places.observation, places.mask))
        counts = arrived.real & (played < episodes) & (lengths < limit)
        returns[counts, played[counts]] += arrived.reward[counts]
        lengths += arrived.real
        over = (arrived.terminated | arrived.truncated | (lengths >= limit)) & arrived.real
        played[over & (played < episodes)] += 1
        lengths[over] = 0
        places = arrived.going_on
    return returns
