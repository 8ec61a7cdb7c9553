r"""Episodes of a frozen policy, seen from states within them: what came of each state.

An episode has two random numbers behind it: the first makes it, the second takes over at a chosen
step. With another second number, the same state is left a second time, independently. In JAX both
are keys. In Gymnasium the first is the seed of ``reset``; a second visit takes the same actions
after the same seed, then the environment's generator, ``np_random``, is replaced.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack.envs.base import Environment
from valuetrack.learner import Learner, LearnerState
from valuetrack.policies import NO_POLICY
from valuetrack.training.evaluation import choice
from valuetrack.types import Array, Bools, Floats, NDArray, Scalar, Tree

TAIL = 0.01
"""The largest discount of what a cut-off episode no longer shows."""


class Rollout(NamedTuple):
    """Episodes seen from one step of each; one row per episode.

    Attributes
    ----------
    length
        Steps from the start of the episode to its end, or to where it was cut off.
    terminated
        Whether it ended by itself.
    step
        The step that it is seen from.
    observation, action, value
        What was seen at the step, done, and expected.
    returns
        The discounted return from the step on.
    """

    length: Tree
    terminated: Tree
    step: Tree
    observation: Tree
    action: Tree
    value: Tree
    returns: Tree

    def unseen(self, discount: float) -> Floats:
        """Return the discount of what was cut off, as seen from the step; 0 after an end."""
        rest = np.float64(discount) ** (self.length - self.step)
        return np.where(self.terminated, 0.0, rest)


def usable_steps(length: NDArray, terminated: Bools, discount: float) -> int:
    """Return from how many of their first steps episodes show the whole return, to :data:`TAIL`.

    If an episode was cut off, this is limited for all of them, those that ended included: to take a
    late step only if its episode happened to end in time would choose steps by their returns.

    Examples
    --------
    >>> both = np.array([True, False])
    >>> usable_steps(np.array([300, 500]), both, 0.99), usable_steps(np.array([9, 200]), both, 0.99)
    (42, 0)
    >>> usable_steps(np.array([300, 500]), ~(both & False), 0.99)
    500
    """
    if terminated.all():
        return int(length.max())
    if discount >= 1:
        return 0
    needed = 1 if discount <= 0 else math.ceil(math.log(TAIL) / math.log(discount))
    return max(0, int(length[~terminated].min()) - needed + 1)


class _Playing(NamedTuple):
    envs: Tree
    over: Array
    step: Array
    seen: Rollout


def rollout_compiled(
    env: Environment[Tree],
    learner: Learner,
    state: LearnerState,
    keys: Array,
    branches: Array,
    at: Array,
    *,
    limit: int,
    discount: Scalar,
) -> Rollout:
    """Play one episode per key in an environment in JAX; from step ``at`` on, by the other key.

    The same key twice plays on as the episode did. Where a given policy has no legal action to
    offer, the returns are NaN.
    """
    resets, steps = _split(keys)
    _, after = _split(branches)
    start = jax.vmap(env.reset)(_uniforms(resets, env.reset_uniforms))
    of_policy = 0 if learner.policy is None else learner.acting_uniforms

    def draw(step: Array) -> tuple[Array, Array]:
        chosen = jax.vmap(jax.random.fold_in, (0, None))(jnp.where(step < at, steps, after), step)
        uniforms = _uniforms(chosen, env.step_uniforms + of_policy)
        for_env, for_policy = jnp.split(uniforms, [env.step_uniforms], axis=-1)
        return for_env, for_policy

    def goes_on(playing: _Playing) -> Array:
        return ~jnp.all(playing.over) & (playing.step < limit)

    def body(playing: _Playing) -> _Playing:
        envs, over, step, seen = playing
        for_env, for_policy = draw(step)
        observation, mask = jax.vmap(env.observe)(envs), jax.vmap(env.action_mask)(envs)
        action, value = choice(learner, state, observation, mask, for_policy)
        arrived = jax.vmap(env.step)(envs, action, for_env)
        paid = jnp.where(action == NO_POLICY, jnp.nan, arrived.reward)
        weight = discount ** jnp.maximum(step - at, 0).astype(float)
        gained = jnp.where(step < at, 0.0, weight * paid)
        here = Rollout(
            seen.length + 1,
            arrived.terminated,
            at,
            _chosen(step == at, observation, seen.observation),
            _chosen(step == at, action, seen.action),
            _chosen(step == at, value, seen.value),
            seen.returns + gained,
        )
        # What is over stays as it was.
        seen = jax.tree.map(lambda old, new: _chosen(over, old, new), seen, here)
        over = over | arrived.terminated | arrived.truncated
        return _Playing(arrived.state, over, step + 1, seen)

    rows = len(keys)
    observation, mask = jax.vmap(env.observe)(start), jax.vmap(env.action_mask)(start)
    action, value = choice(learner, state, observation, mask, draw(jnp.int32(0))[1])
    none, never = jnp.zeros(rows), jnp.zeros(rows, bool)
    length = jnp.zeros(rows, jnp.int32)
    unseen = Rollout(length, never, at, observation, action, value, none)
    playing = jax.lax.while_loop(goes_on, body, _Playing(start, never, jnp.int32(0), unseen))
    return playing.seen


def _split(keys: Array) -> tuple[Array, Array]:
    both = jax.vmap(jax.random.split)(keys)
    return both[:, 0], both[:, 1]


def _uniforms(keys: Array, count: int) -> Array:
    return jax.vmap(lambda key: jax.random.uniform(key, (count,)))(keys)


def _chosen(which: Array, one: Array, other: Array) -> Array:
    """Return some rows of the one and the remaining rows of the other."""
    return jnp.where(jnp.reshape(which, which.shape + (1,) * (one.ndim - 1)), one, other)
