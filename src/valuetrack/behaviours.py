r"""Behaviours for learners with several opinions of the values: how one of them, or all, act.

Heads, parallel chains and snapshots of one chain are opinions. Each function here takes a learner
and returns one that learns the same and acts otherwise:

* :func:`by_mean`: greedily in the mean of all opinions;
* :func:`thompson`: each episode draws one opinion and is greedy in it to the end, which explores
  *deeply*: what an opinion hopes for far away, it walks to;
* :func:`optimistic`: greedily in the upper end of the interval that the opinions span.

Epsilon lays random actions over each of them; set it to zero to explore by the opinions alone.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from valuetrack.learner import Acted, Learner, LearnerState, acted
from valuetrack.samplers.base import Info
from valuetrack.types import Array, Batch, Scalar

Kind = Literal["epsilon_greedy", "thompson", "optimism"]
"""The behaviours by their names."""
SNAPSHOTS = 16
"""How many samples of a single chain an episode draws from."""


class Behaviour(NamedTuple):
    """A behaviour as options describe it."""

    kind: Kind = "epsilon_greedy"
    every: int | None = None
    """After how many steps another opinion is drawn within an episode; ``None`` for never."""
    level: float = 0.9
    """Of the interval at whose upper end an optimist acts."""
    spacing: int = 200
    """How many updates lie between two snapshots of a single chain."""


def behaving(learner: Learner, behaviour: Behaviour) -> Learner:
    """Return the learner with a behaviour.

    Raises
    ------
    ValueError
        If a learner with a single opinion is to be optimistic.
    """
    match behaviour.kind:
        case "thompson":
            several = learner
            if learner.heads == 1:
                several = with_snapshots(learner, SNAPSHOTS, behaviour.spacing)
            return thompson(several, behaviour.every)
        case "optimism":
            return optimistic(learner, behaviour.level)
    return by_mean(learner) if learner.heads > 1 else learner


def by_mean(learner: Learner) -> Learner:
    """Return a learner that acts by the mean of its opinions."""
    return _acting_by(learner, lambda q, head: jnp.mean(q, axis=0))


def optimistic(learner: Learner, level: float) -> Learner:
    r"""Return a learner that acts by the upper end of the interval of its opinions.

    .. math:: \bar Q(s, a) + z_{(1 + \text{level}) / 2}\, s(s, a),

    with the mean and the sd of the opinions, of which there must be several.
    """
    if learner.heads < 2:
        raise ValueError(
            "Optimism takes several opinions of the values: set chains=10, or use BootDQN's heads."
        )
    z = NormalDist().inv_cdf((1 + level) / 2)

    def upper(q: Array, head: Array) -> Array:
        return jnp.mean(q, axis=0) + z * jnp.std(q, axis=0, ddof=1)

    return _acting_by(learner, upper)


def thompson(learner: Learner, every: int | None = None) -> Learner:
    """Return a learner whose episodes are each greedy in one opinion.

    Trainers draw it: ``state.head`` then has one number for each observation. ``every`` says after
    how many steps they draw another one within an episode.

    References
    ----------
    Osband, Blundell, Pritzel and Van Roy (2016). Deep exploration via bootstrapped DQN. NeurIPS.
    https://arxiv.org/abs/1602.04621
    """
    opinions = learner.opinions or learner.heads
    drawing = _acting_by(learner, _of_head)
    return drawing._replace(
        opinions=opinions,
        redraw_every=every,
        acting_uniforms=learner.acting_uniforms + 1,
    )


def with_snapshots(learner: Learner, count: int, spacing: int) -> Learner:
    """Return a learner that keeps samples of its chain as opinions, one per ``spacing`` updates.

    The newest one is always among them. They act and do not learn; values are still those of the
    current sample.
    """

    def init(key: Array) -> LearnerState:
        state = learner.init(key)
        copies = jax.tree.map(lambda p: jnp.stack([p] * count), state.sampler.params)
        return state._replace(snapshots=copies)

    def update(key: Array, state: LearnerState, batch: Batch) -> tuple[LearnerState, Info]:
        slot = (state.sampler.updates // spacing) % count
        state, info = learner.update(key, state, batch)

        def write(kept: Array, new: Array) -> Array:
            return jnp.asarray(jax.lax.dynamic_update_index_in_dim(kept, new, slot, axis=0))

        kept = jax.tree.map(write, state.snapshots, state.sampler.params)
        return state._replace(snapshots=kept), info

    return learner._replace(init=init, update=update, opinions=count, on_host=None)


def _acting_by(learner: Learner, opinion: Callable[[Array, Array], Array]) -> Learner:
    """Return a learner that acts on a function of its opinions, (k, n, actions), and its head."""

    def act(
        state: LearnerState, observation: Array, mask: Array, uniforms: Array, epsilon: Scalar
    ) -> Acted:
        q = opinion(_opinions(learner, state, observation), state.head)
        return acted(q, mask, uniforms, epsilon, learner.following)

    return learner._replace(act=act, on_host=None)


def _opinions(learner: Learner, state: LearnerState, observation: Array) -> Array:
    """Return what each opinion says, (k, n, actions)."""
    key = jax.random.key(0)  # those of several heads, chains and samples are not random

    def of(params: Array) -> Array:
        one = state._replace(sampler=state.sampler._replace(params=params))
        return learner.values(key, one, observation)[0]

    if state.snapshots == ():
        return learner.values(key, state, observation)
    return jax.vmap(of)(state.snapshots)


def _of_head(q: Array, head: Array) -> Array:
    """Return the values of one opinion for all observations, or of one for each."""
    if jnp.ndim(head) == 0:
        return q[head]
    rows: Array = jnp.arange(q.shape[1])
    return q[head, rows]
