"""The learner: a network, a sampler and a behaviour, as pure functions that trainers call.

A learner knows nothing of environments, replay or files. Every trainer drives it the same way::

    state = learner.init(key)
    action, value, follows = learner.act(state, observation, mask, uniforms, epsilon)
    state, info = learner.update(key, state, transitions)
    state = learner.refresh_target(state)  # when it is due: every `target_every` updates
    values = learner.values(key, state, observations)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack.host_networks import Forward
from valuetrack.measurement import TargetBatch
from valuetrack.networks import Network
from valuetrack.policies import (
    POLICY_UNIFORMS,
    action_probabilities,
    epsilon_greedy,
    greedy,
    masked_max,
    select,
)
from valuetrack.samplers.base import Info, Sampler
from valuetrack.schedules import Schedule
from valuetrack.types import Array, Batch, NDArray, Params, Scalar, Tree, Weighted

Following = Literal["greedy", "taken", "expected"]
"""Which next action the values are of: the greedy one, the one really taken, or the epsilon-greedy
policy's in expectation."""


class Task(NamedTuple):
    """What a learner must know of an environment."""

    shape: tuple[int, ...]
    """The shape of an observation."""
    is_image: bool
    """Whether an observation is an image, (height, width, channels)."""
    actions: int
    """How many actions there are."""


class LearnerState(NamedTuple):
    """Everything a learner carries from one update to the next."""

    sampler: Tree
    """The sampler's state; ``sampler.params`` are the current parameters."""
    target: Params
    """The target network's parameters, or an empty tuple if there is no target network."""
    head: Array
    """The acting head of a network with several heads; 0 for all others. One per observation where
    trainers draw them; see :attr:`Learner.opinions`."""
    scale: Tree = ()
    """The running :class:`~valuetrack.normalisation.Moments` of the observations; an empty tuple if
    they are taken as they are."""
    snapshots: Params = ()
    """Earlier samples that act, on a leading axis; an empty tuple if the current one acts."""


class Acted(NamedTuple):
    """An action, and what the learner believed when it chose it."""

    action: Array
    value: Array
    """What the state is worth to the policy that the values are of; NaN where no network is asked
    to act."""
    follows: Array
    """Whether the action is that policy's; false where a greedy learner explores."""


class Learner(NamedTuple):
    """A value-based learner as pure functions."""

    init: Callable[[Array], LearnerState]
    """(key) -> state: draw the network's parameters and start the sampler."""
    act: Callable[[LearnerState, Array, Array, Array, Scalar], Acted]
    """(state, observation, mask, uniforms, epsilon) -> an action, epsilon-greedy among the legal
    ones, and its value; ``uniforms`` are ``acting_uniforms`` numbers in [0, 1) per action."""
    update: Callable[[Array, LearnerState, Batch], tuple[LearnerState, Info]]
    """(key, state, transitions) -> (state, info); it leaves the target network alone."""
    refresh_target: Callable[[LearnerState], LearnerState]
    """Copy the current parameters to the target network."""
    values: Callable[[Array, LearnerState, Array], Array]
    """(key, state, observations) -> (heads, ..., actions): the Q-values of the current sample, one
    set per head. Only learners whose values are random use the key."""
    target_every: int | None = None
    """After how many updates the target network is due for a refresh; ``None`` without one."""
    heads: int = 1
    """How many sets of values one state gives."""
    acting_uniforms: int = POLICY_UNIFORMS
    """How many uniform numbers one action consumes."""
    policy: Callable[[Array, Array, Array], Array] | None = None
    """(observations, masks, uniforms) -> actions: a policy that is given and whose values are
    learned. SARSA takes its next action from it, whatever the behaviour does beside it. ``None``
    where the learner acts on its own values."""
    following: Following = "greedy"
    """Which next action its values are of."""
    quantiles: Callable[[LearnerState, Array], Array] | None = None
    """(state, observations) -> (..., actions, M): quantiles of the return at the levels (i - 1/2) /
    M, as they are learned; ``None`` where none are."""
    on_host: Callable[[LearnerState], Forward] | None = None
    """(states) -> (observations -> Q-values): the values that ``act`` acts on, in NumPy and equal
    to rounding, for states whose arrays are NumPy's; see :mod:`valuetrack.host_networks`. ``None``
    where ``act`` has no such values."""
    observe: Callable[[LearnerState, Array, Array], LearnerState] | None = None
    """(state, observations, which of them count) -> state: told of all that is collected, where
    observations are normalised; see :mod:`valuetrack.normalisation`."""
    opinions: int = 0
    """Over how many opinions of the values each episode draws the one it is played by: trainers do,
    from the last of the ``acting_uniforms``, and give ``act`` a state whose ``head`` has one number
    per observation. 0 for learners that act otherwise; see :mod:`valuetrack.behaviours`."""
    redraw_every: int | None = None
    """After how many steps trainers draw another opinion within an episode."""
    chain: Learner | None = None
    """The learner of one chain, where several run in parallel; :func:`first_chain` is its state."""


def build_learner(
    network: Network,
    sampler: Sampler,
    *,
    to_values: Callable[[Array], Array] = lambda outputs: outputs[None],
    target_every: int | None = None,
    heads: int = 1,
    head_every: int = 1,
    prepare: Callable[[Array, Tree], Tree] | None = None,
    exploration: Schedule = lambda updates: 0.0,
    following: Following = "greedy",
    tau: float = 1.0,
) -> Learner:
    """Build a learner whose values are a function of the network's outputs.

    Parameters
    ----------
    network, sampler
        What is learned, and how.
    to_values
        Turns the network's outputs into Q-values of shape (heads, ..., actions); JAX's arrays and
        NumPy's.
    target_every
        The period of the target network in updates; the sampler's data is then a
        :class:`~valuetrack.measurement.TargetBatch`. Without a target network (``None``) its data
        are the transitions themselves.
    heads, head_every
        The number of heads, and after how many updates another one is drawn to act.
    prepare : (key, data) -> data
        Adds randomness of its own to the sampler's data, such as bootstrap masks.
    exploration
        How often the behaviour explores, as a schedule of the updates made; for targets that
        depend on it.
    following
        Which next action the values are of.
    tau
        How far the target network moves towards the current parameters when it is refreshed.
    """

    def init(key: Array) -> LearnerState:
        params_key, head_key = jax.random.split(key)
        params = network.init(params_key)
        head = jax.random.randint(head_key, (), 0, heads)
        return LearnerState(sampler.init(params), params if target_every else (), head)

    def values_of(state: LearnerState, observations: Array) -> Array:
        return to_values(network.apply(state.sampler.params, observations))

    def act(
        state: LearnerState, observation: Array, mask: Array, uniforms: Array, epsilon: Scalar
    ) -> Acted:
        q = values_of(state, observation)
        acting = q[0] if heads == 1 else q[state.head]
        return acted(acting, mask, uniforms, epsilon, following)

    def update(key: Array, state: LearnerState, batch: Batch) -> tuple[LearnerState, Info]:
        sampler_key, head_key, data_key = jax.random.split(key, 3)
        transitions, weights = batch if isinstance(batch, Weighted) else (batch, ())
        data: Tree = transitions
        if target_every:
            explores = exploration(state.sampler.updates)
            data = TargetBatch(transitions, state.target, explores, weights)
        if prepare is not None:
            data = prepare(data_key, data)
        head = state.head
        if heads > 1:
            redraw = (state.sampler.updates + 1) % head_every == 0
            head = jnp.where(redraw, jax.random.randint(head_key, (), 0, heads), head)
        after, info = sampler.step(sampler_key, state.sampler, data)
        return state._replace(sampler=after, head=head), info

    def values(key: Array, state: LearnerState, observations: Array) -> Array:
        del key  # these values are not random
        return values_of(state, observations)

    refresh = partial(refresh_target, tau=tau)
    learner = Learner(init, act, update, refresh, values, target_every, heads)
    on_host = acting_values(network, to_values, heads) if network.on_host else None
    return learner._replace(following=following, on_host=on_host)


def first_chain(state: LearnerState) -> LearnerState:
    """Return the state of the first of several parallel chains, for :attr:`Learner.chain`."""

    def first(tree: Params) -> Params:
        return jax.tree.map(lambda leaf: leaf[0], tree)

    alone = state.sampler._replace(params=first(state.sampler.params))
    return state._replace(sampler=alone, target=first(state.target))


def acting_values(
    network: Network, to_values: Callable[[Tree], Tree], heads: int
) -> Callable[[LearnerState], Forward]:
    """Return :attr:`Learner.on_host` of a network that is known in NumPy."""
    assert network.on_host is not None
    prepare = network.on_host

    def on_host(states: LearnerState) -> Forward:
        forward = prepare(states.sampler.params)
        seeds = range(len(states.head))

        def values(observations: NDArray) -> NDArray:
            q: NDArray = to_values(forward(observations))
            return q[0] if heads == 1 else q[states.head, seeds]

        return values

    return on_host


def refresh_target(state: LearnerState, tau: float = 1.0) -> LearnerState:
    r"""Move the target network towards the current parameters, if there is one.

    .. math:: \theta^- \leftarrow \theta^- + \tau\,(\theta - \theta^-)

    With :math:`\tau = 1` it becomes a copy of them.
    """
    if state.target == ():
        return state
    if tau == 1.0:
        return state._replace(target=state.sampler.params)
    moved = jax.tree.map(
        lambda old, new: old + tau * (new - old), state.target, state.sampler.params
    )
    return state._replace(target=moved)


def acted(q: Array, mask: Array, uniforms: Array, epsilon: Scalar, following: Following) -> Acted:
    """Choose epsilon-greedily; the value is that of the policy that the Q-values are of."""
    action = epsilon_greedy(uniforms, q, mask, epsilon)
    if following == "greedy":
        return Acted(action, masked_max(q, mask), action == greedy(q, mask))
    if following == "taken":
        value = select(q, action)
    else:
        value = jnp.sum(action_probabilities(q, mask, epsilon) * q, axis=-1)
    return Acted(action, value, jnp.ones(action.shape, bool))


def drawn_opinion(uniform: Tree, opinions: int) -> Tree:
    """Turn uniform numbers, JAX's or NumPy's, into the opinions that play the next episodes.

    Examples
    --------
    >>> drawn_opinion(jnp.array([0.0, 0.55, 0.99]), 10).tolist()
    [0, 5, 9]
    """
    return (uniform * opinions).astype(np.int32).clip(0, opinions - 1)


def act_without_values(action: Array) -> Acted:
    """Return the action of a given policy, for which no network is asked."""
    return Acted(action, jnp.full(action.shape, jnp.nan), jnp.ones(action.shape, bool))
