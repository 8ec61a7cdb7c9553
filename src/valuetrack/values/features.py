r"""Transitions as rows of the temporal-difference equation: which parameters are meant.

All of them if they are few, but for the sds of noisy layers, on which values do not depend.
Otherwise those of the last layer, in which values are linear:
:math:`Q(s, a) = w_a^\top f(s) + b_a`, where f is the last hidden layer. Both go through the
learner's own ``values``: whatever it does to observations and outputs is differentiated as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from valuetrack.learner import Learner, LearnerState
from valuetrack.networks import parameter_count
from valuetrack.noise import without_noise
from valuetrack.policies import action_probabilities
from valuetrack.types import AnyArray, Array, Floats, NDArray, Params, Scalar, Transition, Tree
from valuetrack.values.equations import Rows
from valuetrack.values.misfit import Waves

MOST_PARAMETERS = 2_000
"""Up to how many parameters all of them are meant."""
LARGEST_SYSTEM = 6_000
"""The largest system that is solved; its matrix takes 300 MB."""
BATCH = 512
"""How many transitions become rows at a time."""
TOGETHER = 16
"""How many batches of rows are summed at a time. On busy cores the threads of NumPy's matrix
products wait for each other, so that many small products take long."""

ValuesOf = Callable[[LearnerState, Params, AnyArray], Array]
"""(state, parameters in place of its own, one observation) -> (actions,)."""
Layer = dict[str, Array]
"""Weights and biases."""
Follow = Callable[[LearnerState, Transition, Scalar], Array]
"""(acting state, transitions, epsilon) -> the probabilities of the next actions."""


class Linearised(NamedTuple):
    """Values as functions of some parameters, to first order."""

    blocks: int
    k: int
    """How many blocks of parameters there are, and how many in each."""
    rows: Callable[[LearnerState, LearnerState, Transition, Scalar, Waves | None], Tree]
    """(state, acting state, transitions, epsilon, waves) -> rows. The acting state chooses the
    next action."""
    query: Callable[[LearnerState, AnyArray, Waves | None], tuple[Array, Array]]
    """(state, observations, waves) -> values (n, actions) and their f: (n, k) on the last layer,
    (n, actions, k) if all parameters are meant."""
    actions: int = 1
    """How many actions there are, each of which has a misfit of its own."""

    @property
    def most_waves(self) -> int:
        """For how many waves per action the system has room."""
        return max(LARGEST_SYSTEM - self.blocks * self.k, 0) // self.actions

    def columns(self, waves: Waves | None) -> int:
        """Return how many columns follow on the k of each block."""
        return 0 if waves is None else self.actions * waves.number // self.blocks

    def gradients(self, found: Floats) -> Floats:
        """Return J of all actions, (n, actions, p), from the f that ``query`` found."""
        if found.ndim == 3:
            return found
        every = np.einsum("nk,ab->nabk", found, np.eye(self.blocks, dtype=found.dtype))
        return np.asarray(every.reshape(len(found), self.blocks, -1))


def linearised(
    learner: Learner,
    state: LearnerState,
    key: Array,
    example: NDArray,
    acting_learner: Learner | None = None,
) -> Linearised:
    """Choose the parameters, and compile what differentiates by them.

    ``key`` is that of values that are asked for, and ``example`` an observation. The acting state
    is one of ``acting_learner``, by default the same learner.

    Raises
    ------
    ValueError
        If there are too many parameters.
    """
    actor = learner if acting_learner is None else acting_learner

    def values(state: LearnerState, params: Params, observation: AnyArray) -> Array:
        own = state._replace(sampler=state.sampler._replace(params=params))
        return jnp.mean(learner.values(key, own, jnp.asarray(observation)[None]), axis=0)[0]

    def follow(acting: LearnerState, t: Transition, epsilon: Scalar) -> Array:
        if learner.following == "taken":
            return jax.nn.one_hot(_block(t.next_action, actions), actions)
        q = jnp.mean(actor.values(key, acting, t.next_observation), axis=0)
        explores = epsilon if learner.following == "expected" else 0.0
        return action_probabilities(q, t.next_mask, explores)

    (actions,) = jax.eval_shape(values, state, state.sampler.params, example).shape
    if parameter_count(without_noise(state.sampler.params)) <= MOST_PARAMETERS:
        return _of_all(state, values, follow, actions)
    return _of_last_layer(state, values, follow, actions, example)


def _of_all(state: LearnerState, values: ValuesOf, follow: Follow, actions: int) -> Linearised:
    flat, unravel = ravel_pytree(without_noise(state.sampler.params))

    def at(state: LearnerState, seen: AnyArray) -> tuple[Callable[[Array], Array], Array]:
        """Return the values at an observation as a function of one long vector, and the vector."""
        theta, _ = ravel_pytree(without_noise(state.sampler.params))
        return lambda theta: values(state, unravel(theta), seen), theta

    def rows(
        state: LearnerState,
        acting: LearnerState,
        t: Transition,
        epsilon: Scalar,
        waves: Waves | None = None,
    ) -> Rows:
        def mean(seen: AnyArray, weights: Array) -> tuple[Array, Array]:
            of_theta, theta = at(state, seen)
            return jax.value_and_grad(lambda theta: weights @ of_theta(theta))(theta)

        chances = follow(acting, t, epsilon)
        taken = jax.nn.one_hot(_block(t.action, actions), actions)
        value, now = jax.vmap(mean)(t.observation, taken)
        ahead, following = jax.vmap(mean)(t.next_observation, chances)
        delta = t.reward + t.discount * ahead - value
        if waves is not None:
            now = jnp.concatenate([now, waves.of(t.observation, taken)], axis=1)
            following = jnp.concatenate([following, waves.of(t.next_observation, chances)], axis=1)
        return Rows(jnp.zeros_like(t.action), now, following, t.discount[:, None], delta, value)

    def query(
        state: LearnerState, observations: AnyArray, waves: Waves | None = None
    ) -> tuple[Array, Array]:
        def one(seen: AnyArray) -> tuple[Array, Array]:
            of_theta, theta = at(state, seen)
            return of_theta(theta), jax.jacrev(of_theta)(theta)

        q, gradients = jax.vmap(one)(observations)
        if waves is not None:
            every = jnp.tile(jnp.eye(actions), (len(q), 1))
            misfit = waves.of(jnp.repeat(observations, actions, axis=0), every)
            gradients = jnp.concatenate([gradients, misfit.reshape(*q.shape, -1)], axis=2)
        return q, gradients

    return Linearised(1, flat.size, jax.jit(rows), jax.jit(query), actions)


def _of_last_layer(
    state: LearnerState, values: ValuesOf, follow: Follow, actions: int, example: NDArray
) -> Linearised:
    path, head = last_layer(state.sampler.params)
    layers, structure = jax.tree.flatten(head, is_leaf=_is_layer)
    # A dueling head has two layers, of which an action moves both; their biases are one feature.
    k = sum(layer["w"].shape[0] for layer in layers) + 1
    if actions * k > LARGEST_SYSTEM:
        raise ValueError(
            f"The last layer has {k:,} parameters per action, and {actions} times as many are more "
            f"than the {LARGEST_SYSTEM:,} that intervals for the value can be solved for; make the "
            "last of the `hidden` layers smaller."
        )

    def with_layers(state: LearnerState, changed: list[Layer], seen: AnyArray) -> Array:
        head = jax.tree.unflatten(structure, changed)
        return values(state, _replaced(state.sampler.params, path, head), seen)

    def with_bias(i: int, bias: Array) -> Array:
        changed = [*layers[:i], {**layers[i], "b": bias}, *layers[i + 1 :]]
        return with_layers(state, changed, example)[0]

    # Heads and quantiles are averaged into values, so that an action has several columns of the
    # layer. Moved together along `column`, those of the first move its value as one would.
    shares = [jax.jacrev(partial(with_bias, i))(layer["b"]) for i, layer in enumerate(layers)]
    columns = [share / jnp.sum(share**2) for share in shares]

    def features(state: LearnerState, seen: Array) -> tuple[Array, Array]:
        """Return all values, and the derivative of the first by its weights and bias."""
        own = jax.tree.leaves(last_layer(state.sampler.params)[1], is_leaf=_is_layer)

        def first(shifts: list[Array]) -> tuple[Array, Array]:
            moved = [
                {"w": layer["w"] + shift[:-1, None] * column, "b": layer["b"] + shift[-1] * column}
                for layer, shift, column in zip(own, shifts, columns, strict=True)
            ]
            q = with_layers(state, moved, seen)
            return q[0], q

        still = [jnp.zeros(layer["w"].shape[0] + 1, layer["w"].dtype) for layer in own]
        gradients, q = jax.grad(first, has_aux=True)(still)
        *others, last = gradients
        return q, jnp.concatenate([*(one[:-1] for one in others), last]) if others else last

    def query(
        state: LearnerState, observations: AnyArray, waves: Waves | None = None
    ) -> tuple[Array, Array]:
        q, found = jax.vmap(lambda seen: features(state, seen))(observations)
        if waves is not None:
            found = jnp.concatenate([found, waves.at(observations)], axis=1)
        return q, found

    def rows(
        state: LearnerState,
        acting: LearnerState,
        t: Transition,
        epsilon: Scalar,
        waves: Waves | None = None,
    ) -> Rows:
        chances = follow(acting, t, epsilon)
        q, now = query(state, t.observation, waves)
        ahead, following = query(state, t.next_observation, waves)
        block = _block(t.action, actions)
        value = jnp.take_along_axis(q, block[:, None], axis=1)[:, 0]
        delta = t.reward + t.discount * jnp.sum(chances * ahead, axis=1) - value
        return Rows(block, now, following, t.discount[:, None] * chances, delta, value)

    return Linearised(actions, k, jax.jit(rows), jax.jit(query), actions)


def batches_of_rows(
    of: Linearised,
    state: LearnerState,
    acting: LearnerState,
    memory: Transition,
    epsilon: float = 0.0,
    waves: Waves | None = None,
) -> Iterator[Rows]:
    """Yield the rows of all transitions, some at a time, in NumPy."""

    def rows(start: int) -> Rows:
        some = jax.tree.map(lambda leaf: leaf[start : start + BATCH], memory)
        count = len(some.reward)
        # The last batch is filled up with copies, so that one program serves all.
        whole = jax.tree.map(lambda leaf: leaf[np.arange(BATCH) % count], some)
        return Rows(*(np.asarray(p)[:count] for p in of.rows(state, acting, whole, epsilon, waves)))

    size = len(memory.reward)
    for first in range(0, size, BATCH * TOGETHER):
        parts = [rows(at) for at in range(first, min(first + BATCH * TOGETHER, size), BATCH)]
        yield Rows(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def last_layer(params: Params) -> tuple[tuple[str, ...], Tree]:
    """Return the last layer, or the two of a dueling head, and under which names it lies.

    Raises
    ------
    ValueError
        If the parameters are not those of :mod:`valuetrack.networks`.

    Examples
    --------
    >>> layer = {"w": jnp.ones((3, 2)), "b": jnp.ones(2)}
    >>> last_layer({"body": [], "head": layer})[0]
    ('head',)
    """
    path: tuple[str, ...] = ()
    while isinstance(params, dict) and "head" in params:
        path, params = (*path, "head"), params["head"]
    is_dueling = isinstance(params, dict) and {"value", "advantage"} == params.keys()
    if not all(map(_is_layer, params.values() if is_dueling else [params])):
        raise ValueError(
            f"A network of more than {MOST_PARAMETERS:,} parameters needs a last layer called "
            "'head', with weights 'w' and biases 'b', for intervals for the value."
        )
    return path, params


def _is_layer(params: Params) -> bool:
    return isinstance(params, dict) and {"w", "b"} == params.keys()


def _replaced(params: Params, path: tuple[str, ...], layer: Tree) -> Params:
    if not path:
        return layer
    return {**params, path[0]: _replaced(params[path[0]], path[1:], layer)}


def _block(action: Array, actions: int) -> Array:
    """Return the column of each action; V-values have but one."""
    return action if actions > 1 else jnp.zeros_like(action)
