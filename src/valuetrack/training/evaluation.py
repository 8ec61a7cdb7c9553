"""Episodes played greedily, or by a given policy, to see how good it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack import rng
from valuetrack.envs.base import Environment
from valuetrack.envs.gym.vectorised import Observed, VectorisedEnvs
from valuetrack.learner import Learner, LearnerState
from valuetrack.policies import NO_POLICY, greedy, masked_max, select
from valuetrack.types import Array, NDArray, Scalar, Tree

Choose = Callable[[Observed], tuple[NDArray, NDArray]]
"""What is observed on the host -> the actions, and their values."""


def values_key() -> Array:
    """Return the key of values that are asked for outside of training: always the same."""
    return rng.key(0)


class Episodes(NamedTuple):
    """Episodes played greedily, each array (seeds, episodes).

    Attributes
    ----------
    returns
        The sum of the rewards.
    discounted_returns
        The discounted sum, up to where an episode ended or was cut off.
    start_values
        What was expected of it: the largest legal Q-value where it began, or the value of the given
        policy.
    lengths, cut_off
        How many steps it took, and whether it was cut off by the evaluation's own limit; ``None``
        where that is not known.
    """

    returns: Tree
    discounted_returns: Tree
    start_values: Tree
    lengths: Tree = None
    cut_off: Tree = None


def greedy_choice(
    learner: Learner, state: LearnerState, observation: Array, mask: Array
) -> tuple[Array, Array]:
    """Return the legal action of the largest value, and this value.

    The values of several heads are averaged.
    """
    values = jnp.mean(learner.values(values_key(), state, observation), axis=0)
    return greedy(values, mask), masked_max(values, mask)


def choice(
    learner: Learner, state: LearnerState, observation: Array, mask: Array, uniforms: Array
) -> tuple[Array, Array]:
    """Return the action of the given policy and its value, V(s) where there is but one per state.

    Without a given policy it is the greedy one.
    """
    if learner.policy is None:
        return greedy_choice(learner, state, observation, mask)
    action = learner.policy(observation, mask, uniforms)
    values = jnp.mean(learner.values(values_key(), state, observation), axis=0)
    return action, values[..., 0] if values.shape[-1] == 1 else select(values, action)


class _Played(NamedTuple):
    """Episodes under way in an environment written in JAX."""

    envs: Tree
    returns: Array
    discounted: Array
    lengths: Array
    over: Array
    step: Array


def evaluate_compiled(
    env: Environment[Tree],
    learner: Learner,
    state: LearnerState,
    key: Array,
    episodes: int,
    *,
    limit: Scalar,
    discount: Scalar,
) -> Episodes:
    """Play episodes in an environment written in JAX.

    An episode longer than ``limit`` steps counts with what it has by then. Where a given policy
    has no legal action to offer, the returns are NaN.
    """
    reset_key, step_key = jax.random.split(key)
    start = jax.vmap(env.reset)(jax.random.uniform(reset_key, (episodes, env.reset_uniforms)))

    of_policy = 0 if learner.policy is None else learner.acting_uniforms

    def draw(step: Array) -> tuple[Array, Array]:
        drawn = jax.random.fold_in(step_key, step)
        uniforms = jax.random.uniform(drawn, (episodes, env.step_uniforms + of_policy))
        for_env, for_policy = jnp.split(uniforms, [env.step_uniforms], axis=-1)
        return for_env, for_policy

    def choose(envs: Tree, uniforms: Array) -> tuple[Array, Array]:
        observation, mask = jax.vmap(env.observe)(envs), jax.vmap(env.action_mask)(envs)
        return choice(learner, state, observation, mask, uniforms)

    def goes_on(played: _Played) -> Array:
        return ~jnp.all(played.over) & (played.step < limit)

    def body(played: _Played) -> _Played:
        for_env, for_policy = draw(played.step)
        action, _ = choose(played.envs, for_policy)
        after = jax.vmap(env.step)(played.envs, action, for_env)
        paid = jnp.where(action == NO_POLICY, jnp.nan, after.reward)
        reward = jnp.where(played.over, 0.0, paid)
        return _Played(
            after.state,
            played.returns + reward,
            played.discounted + discount ** played.step.astype(float) * reward,
            played.lengths + ~played.over,
            played.over | after.terminated | after.truncated,
            played.step + 1,
        )

    none = jnp.zeros(episodes)
    not_one = jnp.zeros(episodes, jnp.int32)
    nothing = _Played(start, none, none, not_one, jnp.zeros(episodes, bool), jnp.int32(0))
    played = jax.lax.while_loop(goes_on, body, nothing)
    _, start_values = choose(start, draw(jnp.int32(0))[1])
    return Episodes(played.returns, played.discounted, start_values, played.lengths, ~played.over)


def evaluate_on_host(
    choose: Choose,
    lanes: VectorisedEnvs,
    seeds: Sequence[int],
    episodes: int,
    *,
    limit: int,
    discount: float,
    after_step: Callable[[int], object] = lambda finished: None,
) -> Episodes:
    """Play the same number of episodes in every Gymnasium lane.

    So short episodes do not count more often than long ones. An episode longer than ``limit``
    steps counts with what it has by then, and what follows as another one. ``after_step`` is told
    how many episodes are finished.
    """
    places = lanes.reset(seeds)
    numbers = (np.zeros((lanes.count, episodes)) for _ in range(3))
    found = Episodes(*numbers, *(np.zeros((lanes.count, episodes), kind) for kind in (int, bool)))
    played = np.zeros(lanes.count, int)
    lengths = np.zeros(lanes.count, int)
    while (played < episodes).any():
        action, value = choose(places)
        begins = (lengths == 0) & (played < episodes)
        found.start_values[begins, played[begins]] = value[begins]
        arrived = lanes.step(action)
        counts = arrived.is_transition & (played < episodes) & (lengths < limit)
        reward = arrived.reward[counts]
        found.returns[counts, played[counts]] += reward
        found.discounted_returns[counts, played[counts]] += discount ** lengths[counts] * reward
        found.lengths[counts, played[counts]] += 1
        lengths += arrived.is_transition
        ended = arrived.terminated | arrived.truncated
        over = (ended | (lengths >= limit)) & arrived.is_transition
        at_limit = over & ~ended & (played < episodes)
        found.cut_off[at_limit, played[at_limit]] = True
        played[over & (played < episodes)] += 1
        lengths[over] = 0
        places = arrived.current
        after_step(int(played.sum()))
    return found
