r"""True values by rollouts: from states of greedy episodes, take each action, then act greedily.

.. math:: Q(s, a) = E\Bigl[\sum_{k < T} \gamma^k r_k\Bigr], \qquad \gamma^T \le \text{tail}

A time limit plays no part, for truncation bootstraps: a rollout ends in a terminal state, or when
nothing that follows counts any more. Environments in JAX begin in any state. Those in Python begin
at a reset: the way to a state is replayed with the seed of its episode, and from there on every
rollout has noise of its own. Where nothing is random, as in CartPole and Acrobot, one rollout is
the exact value. LunarLander is random, for its engines scatter: its values are means of several
rollouts and have standard errors.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack import rng
from valuetrack.api.agent import AnyAgent
from valuetrack.envs.gym.make import make_vectorised
from valuetrack.envs.gym.spaces import action_mask
from valuetrack.envs.gym.vectorised import SequentialEnvs
from valuetrack.learner import LearnerState
from valuetrack.training.evaluation import greedy_choice
from valuetrack.types import Array, Bools, Floats, NDArray, Tree

EPISODES = 16
"""How many greedy episodes states are taken from."""
EPISODE_STEPS = 500
"""How many steps of each."""
NO_LIMIT = 10**9
"""Steps that no episode has: in place of a time limit."""


class Rolled(NamedTuple):
    """Observations of some states, and the values there with standard errors."""

    observations: NDArray
    values: Floats
    se: Floats


def horizon(discount: float, tail: float) -> int:
    """Return after how many steps the discount of what follows is at most ``tail``.

    Examples
    --------
    >>> horizon(0.5, 0.25)
    2
    """
    if not 0.0 < discount < 1.0:
        raise ValueError(f"Rollouts need a discount between 0 and 1; {discount} is not.")
    return math.ceil(math.log(tail) / math.log(discount) - 1e-9)


def evenly(count: int, wanted: int) -> NDArray:
    """Return the places of up to ``wanted`` of ``count`` things, evenly from first to last."""
    return np.unique(np.linspace(0, count - 1, min(count, wanted)).round().astype(int))


def _means(returns: Floats) -> tuple[Floats, Floats]:
    """Return means over the last axis and their standard errors, zero for a single one."""
    count = returns.shape[-1]
    se = returns.std(axis=-1, ddof=1) / math.sqrt(count) if count > 1 else 0.0 * returns[..., 0]
    return returns.mean(axis=-1), se


class JaxRollouts:
    """Rollouts in an environment written in JAX, compiled once for all seeds."""

    def __init__(self, agent: AnyAgent, states: int, rollouts: int, tail: float) -> None:
        self.agent, self.env, self.states = agent, agent.env.in_jax, states
        self.discount = agent.options.discount
        self.steps = horizon(self.discount, tail)
        self.rollouts = rollouts if self.env.step_uniforms else 1
        self._visit = jax.jit(self._visited)
        self._follow = jax.jit(self._followed)

    def __call__(self, member: int) -> Rolled:
        """Return the values at states that one of the seeds visits."""
        state = self.agent.actor.member(member)
        visit_key, key = jax.random.split(jax.random.fold_in(rng.key(1), member))
        envs, alive = self._visit(state, visit_key)
        places = np.flatnonzero(np.asarray(alive).ravel())
        # Always as many, so that one program serves all; then each once.
        places = places[evenly(len(places), self.states)]
        padded = np.resize(places, self.states)
        starts = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[padded], envs)
        seen, legal = jax.vmap(self.env.observe)(starts), jax.vmap(self.env.action_mask)(starts)
        returns = np.asarray(self._follow(state, starts, key), np.float64)[: len(places)]
        values, se = _means(returns)
        some = slice(len(places))
        return Rolled(np.asarray(seen)[some], np.where(np.asarray(legal)[some], values, np.nan), se)

    def _choose(self, state: LearnerState, envs: Tree) -> Array:
        seen, mask = jax.vmap(self.env.observe)(envs), jax.vmap(self.env.action_mask)(envs)
        return greedy_choice(self.agent.actor.learner, state, seen, mask)[0]

    def _step(self, envs: Tree, actions: Array, key: Array) -> Any:
        uniforms = jax.random.uniform(key, (len(actions), self.env.step_uniforms))
        return jax.vmap(self.env.step)(envs, actions, uniforms)

    def _visited(self, state: LearnerState, key: Array) -> tuple[Tree, Array]:
        """Return the states of greedy episodes, (steps, episodes), and which came before an end."""
        reset_key, step_key = jax.random.split(key)
        uniforms = jax.random.uniform(reset_key, (EPISODES, self.env.reset_uniforms))

        def one(carry: tuple[Tree, Array], key: Array) -> tuple[tuple[Tree, Array], Any]:
            envs, alive = carry
            after = self._step(envs, self._choose(state, envs), key)
            return (after.state, alive & ~after.terminated & ~after.truncated), (envs, alive)

        begin = jax.vmap(self.env.reset)(uniforms), jnp.ones(EPISODES, bool)
        _, visited = jax.lax.scan(one, begin, jax.random.split(step_key, EPISODE_STEPS))
        return visited  # type: ignore[no-any-return]

    def _followed(self, state: LearnerState, starts: Tree, key: Array) -> Array:
        """Return the discounted returns, (states, actions, rollouts)."""
        shape = (self.states, self.env.num_actions, self.rollouts)
        copies = self.env.num_actions * self.rollouts
        envs = jax.tree.map(lambda x: jnp.repeat(x, copies, axis=0), starts)
        first = jnp.broadcast_to(jnp.arange(shape[1])[:, None], shape).ravel()

        def goes_on(carry: tuple[Tree, Array, Array, Array]) -> Array:
            _, _, over, step = carry
            return ~jnp.all(over) & (step < self.steps)

        def body(carry: tuple[Tree, Array, Array, Array]) -> tuple[Tree, Array, Array, Array]:
            envs, total, over, step = carry
            action = jnp.where(step == 0, first, self._choose(state, envs))
            after = self._step(envs, action, jax.random.fold_in(key, step))
            counts = jnp.where(over, 0.0, self.discount ** step.astype(float))
            return after.state, total + counts * after.reward, over | after.terminated, step + 1

        nothing = jnp.zeros(len(first)), jnp.zeros(len(first), bool), jnp.int32(0)
        _, total, _, _ = jax.lax.while_loop(goes_on, body, (envs, *nothing))
        return total.reshape(shape)


class _Way(NamedTuple):
    """A greedy episode: its seed, and the actions, observations and masks on the way."""

    seed: int
    actions: list[int]
    observations: list[NDArray]
    masks: list[Bools]


class HostRollouts:
    """Rollouts in an environment that runs in Python, from states that are reached by replay."""

    def __init__(self, agent: AnyAgent, states: int, rollouts: int, tail: float) -> None:
        self.agent, self.states, self.rollouts = agent, states, rollouts
        self.discount = agent.options.discount
        self.steps = horizon(self.discount, tail)
        if agent.env.id is None:
            raise ValueError("Rollouts need environments of their own; give the id of one.")
        no_checks = {"max_episode_steps": NO_LIMIT, "disable_env_checker": True}
        options = {**agent.env.options, **no_checks}
        made = make_vectorised(agent.env.id, agent.task.actions * rollouts, **options)
        assert isinstance(made, SequentialEnvs)  # which those made by an id are
        self._envs, self._encoder, self._actions = made.envs, made.encoder, made.actions
        self._choose = jax.jit(functools.partial(greedy_choice, agent.actor.learner))
        # What is seen in each environment; a row that nobody reads may be old.
        self._seen = np.zeros((made.count, *made.encoder.shape), made.encoder.dtype)
        self._masks = np.ones((made.count, made.num_actions), bool)

    def __call__(self, member: int) -> Rolled:
        """Return the values at states that one of the seeds visits."""
        state = self.agent.actor.member(member)
        ways = self.play(state, 1_000 * member)
        visited = [(way, step) for way in ways for step in range(len(way.actions))]
        chosen = [visited[i] for i in evenly(len(visited), self.states)]
        found = [
            self.values(state, way, step, (member, place))
            for place, (way, step) in enumerate(chosen)
        ]
        values, se = (np.stack(part) for part in zip(*found, strict=True))
        seen = np.stack([way.observations[step] for way, step in chosen])
        return Rolled(seen, values, se)

    def play(self, state: LearnerState, seed: int) -> list[_Way]:
        """Play greedy episodes, one in each environment, with seeds from ``seed`` on."""
        lanes = list(range(min(EPISODES, len(self._envs))))
        ways = [_Way(seed + lane, [], [], []) for lane in lanes]
        given: dict[int, NDArray] = {}
        for lane in lanes:
            given[lane], info = self._envs[lane].reset(seed=ways[lane].seed)
            self._see(lane, given[lane], info)
        for _ in range(EPISODE_STEPS):
            chosen = self._greedy(state)
            for lane in lanes:
                ways[lane].actions.append(int(chosen[lane]))
                ways[lane].observations.append(given[lane])
                ways[lane].masks.append(self._masks[lane].copy())
            lanes = [lane for lane in lanes if not self._step(lane, chosen[lane], given)[1]]
            if not lanes:
                break
        return ways

    def values(
        self, state: LearnerState, way: _Way, step: int, noise: tuple[int, ...]
    ) -> tuple[Floats, Floats]:
        """Return the values of all actions in one state, and their standard errors.

        ``noise`` are the state's own numbers, for the noise of its rollouts.
        """
        actions, rollouts = self.agent.task.actions, self.rollouts
        for lane, env in enumerate(self._envs):
            env.reset(seed=way.seed)
            for action in way.actions[:step]:
                env.step(self._actions.given(action))
            env.unwrapped.np_random = np.random.default_rng([*noise, lane])
        mask = way.masks[step]
        legal = np.where(mask, np.arange(actions), np.argmax(mask))  # others are not asked for
        returns = self._returns(state, np.repeat(legal, rollouts))
        values, se = _means(returns.reshape(actions, rollouts))
        return np.where(mask, values, np.nan), se

    def _returns(self, state: LearnerState, first: NDArray) -> Floats:
        """Take the first actions, then act greedily; return the discounted returns."""
        total, lanes, chosen = np.zeros(len(first)), list(range(len(first))), first
        for step in range(self.steps):
            goes_on = []
            for lane in lanes:
                reward, terminated = self._step(lane, chosen[lane])
                total[lane] += self.discount**step * reward
                if not terminated:
                    goes_on.append(lane)
            if not goes_on:
                break
            lanes, chosen = goes_on, self._greedy(state)
        return total

    def _step(
        self, lane: int, action: int, given: dict[int, NDArray] | None = None
    ) -> tuple[float, bool]:
        """Step an environment; return the reward, and whether the episode is over."""
        taken = self._envs[lane].step(self._actions.given(int(action)))
        observation, reward, terminated, _, info = taken
        self._see(lane, observation, info)
        if given is not None:
            given[lane] = observation
        return float(reward), bool(terminated)

    def _see(self, lane: int, observation: Any, info: Any) -> None:
        mask = action_mask(info, self._masks.shape[1], terminal=True)
        self._seen[lane] = self._encoder.encode(observation)
        self._masks[lane] = True if mask is None else mask

    def _greedy(self, state: LearnerState) -> NDArray:
        """Return the greedy actions in all environments, over or not: one program serves all."""
        return np.asarray(self._choose(state, self._seen, self._masks)[0])
