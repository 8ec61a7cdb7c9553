"""The trainer for environments in Python: any Gymnasium environment, updates batched over seeds.

It keeps the rhythm of the compiled loop: act for a cycle, then update. What a seed draws depends
on the seed and on the number of the cycle alone, so that no generator needs to be saved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack import rng
from valuetrack.envs.gym.vectorised import Observed, StepResult, VectorisedEnvs
from valuetrack.interrupts import Uninterrupted
from valuetrack.io.arrays import Arrays, from_arrays, to_arrays
from valuetrack.learner import Acted, Learner, LearnerState
from valuetrack.replay import HostRing, Layout, host_transitions
from valuetrack.training import beliefs
from valuetrack.training.beliefs import Belief
from valuetrack.training.trainer import (
    LEARNED,
    TRACE,
    Clock,
    Settings,
    Trainer,
    read_clock,
    read_trace,
)
from valuetrack.training.update import Learned, start, update
from valuetrack.types import AnyArray, Array, NDArray, Params, Scalar, Transition, Tree

STREAM = 0x7661_6C75_6574
"""The second word of the host generators' keys, so that no other use of a seed shares a stream."""
CYCLES_DRAWN = 16
"""For how many cycles uniform numbers are drawn at a time: a generator takes long to make."""


HostPolicy = Callable[[Observed, NDArray, NDArray], NDArray]
"""A given policy: (observed, rows, uniforms) -> actions, one per environment. Only those where
``rows`` is true matter; ``uniforms`` are ``acting_uniforms`` numbers per environment."""


class _Acting(NamedTuple):
    """The part of a sampler's state that acts."""

    params: Params


def _acting(state: LearnerState) -> LearnerState:
    """Leave behind what only updates need: every array of an argument costs time."""
    return state._replace(sampler=_Acting(state.sampler.params), target=())


class HostTrainer(Trainer):
    """Seeds that learn side by side in Gymnasium environments.

    ``envs`` are ``settings.environments`` environments per seed, those of one seed side by side.
    A ``policy`` chooses the actions in place of the learner; ``settings.exploration`` lays random
    ones over it.
    """

    def __init__(
        self,
        learner: Learner,
        settings: Settings,
        envs: VectorisedEnvs,
        seeds: Sequence[int],
        policy: HostPolicy | None = None,
    ) -> None:
        if envs.count != len(seeds) * settings.environments:
            raise ValueError(
                f"{len(seeds)} seeds with {settings.environments} environments each need "
                f"{len(seeds) * settings.environments} environments, not {envs.count}."
            )
        shape, dtype = tuple(envs.encoder.shape), np.dtype(envs.encoder.dtype)
        super().__init__(learner, settings, Layout(shape, dtype, envs.num_actions), seeds)
        self.envs, self._policy = envs, policy
        self._owner = np.arange(envs.count) // settings.environments
        self._drawn, self._drawn_block = np.zeros(0, np.float32), -1
        # Split as in the compiled loop, so that a seed begins with the same parameters in both.
        keys = jax.vmap(lambda seed: jax.random.split(rng.key(seed), 3))(
            jnp.asarray(self.seeds, jnp.uint32)
        )
        self._keys = self._groups.split(keys[:, 0])
        begin = self._groups.compile(lambda key: start(learner, key, settings.pool_size))
        self._learned: list[Learned] = self._groups.start(
            begin, [(part,) for part in self._groups.split(keys[:, 1])]
        )
        self.replay = HostRing(self.layout, len(self.seeds), settings.ring_capacity)
        self._act = self._groups.compile(self._act_one, in_axes=(0, 0, 0, 0, None))
        if (observe := learner.observe) is not None:
            self._observe = self._groups.compile(observe)
        self._compile(self._encoded(None))
        self._begin_episodes()

    @property
    def _parts(self) -> list[Learned]:
        return self._learned

    def track(self, observations: NDArray | None) -> None:
        """Return the values at these observations from now on; ``None`` for no values."""
        tracked = self._encoded(observations)
        if not np.array_equal(tracked, self.tracked):
            self._compile(tracked)

    def _compile(self, tracked: NDArray) -> None:
        self.tracked = tracked
        self._updates = self._groups.compile(
            self._update_one, in_axes=(0, 0, 0, None), donate_argnums=0
        )

    def run(self, cycles: int) -> NDArray:
        """Run some cycles; return the tracked values."""
        results: list[tuple[list[Array], list[Array]]] = []
        if self._broken_off:
            self._begin_episodes()
        try:
            for _ in range(cycles):
                policy, batches = self._uniforms()
                for taken, uniforms in enumerate(policy):
                    self._step(uniforms, self.steps + taken * self.settings.environments)
                with Uninterrupted():
                    self._report_seen()
                    learns = not self._warmup_left()
                    self.clock = self.clock._replace(cycles=self.clock.cycles + 1)
                    self.trace = self.trace.plus(reward=self._per_seed(self._gained), cycles=1)
                    self._gained[:] = 0.0
                    if learns:
                        results.append(self._update(self._batch(batches)))
        finally:  # also if an environment fails
            for residuals, _ in results:
                self.trace = self.trace.plus(squared_residual=_whole(residuals), learning=1)
        return self._stack([values for _, values in results])

    def memory(self, index: int) -> Transition:
        """Return the transitions that a seed remembers, (n, ...); not to be changed."""
        filled = int(self.replay.filled[index])
        return Transition(*(ring[index, :filled] for ring in self.replay.rows))

    def arrays(self, *, replay: bool = True) -> dict[str, NDArray]:
        """Return all that goes into a model file: everything but the environments."""
        memory = self.replay.arrays() if replay else {}
        learned, trace = to_arrays(self.learned, LEARNED), to_arrays(self.trace, TRACE)
        return {**learned, **memory, **trace, **self.clock.arrays()}

    def restore(self, arrays: Arrays, *, replay: bool = True) -> None:
        """Go on from :meth:`arrays`; the environments begin new episodes.

        Their seeds depend on how far the training is. Without replay, the memory is filled anew.
        """
        clock = read_clock(arrays)
        restored = from_arrays(arrays, self.learned, LEARNED)
        if replay:
            self.replay.restore(arrays, clock.remembered * self.settings.transitions_per_cycle)
        else:
            self.replay.clear()
            clock = clock._replace(emptied=clock.cycles)
        self._learned = self._groups.split(restored)
        self.clock, self.trace = clock, read_trace(arrays, self.trace)
        self._begin_episodes()

    def adopt(self, learned: Learned, clock: Clock) -> None:
        """Go on with what another trainer has learned; the replay memory is filled anew."""
        self._learned = self._groups.split(jax.tree.map(jnp.array, learned))
        self.clock = clock._replace(emptied=clock.cycles)
        self.replay.clear()
        self._begin_episodes()

    def _begin_episodes(self) -> None:
        cycles, places = self.clock.cycles, range(self.settings.environments)
        starts = [
            int(np.random.SeedSequence([seed, place, cycles]).generate_state(1)[0] >> 1)
            for seed in self.seeds
            for place in places
        ]
        self.observed = self.envs.reset(starts)
        self.returns, self._gained = np.zeros((2, self.envs.count))
        self._seen: list[tuple[NDArray, NDArray]] = []
        generators = [self._generator(seed, cycles, start=1) for seed in self.seeds]
        count = self.learner.acting_uniforms
        uniforms = np.stack([g.random((len(places), count), np.float32) for g in generators])
        everywhere = np.ones(self.envs.count, bool)
        first, _ = self._choose(self.observed, everywhere, uniforms, self.steps)
        self.action: NDArray = np.asarray(first.action)
        self._belief: Belief = beliefs.begun(first.value, first.follows)
        self._broken_off = False

    def _step(self, uniforms: NDArray, step: int) -> None:
        """Step every environment once, remember it, and choose the next actions."""
        # The environments and what is known of them agree again at the end of this function.
        self._broken_off = True
        arrived = self.envs.step(self.action)
        over = arrived.terminated | arrived.truncated
        # Where the next step only resets, nobody takes the action at the end of an episode.
        acting = ~over if arrived.current is arrived.next else np.ones_like(over)
        choice, next_action = self._choose(arrived.current, acting, uniforms, step)
        last = choice
        if over.any():
            last, at_end = self._choose(arrived.next, arrived.truncated, uniforms, step)
            next_action = np.where(over, at_end, next_action)
        self._remember(arrived, next_action)
        gained = arrived.reward * arrived.is_transition
        self.returns += gained
        self._gained += gained
        if over.any():
            ended = over & arrived.is_transition
            returns = self._per_seed(np.where(ended, self.returns, 0.0))
            self.trace = self.trace.plus(returns=returns, episodes=self._per_seed(ended))
            self.returns[ended] = 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # the values of a seed that diverges
            self._believe(arrived, choice, last)
        if self.learner.observe is not None:
            self._seen.append((self.observed.observation, arrived.is_transition))
        self.observed, self.action = arrived.current, np.asarray(choice.action)
        self._broken_off = False

    def _believe(self, arrived: StepResult, choice: Acted, last: Acted) -> None:
        """Compare what was believed of the episodes that are over with what came of them.

        ``last`` is the choice where a transition led to, ``choice`` that where the environments
        go on.
        """
        over = arrived.terminated | arrived.truncated
        belief = beliefs.paid(self._belief, arrived.reward, self.settings.discount)
        if over.any():
            by_seed = (len(self.seeds), self.settings.environments)
            ends = (belief, over & arrived.is_transition, arrived.truncated, last.value)
            reshaped = jax.tree.map(lambda part: part.reshape(by_seed), ends)
            self.trace = self.trace.plus(**beliefs.ended(*reshaped)._asdict())
        # Some vector environments start an episode only with the step after an end.
        starts = ~arrived.is_transition
        if arrived.current is not arrived.next:
            starts = starts | over
        fresh = beliefs.begun(choice.value, choice.follows)
        going_on = beliefs.chosen(belief, choice.value, choice.follows)
        self._belief = beliefs.renewed(starts, fresh, going_on)

    def _report_seen(self) -> None:
        """Tell a learner that normalises observations of those of a cycle."""
        if self.learner.observe is None:
            return

        def by_seed(*steps: NDArray) -> NDArray:
            whole = np.stack(steps, axis=1)  # (environments, steps, ...)
            return whole.reshape(len(self.seeds), -1, *whole.shape[2:])

        seen = self._groups.split(tuple(by_seed(*part) for part in zip(*self._seen, strict=True)))
        self._seen = []
        states = self._groups.start(
            self._observe,
            [(one.learner, *part) for one, part in zip(self._learned, seen, strict=True)],
        )
        pairs = zip(self._learned, states, strict=True)
        self._learned = [one._replace(learner=state) for one, state in pairs]

    def _per_seed(self, values: NDArray) -> NDArray:
        """Return sums over each seed's environments."""
        return np.asarray(values.reshape(len(self.seeds), -1).sum(axis=1))

    def _remember(self, arrived: StepResult, next_action: NDArray) -> None:
        transitions = host_transitions(
            observation=self.observed.observation,
            action=self.action,
            reward=arrived.reward,
            discount=np.where(arrived.terminated, 0.0, self.settings.discount),
            next_observation=arrived.next.observation,
            next_action=next_action,
            next_mask=arrived.next.mask,
        )
        self.replay.write(np.flatnonzero(arrived.is_transition), self._owner, transitions)

    def _choose(
        self, observed: Observed, rows: NDArray, uniforms: NDArray, step: int
    ) -> tuple[Acted, NDArray]:
        """Return the actions to take, and those that SARSA counts as the next ones.

        They differ where a given policy is explored around. Only those in ``rows`` matter.
        """
        if self._policy is not None:
            drawn = uniforms.reshape(self.envs.count, -1)
            own = self._policy(observed, rows, drawn)
            taken = explored(own, observed.mask, drawn, self.settings.exploration(step))
            unknown = np.full(len(own), np.nan, np.float32)
            return _on_host([taken], [unknown], [np.ones(len(own), bool)]), own
        by_seed = (len(self.seeds), self.settings.environments)
        seen = [part.reshape(*by_seed, *part.shape[1:]) for part in observed[:2]]
        given = self._groups.split((*seen, uniforms))
        parts = zip(self._act, self._learned, given, strict=True)
        chosen = [act(_acting(one.learner), *part, np.int32(step)) for act, one, part in parts]
        choice = _on_host(*zip(*chosen, strict=True))
        return choice, np.asarray(choice.action)

    def _batch(self, uniforms: NDArray) -> Transition:
        """Return the batches of a cycle, (seeds, updates, batch, ...)."""
        if self.settings.replay_capacity is not None:
            return self.replay.draw(uniforms)
        newest = self.replay.newest(self.settings.transitions_per_cycle)
        batch: Transition = jax.tree.map(
            lambda leaf: np.stack([leaf] * uniforms.shape[1], axis=1), newest
        )
        return batch

    def _update(self, batch: Transition) -> tuple[list[Array], list[Array]]:
        """Start the updates of a cycle; nothing waits for them here.

        Returns the residuals and the tracked values, by group.
        """
        done = np.int32(self.clock.updates)
        given = zip(self._learned, self._keys, self._groups.split(batch), strict=True)
        arguments = [(*each, done) for each in given]
        with Uninterrupted():
            results = self._groups.start(self._updates, arguments)
            self._learned = [learned for learned, _, _ in results]
            updates = self.clock.updates + self.settings.updates_per_cycle
            self.clock = self.clock._replace(updates=updates)
        return [residual for _, residual, _ in results], [values for _, _, values in results]

    def _uniforms(self) -> tuple[NDArray, NDArray]:
        """Return this cycle's uniform numbers: (steps, seeds, environments, n), and for batches."""
        s = self.settings
        acting = (s.steps_per_update, s.environments, self.learner.acting_uniforms)
        batches = (s.updates_per_cycle, s.batch_size)
        block, cycle = divmod(self.clock.cycles, CYCLES_DRAWN)
        if block != self._drawn_block:
            shape = (CYCLES_DRAWN, math.prod(acting) + math.prod(batches))
            drawn = [self._generator(seed, block).random(shape, np.float32) for seed in self.seeds]
            self._drawn, self._drawn_block = np.stack(drawn), block
        policy, chosen = np.split(self._drawn[:, cycle], [math.prod(acting)], axis=1)
        policy = policy.reshape(-1, *acting).swapaxes(0, 1)
        return policy, chosen.reshape(-1, *batches)

    @staticmethod
    def _generator(seed: int, number: int, start: int = 0) -> np.random.Generator:
        return np.random.Generator(
            np.random.Philox(key=[seed, STREAM], counter=[0, start, number, 0])
        )

    def _act_one(
        self, state: LearnerState, observation: Array, mask: Array, uniforms: Array, step: Array
    ) -> Acted:
        epsilon = self.settings.exploration(step)
        return self.learner.act(state, observation, mask, uniforms, epsilon)

    def _update_one(
        self, learned: Learned, key: Array, batches: Transition, done: Array
    ) -> tuple[Learned, Array, Array]:
        """Make the updates of a cycle for one seed."""

        def update_once(carry: tuple[Learned, Array], batch: Transition) -> Tree:
            learned, done = carry
            update_key = jax.random.fold_in(key, done)
            learned, residual = update(
                self.learner, update_key, learned, batch, done, thinning=self.settings.thinning
            )
            values_key = jax.random.fold_in(update_key, 1)
            values = self.learner.values(values_key, learned.learner, jnp.asarray(self.tracked))
            return (learned, done + 1), (residual, values)

        (learned, _), (residuals, values) = jax.lax.scan(update_once, (learned, done), batches)
        return learned, jnp.mean(residuals), values

    def _stack(self, values: list[list[Array]]) -> NDArray:
        """Put the tracked values of all updates one after the other: (updates, seeds, ...)."""
        if not values or not len(self.tracked):
            return np.zeros((0, len(self.seeds)))
        return np.concatenate([np.moveaxis(_whole(parts), 0, 1) for parts in values])


def explored(actions: NDArray, mask: NDArray, uniforms: NDArray, epsilon: Scalar) -> NDArray:
    """Replace actions by random legal ones with probability epsilon.

    Of the uniform numbers, the first says whether to explore, and the second where to.
    """
    taken = actions.copy()
    for row in np.flatnonzero(uniforms[:, 0] < epsilon):
        legal = np.flatnonzero(mask[row])
        if len(legal):
            taken[row] = legal[min(int(uniforms[row, 1] * len(legal)), len(legal) - 1)]
    return taken


def _on_host(*parts: Sequence[AnyArray]) -> Acted:
    """Return choices of all groups in NumPy, one per environment."""
    return Acted(*(_whole(part).reshape(-1) for part in parts))  # type: ignore[arg-type]


def _whole(parts: Sequence[AnyArray]) -> NDArray:
    """Put the groups' parts together, as an array of the host."""
    return np.concatenate([np.asarray(part) for part in parts])
