r"""The compiled training loop: everything from acting to the pool of samples under one ``jit``.

One *cycle* is a number of environment steps followed by one or more updates. Counters that are
the same for all seeds (:class:`~valuetrack.training.trainer.Clock`) stay apart from what each seed
carries (:class:`SeedState`), so that under ``vmap`` a ring is written by one slice for all seeds
and not by a scatter.

A seed's random numbers come from its own key alone: they do not depend on the seeds beside it or
on the number of devices.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack.envs.base import Environment, restarted
from valuetrack.learner import Acted, Learner, LearnerState, drawn_opinion
from valuetrack.measurement import discount_of
from valuetrack.replay import DeviceRing, Layout, Rows
from valuetrack.samplers.base import Info
from valuetrack.training import beliefs
from valuetrack.training.beliefs import Belief
from valuetrack.training.trainer import Clock, Settings, Trace
from valuetrack.training.update import Learned, start, update
from valuetrack.types import Array, Batch, Scalar, Transition, Tree

JaxEnvironment = Environment[Tree]
"""An environment whose states are any pytree."""
NOTHING: Tree = ()
"""In place of a part of the state that stays behind."""


class SeedState(NamedTuple):
    """What one seed carries through the loop."""

    key: Array
    env: Tree
    action: Array
    """The environments' states, and the action already chosen in each."""
    learned: Learned
    replay: Rows
    """A ring of transitions; on-policy it holds those of one cycle."""
    values: Array
    """The tracked values after the last updates, (room, heads, states, actions)."""
    episode_return: Array
    """The rewards of the running episode so far, in each environment."""
    belief: Belief
    """What the learner believed of the running episode, in each environment."""
    head: Tree = NOTHING
    """The opinion that plays the running episode, in each environment, where episodes draw one."""


@dataclass(frozen=True, eq=False)
class Loop:
    """The training loop of one seed as pure functions, to be mapped over many."""

    env: JaxEnvironment
    learner: Learner
    settings: Settings
    tracked: Array
    """The observations at which the learner's values are recorded after every update."""
    room: int = 1
    """For how many updates there is room in the ring of tracked values."""

    def init(self, key: Array) -> SeedState:
        """Start a seed: a fresh learner in fresh environments."""
        key, learner_key, start_key = jax.random.split(key, 3)
        learned = start(self.learner, learner_key, self.settings.pool_size)
        uniforms = self._split(
            jax.random.uniform(start_key, (self.settings.environments, self._uniforms_per_step))
        )
        env = jax.vmap(self.env.reset)(uniforms.reset)
        values = jax.eval_shape(self.learner.values, key, learned.learner, self.tracked)
        head = self._drawn_opinion(uniforms.policy)
        first = self._choose(learned.learner, env, uniforms.policy, jnp.int32(0), head)
        return SeedState(
            key=key,
            env=env,
            action=first.action,
            learned=learned,
            replay=self.ring.init(),
            values=jnp.zeros((self.room, *values.shape)),
            episode_return=jnp.zeros(self.settings.environments),
            belief=beliefs.begun(first.value, first.follows),
            head=head,
        )

    def collect(
        self, seed: SeedState, trace: Trace, clock: Clock, cycles: Scalar
    ) -> tuple[SeedState, Trace]:
        """Run cycles that only fill the replay memory; their number may be traced."""
        return self._run(seed, trace, clock, cycles, learn=False)

    def train(
        self, seed: SeedState, trace: Trace, clock: Clock, cycles: Scalar
    ) -> tuple[SeedState, Trace]:
        """Run cycles that end with updates; their number may be traced."""
        return self._run(seed, trace, clock, cycles, learn=True)

    def _run(
        self, seed: SeedState, trace: Trace, clock: Clock, cycles: Scalar, *, learn: bool
    ) -> tuple[SeedState, Trace]:
        def body(_: Array, carry: tuple[SeedState, Clock, Trace]) -> tuple[SeedState, Clock, Trace]:
            seed, clock, total = carry
            seed, trace = self._cycle(seed, clock, learn=learn)
            updates = self.settings.updates_per_cycle if learn else 0
            clock = clock._replace(cycles=clock.cycles + 1, updates=clock.updates + updates)
            return seed, clock, jax.tree.map(jnp.add, total, trace)

        seed, _, trace = jax.lax.fori_loop(0, cycles, body, (seed, clock, trace))
        return seed, trace

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
        seed = seed._replace(replay=self.ring.write(seed.replay, rows, clock.remembered))
        if self.learner.observe is not None:
            seen = self.ring.unpack(rows).observation
            learner = self.learner.observe(seed.learned.learner, seen, jnp.ones(len(seen), bool))
            seed = seed._replace(learned=seed.learned._replace(learner=learner))
        if learn:
            seed, residual = self._learn(seed, clock, update_key, for_batches.reshape(batches))
            trace = trace._replace(squared_residual=residual, learning=jnp.int32(1))
        return seed, trace

    def _act(
        self, seed: SeedState, uniforms: Array, first_step: Scalar
    ) -> tuple[SeedState, Rows, Trace]:
        """Take the steps of a cycle, during which the learner does not change."""

        def body(carry: tuple[_Running, Array], inputs: tuple[Array, Array]) -> Tree:
            running, so_far = carry
            running, row, reward, over, ended = self._step(seed.learned.learner, running, *inputs)
            so_far = so_far + reward
            finished = jnp.where(over, so_far, 0.0)
            return (running, jnp.where(over, 0.0, so_far)), (row, reward, finished, over, ended)

        count = self.settings.environments
        steps = first_step + count * jnp.arange(self.settings.steps_per_update)
        begin = (_Running(seed.env, seed.action, seed.belief, seed.head), seed.episode_return)
        (running, so_far), (rows, reward, finished, over, ended) = jax.lax.scan(
            body, begin, (uniforms, steps)
        )
        none = jnp.zeros((), reward.dtype)
        trace = Trace(
            jnp.sum(reward),
            jnp.sum(finished),
            jnp.sum(over),
            none,
            jnp.int32(0),
            jnp.int32(1),
            *(jnp.sum(part, axis=0) for part in ended),
        )
        rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows)
        return seed._replace(**running._asdict(), episode_return=so_far), rows, trace

    def _step(
        self, learner: LearnerState, running: _Running, uniforms: Array, step: Array
    ) -> tuple[_Running, Rows, Array, Array, beliefs.Ended]:
        """Step every environment once; start a new episode where one is over."""
        env, action, belief, head = running
        count = self.settings.environments
        drawn = self._split(uniforms)
        after = jax.vmap(self.env.step)(env, action, drawn.step)
        fresh = jax.vmap(functools.partial(restarted, self.env))(after.state, drawn.reset)
        over = after.terminated | after.truncated
        # An action is needed at s', for the transition, and where the environment really goes on,
        # which is a fresh start if the episode is over: both in one pass through the network.
        both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), after.state, fresh)
        heads, head = self._next_opinions(head, over, drawn.policy, step)
        choices = self._choose(learner, both, jnp.tile(drawn.policy, (2, 1)), step, heads)
        there, anew = (Acted(*(part[i] for part in choices)) for i in _halves(count))
        next_mask, next_action = jax.vmap(self.env.action_mask)(after.state), there.action
        if self.learner.policy is not None:  # the behaviour may explore beside it
            next_action = self.learner.policy(after.observation, next_mask, drawn.policy)
        transition = Transition(
            observation=jax.vmap(self.env.observe)(env),
            action=action,
            reward=after.reward,
            discount=discount_of(self.settings.discount, after.terminated),
            next_observation=after.observation,
            next_action=next_action,
            next_mask=next_mask,
        )
        go_on = jax.tree.map(lambda f, s: jnp.where(_like(over, f), f, s), fresh, after.state)
        belief = beliefs.paid(belief, after.reward, self.settings.discount)
        ended = beliefs.ended(belief, over, after.truncated, there.value)
        belief = beliefs.renewed(
            over,
            beliefs.begun(anew.value, anew.follows),
            beliefs.chosen(belief, there.value, there.follows),
        )
        action = jnp.where(over, anew.action, there.action)
        went = _Running(go_on, action, belief, head)
        ahead = jnp.where(over, 0, count) if self.settings.n_step > 1 else ()
        return went, self.ring.pack(transition, ahead), after.reward, over, ended

    def _choose(
        self, learner: LearnerState, env: Tree, uniforms: Array, step: Array, head: Tree
    ) -> Acted:
        observation = jax.vmap(self.env.observe)(env)
        mask = jax.vmap(self.env.action_mask)(env)
        epsilon = self.settings.exploration(step)
        state = learner._replace(head=head) if self.learner.opinions else learner
        return self.learner.act(state, observation, mask, uniforms, epsilon)

    def _drawn_opinion(self, uniforms: Array) -> Tree:
        """Draw the opinion that plays an episode, for each environment; nothing where none is."""
        if not self.learner.opinions:
            return NOTHING
        return drawn_opinion(uniforms[..., -1], self.learner.opinions)

    def _next_opinions(
        self, head: Tree, over: Array, uniforms: Array, step: Array
    ) -> tuple[Tree, Tree]:
        """Return who chooses at s' and at a fresh start, and who goes on."""
        if not self.learner.opinions:
            return NOTHING, NOTHING
        fresh = self._drawn_opinion(uniforms)
        if every := self.learner.redraw_every:
            head = jnp.where(step // self.settings.environments % every == 0, fresh, head)
        return jnp.concatenate([head, fresh]), jnp.where(over, fresh, head)

    def _learn(
        self, seed: SeedState, clock: Clock, key: Array, uniforms: Array
    ) -> tuple[SeedState, Array]:
        """Make the updates of a cycle, whose transitions are written already."""
        settings, ring, memory = self.settings, self.ring, seed.replay
        writes = clock.remembered + 1
        on_policy = settings.replay_capacity is None
        newest = ring.newest(memory, writes) if on_policy else None

        def update_once(carry: tuple[SeedState, Array, Tree], inputs: tuple[Array, Array]) -> Tree:
            seed, done, priority = carry
            update_key, uniforms = inputs
            if settings.prioritised:
                kept, beta = memory._replace(priority=priority), settings.importance(done)
                batch, rows = ring.draw_prioritised(kept, uniforms, writes, beta)
                seed, info = self._update(seed, done, update_key, batch)
                priority = ring.renewed(priority, rows, info.errors)
            else:
                even = ring.draw(memory, uniforms, writes) if newest is None else newest
                seed, info = self._update(seed, done, update_key, even)
            return (seed, done + 1, priority), info.mean_squared_residual

        # Transitions do not change meanwhile, and carried through the scan they would be copied.
        begin: Tree = (seed._replace(replay=NOTHING), clock.updates, memory.priority)
        if settings.updates_per_cycle == 1:
            (seed, _, priority), residual = update_once(begin, (key, uniforms[0]))
        else:
            keys = jax.random.split(key, settings.updates_per_cycle)
            (seed, _, priority), residuals = jax.lax.scan(update_once, begin, (keys, uniforms))
            residual = jnp.mean(residuals)
        return seed._replace(replay=memory._replace(priority=priority)), residual

    def _update(
        self, seed: SeedState, done: Array, key: Array, batch: Batch
    ) -> tuple[SeedState, Info]:
        """Update the learner, and record its tracked values; ``done`` counts the updates."""
        learned, info = update(
            self.learner, key, seed.learned, batch, done, thinning=self.settings.thinning
        )
        values = self.learner.values(jax.random.fold_in(key, 1), learned.learner, self.tracked)
        ring = jax.lax.dynamic_update_slice_in_dim(
            seed.values, values[None], done % self.room, axis=0
        )
        return seed._replace(learned=learned, values=ring), info

    @functools.cached_property
    def ring(self) -> DeviceRing:
        """The replay memory of one seed, as pure functions."""
        settings = self.settings
        return DeviceRing(
            layout(self.env),
            settings.ring_capacity,
            settings.transitions_per_cycle,
            settings.n_step,
            settings.prioritised,
            settings.half_life,
        )

    @property
    def _uniforms_per_step(self) -> int:
        return self.learner.acting_uniforms + self.env.step_uniforms + self.env.reset_uniforms

    def _split(self, uniforms: Array) -> _Uniforms:
        policy = self.learner.acting_uniforms
        ends = [policy, policy + self.env.step_uniforms]
        return _Uniforms(*jnp.split(uniforms, ends, axis=-1))


def layout(env: JaxEnvironment) -> Layout:
    """Return what the transitions of an environment look like on the device."""
    dtype = jax.dtypes.canonicalize_dtype(env.observation_dtype)
    return Layout(tuple(env.observation_shape), np.dtype(dtype), env.num_actions)


class _Running(NamedTuple):
    """The part of a seed's state that steps change."""

    env: Tree
    action: Array
    belief: Belief
    head: Tree


class _Uniforms(NamedTuple):
    """The uniform numbers of one step, by who consumes them."""

    policy: Array
    step: Array
    reset: Array


def _halves(count: int) -> tuple[slice, slice]:
    return slice(count), slice(count, None)


def _like(flag: Array, like: Array) -> Array:
    return flag.reshape(flag.shape + (1,) * (like.ndim - flag.ndim))
