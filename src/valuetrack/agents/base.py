"""The interface of all agents, and the one function that builds them from parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from valuetrack.measurement import TargetBatch
from valuetrack.networks import Network
from valuetrack.policies import epsilon_greedy
from valuetrack.samplers.base import Info, Sampler
from valuetrack.types import Array, Params, Transition


class AgentState(NamedTuple):
    """All that an agent carries from one update to the next.

    Attributes
    ----------
    learner
        The sampler's state; ``learner.params`` are the current parameters.
    target
        The target network's parameters, or an empty tuple where there is none.
    head
        Which head of a multi-head network acts; 0 for all others.
    """

    learner: Any
    target: Params
    head: Array


class Agent(NamedTuple):
    """A value-based agent as pure functions.

    Attributes
    ----------
    init : (key) -> state
        Draw the network's parameters and start the learner.
    act : (state, observation, mask, uniforms, epsilon) -> action
        Epsilon-greedy among the legal actions; two uniforms in [0, 1) an action.
    update : (key, state, transitions) -> (state, info)
        One update on a batch.
    values : (state, observations) -> (m, ..., actions)
        The Q-values of the current sample, or of each of m heads: what a pool collects.
    """

    init: Callable[[Array], AgentState]
    act: Callable[[AgentState, Array, Array, Array, Any], Array]
    update: Callable[[Array, AgentState, Transition], tuple[AgentState, Info]]
    values: Callable[[AgentState, Array], Array]


def build_agent(
    network: Network,
    learner: Sampler,
    *,
    to_values: Callable[[Array], Array] = lambda outputs: outputs[None],
    target_every: int | None = None,
    heads: int = 1,
    head_every: int = 1,
    prepare: Callable[[Array, Any], Any] | None = None,
) -> Agent:
    """Put an agent together.

    Parameters
    ----------
    network, learner
        What is learned, and how.
    to_values
        Turns the network's outputs into Q-values of shape (m, ..., actions).
    target_every
        Copy the parameters to the target network at the first and then every so many updates; the
        learner's data is then a :class:`~valuetrack.measurement.TargetBatch`. ``None`` for a
        learner without target network, whose data are the transitions themselves.
    heads, head_every
        Draw the acting head anew from so many every so many updates.
    prepare : (key, data) -> data
        Adds randomness of its own to the learner's data, such as bootstrap masks.
    """

    def init(key: Array) -> AgentState:
        params_key, head_key = jax.random.split(key)
        params = network.init(params_key)
        target = params if target_every else ()
        return AgentState(learner.init(params), target, jax.random.randint(head_key, (), 0, heads))

    def values(state: AgentState, observations: Array) -> Array:
        return to_values(network.apply(state.learner.params, observations))

    def act(
        state: AgentState, observation: Array, mask: Array, uniforms: Array, epsilon: Any
    ) -> Array:
        q = values(state, observation)
        acting = q[0] if heads == 1 else q[state.head]
        return epsilon_greedy(uniforms, acting, mask, epsilon)

    def update(key: Array, state: AgentState, transitions: Transition) -> tuple[AgentState, Info]:
        learner_key, head_key, data_key = jax.random.split(key, 3)
        data: Any = TargetBatch(transitions, state.target) if target_every else transitions
        if prepare is not None:
            data = prepare(data_key, data)
        before = state.learner.updates
        learned, info = learner.step(learner_key, state.learner, data)
        target, head = state.target, state.head
        if target_every:
            refresh = before % target_every == 0
            target = jax.tree.map(
                lambda new, old: jnp.where(refresh, new, old), learned.params, target
            )
        if heads > 1:
            redraw = (before + 1) % head_every == 0
            head = jnp.where(redraw, jax.random.randint(head_key, (), 0, heads), head)
        return AgentState(learned, target, head), info

    return Agent(init, act, update, values)
