r"""The compiled training loop: everything from acting to the pool of samples under one ``jit``.

One *cycle* is a number of environment steps followed by one or more updates. Counters that are
the same for all seeds (:class:`Clock`) stay apart from what each seed carries
(:class:`SeedState`), so that under ``vmap`` a ring is written by one slice for all seeds and not
by a scatter.

A seed's random numbers come from its own key alone: they do not depend on the seeds beside it or
on the number of devices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from valuetrack.envs.base import Environment
from valuetrack.learner import Learner, LearnerState
from valuetrack.measurement import discount_of
from valuetrack.schedules import Schedule
from valuetrack.training import samples
from valuetrack.training.packing import Packing
from valuetrack.training.update import Learned, update
from valuetrack.types import Array, Params, Transition


@dataclass(frozen=True)
class LoopSettings:
    """How acting and learning take turns.

    Parameters
    ----------
    steps_per_update
        Environment steps between two updates, in each environment.
    environments
        Environments side by side, for one seed.
    replay_capacity
        Transitions kept, a multiple of ``steps_per_update * environments``; ``None`` for
        on-policy training, where an update uses just the transitions of its own cycle, as in the
        paper's Algorithm 1.
    updates_per_cycle
        Updates after these steps, each on a batch of its own.
    batch_size
        Transitions an update draws from the replay memory; ignored on-policy.
    learning_starts
        Environment steps before the first update.
    discount
        gamma.
    exploration
        Epsilon as a schedule of the environment steps taken.
    pool_size
        How many samples of the tracked values are kept.
    parameter_samples, thinning
        How many samples of the parameters are kept, one of every so many updates; the latest
        sample is always among them.
    overlap
        Whether environments in Python are stepped while an update runs; see the host's loop.
    """

    exploration: Schedule
    steps_per_update: int = 10
    updates_per_cycle: int = 1
    environments: int = 1
    replay_capacity: int | None = 10_000
    batch_size: int = 100
    learning_starts: int = 1_000
    discount: float = 0.9
    pool_size: int = 3_000
    parameter_samples: int = 0
    thinning: int = 1
    overlap: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that do not fit together."""
        if self.replay_capacity is not None and self.replay_capacity % self.transitions_per_cycle:
            raise ValueError(
                f"replay_capacity must be a multiple of the {self.transitions_per_cycle} "
                f"transitions a cycle collects, which {self.replay_capacity} is not."
            )

    @property
    def transitions_per_cycle(self) -> int:
        """How many transitions a cycle collects."""
        return self.steps_per_update * self.environments

    @property
    def silent_cycles(self) -> int:
        """How many cycles pass without an update at the start."""
        return max(0, -(-self.learning_starts // self.transitions_per_cycle) - 1)


class Clock(NamedTuple):
    """Counters common to all seeds.

    Attributes
    ----------
    cycles, updates
        How many have been done.
    emptied
        The cycle from which on the replay memory remembers: 0, or when it was lost.
    """

    cycles: Any
    updates: Any
    emptied: Any = 0

    @classmethod
    def start(cls) -> Clock:
        """Return the clock at the beginning."""
        return cls(jnp.int32(0), jnp.int32(0), jnp.int32(0))


class SeedState(NamedTuple):
    """What one seed carries through the loop.

    Attributes
    ----------
    key
        The seed's random key.
    env, action
        The environments' states, and the action already chosen in each.
    agent
        The agent's state.
    replay
        A ring of transitions, packed as rows of one array; empty on-policy.
    pool
        The Q-values of the last samples at the tracked states, (pool_size, states, actions).
    samples
        The last parameter samples, each leaf with a leading axis; an empty tuple if none are kept.
    episode_return
        The rewards of the running episode so far, in each environment.
    diverged
        The first update after which something was not finite, or -1.
    """

    key: Array
    env: Any
    action: Array
    agent: LearnerState
    replay: Any
    pool: Any
    samples: Params
    episode_return: Array
    diverged: Array


class Trace(NamedTuple):
    """Sums over the cycles of one call; ``returns`` over the episodes that ended in it."""

    reward: Array
    returns: Array
    episodes: Array
    squared_residual: Array


@dataclass(frozen=True, eq=False)
class Loop:
    """The training loop of one seed as pure functions, to be mapped over many.

    Parameters
    ----------
    env, agent, settings
        Who learns where, and how acting and learning take turns.
    tracked
        The observations at which the agent's values go into the pool after every update.
    """

    env: Environment[Any]
    agent: Learner
    settings: LoopSettings
    tracked: Array

    def init(self, key: Array) -> SeedState:
        """Start a seed: a fresh agent in fresh environments."""
        key, agent_key, start_key = jax.random.split(key, 3)
        agent = self.agent.init(agent_key)
        uniforms = self._split(
            jax.random.uniform(start_key, (self.settings.environments, self._uniforms_per_step))
        )
        env = jax.vmap(self.env.reset)(uniforms.reset)
        values = self.agent.values(key, agent, self.tracked)
        return SeedState(
            key=key,
            env=env,
            action=self._choose(agent, env, uniforms.policy, jnp.int32(0)),
            agent=agent,
            replay=jnp.zeros((self.settings.replay_capacity or 0, self._packing.width)),
            pool=jnp.zeros((self.settings.pool_size, *values.shape[1:])),
            samples=samples.empty(agent.sampler.params, self.settings.parameter_samples),
            episode_return=jnp.zeros(self.settings.environments),
            diverged=jnp.int32(-1),
        )

    def collect(self, seed: SeedState, clock: Clock, cycles: Any) -> tuple[SeedState, Clock, Trace]:
        """Run cycles that only fill the replay memory; their number may be traced."""
        return self._run(seed, clock, cycles, learn=False)

    def train(self, seed: SeedState, clock: Clock, cycles: Any) -> tuple[SeedState, Clock, Trace]:
        """Run cycles with an update each; their number may be traced."""
        return self._run(seed, clock, cycles, learn=True)

    def _run(
        self, seed: SeedState, clock: Clock, cycles: Any, *, learn: bool
    ) -> tuple[SeedState, Clock, Trace]:
        def body(_: Any, carry: tuple[SeedState, Clock, Trace]) -> tuple[SeedState, Clock, Trace]:
            seed, clock, total = carry
            seed, trace = self._cycle(seed, clock, learn=learn)
            updates = self.settings.updates_per_cycle if learn else 0
            clock = clock._replace(cycles=clock.cycles + 1, updates=clock.updates + updates)
            return seed, clock, jax.tree.map(jnp.add, total, trace)

        nothing = Trace(jnp.zeros(()), jnp.zeros(()), jnp.int32(0), jnp.zeros(()))
        result: tuple[SeedState, Clock, Trace] = jax.lax.fori_loop(
            0, cycles, body, (seed, clock, nothing)
        )
        return result

    def _cycle(self, seed: SeedState, clock: Clock, *, learn: bool) -> tuple[SeedState, Trace]:
        """Act, remember, update: with all uniform numbers of the cycle from one draw."""
        settings = self.settings
        key, uniform_key, update_key = jax.random.split(seed.key, 3)
        acting = (settings.steps_per_update, settings.environments, self._uniforms_per_step)
        batches = (settings.updates_per_cycle, settings.batch_size)
        drawn = jax.random.uniform(uniform_key, (math.prod(acting) + math.prod(batches),))
        for_acting, for_batches = jnp.split(drawn, [math.prod(acting)])
        first_step = clock.cycles * settings.transitions_per_cycle

        seed = seed._replace(key=key)
        seed, rows, trace = self._act(seed, for_acting.reshape(acting), first_step)
        seed = seed._replace(replay=self._remember(seed.replay, rows, clock))
        if learn:
            seed, residual = self._learn(
                seed, clock, update_key, rows, for_batches.reshape(batches)
            )
            trace = trace._replace(squared_residual=residual)
        return seed, trace

    def _act(
        self, seed: SeedState, uniforms: Array, first_step: Array
    ) -> tuple[SeedState, Array, Trace]:
        """Take the steps of a cycle, during which the agent does not change."""

        def body(carry: tuple[Any, Array, Array], inputs: tuple[Array, Array]) -> Any:
            env, action, so_far = carry
            env, action, row, reward, over = self._step(seed.agent, env, action, *inputs)
            so_far = so_far + reward
            finished = jnp.where(over, so_far, 0.0)
            return (env, action, jnp.where(over, 0.0, so_far)), (row, reward, finished, over)

        lanes = self.settings.environments
        steps = first_step + lanes * jnp.arange(self.settings.steps_per_update)
        (env, action, so_far), (rows, reward, finished, over) = jax.lax.scan(
            body, (seed.env, seed.action, seed.episode_return), (uniforms, steps)
        )
        trace = Trace(jnp.sum(reward), jnp.sum(finished), jnp.sum(over), jnp.zeros(()))
        rows = rows.reshape(-1, self._packing.width)
        return seed._replace(env=env, action=action, episode_return=so_far), rows, trace

    def _step(
        self, agent: LearnerState, env: Any, action: Array, uniforms: Array, step: Array
    ) -> tuple[Any, Array, Array, Array, Array]:
        """Step every environment once; start a new episode where one is over."""
        lanes = self.settings.environments
        drawn = self._split(uniforms)
        after = jax.vmap(self.env.step)(env, action, drawn.step)
        fresh = jax.vmap(self.env.reset)(drawn.reset)
        over = after.terminated | after.truncated
        # An action is needed at s', for the transition, and where the agent really goes on, which
        # is a fresh start if the episode is over: both in one pass through the network.
        both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), after.state, fresh)
        actions = self._choose(agent, both, jnp.tile(drawn.policy, (2, 1)), step)
        transition = Transition(
            observation=jax.vmap(self.env.observe)(env),
            action=action,
            reward=after.reward,
            discount=discount_of(self.settings.discount, after.terminated),
            next_observation=after.observation,
            next_action=actions[:lanes],
            next_mask=jax.vmap(self.env.action_mask)(after.state),
        )
        go_on = jax.tree.map(lambda f, s: jnp.where(_like(over, f), f, s), fresh, after.state)
        action = jnp.where(over, actions[lanes:], actions[:lanes])
        return go_on, action, jax.vmap(self._packing.pack)(transition), after.reward, over

    def _choose(self, agent: LearnerState, env: Any, uniforms: Array, step: Array) -> Array:
        observation = jax.vmap(self.env.observe)(env)
        mask = jax.vmap(self.env.action_mask)(env)
        epsilon = self.settings.exploration(step)
        return self.agent.act(agent, observation, mask, uniforms, epsilon)

    def _remember(self, replay: Array, rows: Array, clock: Clock) -> Array:
        """Write the cycle's transitions into the ring; on-policy there is none."""
        capacity = self.settings.replay_capacity
        if capacity is None:
            return replay
        # The capacity is a multiple of the rows, so that a write never wraps around.
        position = (clock.cycles - clock.emptied) * rows.shape[0] % capacity
        return jax.lax.dynamic_update_slice_in_dim(replay, rows, position, axis=0)

    def _learn(
        self, seed: SeedState, clock: Clock, key: Array, rows: Array, uniforms: Array
    ) -> tuple[SeedState, Array]:
        """Make the updates of a cycle."""
        settings, memory = self.settings, seed.replay
        size = (clock.cycles - clock.emptied + 1) * settings.transitions_per_cycle
        size = jnp.minimum(size, settings.replay_capacity or 0)

        def update_once(carry: tuple[SeedState, Array], inputs: tuple[Array, Array]) -> Any:
            seed, done = carry
            update_key, uniforms = inputs
            chosen = jnp.minimum((uniforms * size).astype(jnp.int32), size - 1)
            batch = rows if settings.replay_capacity is None else memory[chosen]
            transitions = jax.vmap(self._packing.unpack)(batch)
            seed, residual = self._update(seed, done, update_key, transitions)
            return (seed, done + 1), residual

        # The memory does not change meanwhile, and carried through the scan it would be copied.
        start = (seed._replace(replay=()), clock.updates)
        if settings.updates_per_cycle == 1:
            (seed, _), residual = update_once(start, (key, uniforms[0]))
        else:
            keys = jax.random.split(key, settings.updates_per_cycle)
            (seed, _), residuals = jax.lax.scan(update_once, start, (keys, uniforms))
            residual = jnp.mean(residuals)
        return seed._replace(replay=memory), residual

    def _update(
        self, seed: SeedState, done: Array, key: Array, transitions: Transition
    ) -> tuple[SeedState, Array]:
        """Update the agent, and put what came out into the pools; ``done`` counts the updates."""
        before = Learned(seed.agent, seed.samples, seed.diverged)
        learned, residual = update(
            self.agent, key, before, transitions, done, thinning=self.settings.thinning
        )
        values = self.agent.values(jax.random.fold_in(key, 1), learned.learner, self.tracked)
        position = (done * values.shape[0]) % self.settings.pool_size
        pool = jax.lax.dynamic_update_slice_in_dim(seed.pool, values, position, axis=0)
        seed = seed._replace(
            agent=learned.learner,
            pool=pool,
            samples=learned.samples,
            diverged=learned.diverged,
        )
        return seed, residual

    @property
    def samples_per_update(self) -> int:
        """How many samples of the tracked values an update adds to the pool."""
        return self.agent.heads

    @property
    def _packing(self) -> Packing:
        return Packing(tuple(self.env.observation_shape), self.env.num_actions)

    @property
    def _uniforms_per_step(self) -> int:
        return self.agent.acting_uniforms + self.env.step_uniforms + self.env.reset_uniforms

    def _split(self, uniforms: Array) -> _Uniforms:
        ends = [self.agent.acting_uniforms, self.agent.acting_uniforms + self.env.step_uniforms]
        return _Uniforms(*jnp.split(uniforms, ends, axis=-1))


class _Uniforms(NamedTuple):
    """The uniform numbers of one step, by who consumes them."""

    policy: Array
    step: Array
    reset: Array


def _like(flag: Array, like: Array) -> Array:
    return flag.reshape(flag.shape + (1,) * (like.ndim - flag.ndim))
