"""The trainer for environments in Python: any Gymnasium environment, updates batched over seeds.

It keeps the rhythm of the compiled loop: act for a cycle, then update. What a seed draws depends
on the seed and on the number of the cycle alone, so that no generator needs to be saved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack import rng
from valuetrack.envs.gym.vectorised import Observed, StepResult, VectorisedEnvs
from valuetrack.interrupts import Uninterrupted
from valuetrack.io.arrays import Arrays, from_arrays, to_arrays
from valuetrack.learner import Acted, Learner, drawn_opinion
from valuetrack.replay import HostRing, Layout, newest_rows
from valuetrack.training import beliefs
from valuetrack.training.beliefs import Belief
from valuetrack.training.host_acting import Chooser, HostPolicy
from valuetrack.training.host_collection import Collection
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
from valuetrack.types import AnyArray, Array, Batch, NDArray, Transition, Tree

STREAM = 0x7661_6C75_6574
"""The second word of the host generators' keys, so that no other use of a seed shares a stream."""
CYCLES_DRAWN = 16
"""For how many cycles uniform numbers are drawn at a time: a generator takes long to make."""


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
        self.envs, self._everywhere = envs, np.ones(envs.count, bool)
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
        self.replay = HostRing(
            self.layout,
            len(self.seeds),
            settings.ring_capacity,
            settings.n_step,
            settings.environments,
            settings.prioritised,
            settings.half_life,
        )
        self._found: tuple[NDArray, list[Tree]] | None = None
        """The rows that the last updates drew by priority, and their errors, yet to come."""
        self._chooser = Chooser(learner, settings, self._groups, policy)
        self._collection = Collection(
            self.layout, len(self.seeds), settings.steps_per_update, settings.environments
        )
        if (observe := learner.observe) is not None:
            self._observe = self._groups.compile(observe, donate_argnums=0)
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
            self._update_one, in_axes=(0, 0, 0, 0, None), donate_argnums=0
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
                    self._step(taken, uniforms)
                with Uninterrupted():
                    if (result := self._end_cycle(batches)) is not None:
                        results.append(result)
        finally:  # also if an environment fails
            for residuals, _ in results:
                self.trace = self.trace.plus(squared_residual=_whole(residuals), learning=1)
        return self._stack([values for _, values in results])

    def _end_cycle(self, uniforms: NDArray) -> tuple[list[Array], list[Array]] | None:
        """Remember what was collected, and learn unless it is too early."""
        self._take_note()
        self._collection.write(self.replay, self.settings.discount)
        learns = not self._warmup_left()
        self.clock = self.clock._replace(cycles=self.clock.cycles + 1)
        self.trace = self.trace.plus(reward=self._collection.gained, cycles=1)
        if learns:
            return self._update(self._batch(uniforms))
        self._report_seen()
        return None

    def memory(self, index: int, most: int | None = None) -> Transition:
        """Return the transitions that a seed remembers, (n, ...); not to be changed."""
        kept = newest_rows(int(self.replay.written[index]), self.replay.capacity, most)
        return Transition(*(ring[index, kept] for ring in self.replay.rows))

    def arrays(self, *, replay: bool = True) -> dict[str, NDArray]:
        """Return all that goes into a model file: everything but the environments."""
        self._take_note()
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
        self._found = None
        self._learned = self._groups.split(restored)
        self.clock, self.trace = clock, read_trace(arrays, self.trace)
        self._begin_episodes()

    def adopt(self, learned: Learned, clock: Clock) -> None:
        """Go on with what another trainer has learned; the replay memory is filled anew."""
        self._learned = self._groups.split(jax.tree.map(jnp.array, learned))
        self.clock, self._found = clock._replace(emptied=clock.cycles), None
        self.replay.clear()
        self._begin_episodes()

    def _begin_episodes(self) -> None:
        self.replay.break_off()
        cycles, places = self.clock.cycles, range(self.settings.environments)
        starts = [
            int(np.random.SeedSequence([seed, place, cycles]).generate_state(1)[0] >> 1)
            for seed in self.seeds
            for place in places
        ]
        self.observed = self.envs.reset(starts)
        self.returns = np.zeros(self.envs.count)
        generators = [self._generator(seed, cycles, start=1) for seed in self.seeds]
        count = self.learner.acting_uniforms
        uniforms = np.stack([g.random((len(places), count), np.float32) for g in generators])
        self._head = self._opinions(uniforms)
        first, _ = self._choose(self.observed, self._everywhere, uniforms, self.steps, self._head)
        self.action: NDArray = np.asarray(first.action)
        self._belief: Belief = beliefs.begun(first.value, first.follows)
        self._broken_off = False

    def _step(self, taken: int, uniforms: NDArray) -> None:
        """Step every environment once, remember it, and choose the next actions."""
        # The environments and what is known of them agree again at the end of this function.
        self._broken_off = True
        step = self.steps + taken * self.settings.environments
        arrived = self.envs.step(self.action)
        over = arrived.terminated | arrived.truncated
        ends = bool(over.any())
        # Where the next step only resets, nobody takes the action at the end of an episode.
        acting = ~over if arrived.current is arrived.next else self._everywhere
        played_by, self._head = self._head, self._next_opinions(over, uniforms, step)
        choice, next_action = self._choose(arrived.current, acting, uniforms, step, self._head)
        last = choice
        if ends and arrived.truncated.any():
            last, at_end = self._choose(arrived.next, arrived.truncated, uniforms, step, played_by)
            next_action = np.where(over, at_end, next_action)
        self._collection.add(taken, self.observed, self.action, arrived, next_action)
        self.returns += arrived.reward * arrived.is_transition
        self._belief = beliefs.paid(self._belief, arrived.reward, self.settings.discount)
        with np.errstate(over="ignore", invalid="ignore"):  # the values of a seed that diverges
            if ends:
                self._end_episodes(arrived, over & arrived.is_transition, last)
            self._believe(arrived, over, choice)
        self.observed, self.action = arrived.current, np.asarray(choice.action)
        self._broken_off = False

    def _end_episodes(self, arrived: StepResult, ended: NDArray, last: Acted) -> None:
        """Sum up the episodes that are over: their returns, and what was believed of them.

        ``last`` is the choice where the last transition led to.
        """
        returns = self._per_seed(np.where(ended, self.returns, 0.0))
        by_seed = (len(self.seeds), self.settings.environments)
        parts = (self._belief, ended, arrived.truncated, last.value)
        sums = beliefs.ended(*jax.tree.map(lambda part: part.reshape(by_seed), parts))
        episodes = self._per_seed(ended)
        self.trace = self.trace.plus(returns=returns, episodes=episodes, **sums._asdict())
        self.returns[ended] = 0.0

    def _believe(self, arrived: StepResult, over: NDArray, choice: Acted) -> None:
        """Take down what is believed of the running episodes where they go on."""
        belief = self._belief
        if (belief.follows > choice.follows).any():
            belief = beliefs.chosen(belief, choice.value, choice.follows)
        # Some vector environments start an episode only with the step after an end.
        starts = ~arrived.is_transition if arrived.current is arrived.next else over
        if starts.any():
            fresh = beliefs.begun(choice.value, choice.follows)
            belief = beliefs.renewed(starts, fresh, belief)
        self._belief = belief

    def _report_seen(self) -> None:
        """Tell a learner that normalises observations of those of a cycle without updates."""
        if self.learner.observe is None:
            return
        seen = self._groups.split(self._collection.seen)
        self._chooser.forget()
        states = self._groups.start(
            self._observe,
            [(one.learner, *part) for one, part in zip(self._learned, seen, strict=True)],
        )
        pairs = zip(self._learned, states, strict=True)
        self._learned = [one._replace(learner=state) for one, state in pairs]

    def _per_seed(self, values: NDArray) -> NDArray:
        """Return sums over each seed's environments."""
        return np.asarray(values.reshape(len(self.seeds), -1).sum(axis=1))

    def _choose(
        self,
        observed: Observed,
        rows: NDArray,
        uniforms: NDArray,
        step: int,
        head: NDArray | None,
    ) -> tuple[Acted, NDArray]:
        """Return the actions to take, and those that SARSA counts as the next ones."""
        return self._chooser.choose(self._learned, observed, rows, uniforms, step, head)

    def _opinions(self, uniforms: NDArray) -> NDArray | None:
        """Draw the opinions that play the next episodes, (seeds, environments), if they do."""
        if not self.learner.opinions:
            return None
        return np.asarray(drawn_opinion(uniforms[..., -1], self.learner.opinions))

    def _next_opinions(self, over: NDArray, uniforms: NDArray, step: int) -> NDArray | None:
        """Return the opinions that go on: others where an episode is over, or it is time."""
        fresh, every = self._opinions(uniforms), self.learner.redraw_every
        if fresh is None or self._head is None:
            return None
        if every and step // self.settings.environments % every == 0:
            return fresh
        return np.where(over.reshape(self._head.shape), fresh, self._head)

    def _take_note(self) -> None:
        """Renew the priorities of what the last updates drew, before their rows can change."""
        if self._found is not None:
            rows, errors = self._found
            self.replay.renew(rows, _whole(errors))
            self._found = None

    def _batch(self, uniforms: NDArray) -> Batch:
        """Return the batches of a cycle, (seeds, updates, batch, ...)."""
        if self.settings.prioritised:
            beta = float(self.settings.importance(self.clock.updates))
            weighted, rows = self.replay.draw_prioritised(uniforms, beta)
            self._found = (rows, [])
            return weighted
        if self.settings.replay_capacity is not None:
            return self.replay.draw(uniforms)
        newest = self.replay.newest(self.settings.transitions_per_cycle)
        batch: Transition = jax.tree.map(
            lambda leaf: np.stack([leaf] * uniforms.shape[1], axis=1), newest
        )
        return batch

    def _update(self, batch: Batch) -> tuple[list[Array], list[Array]]:
        """Start the updates of a cycle; nothing waits for them here.

        Returns the residuals and the tracked values, by group.
        """
        done = np.int32(self.clock.updates)
        seen = self._collection.seen if self.learner.observe is not None else ()
        given = zip(self._learned, self._keys, *map(self._groups.split, (batch, seen)), strict=True)
        self._chooser.forget()
        results = self._groups.start(self._updates, [(*each, done) for each in given])
        self._learned = [learned for learned, *_ in results]
        if self._found is not None:
            self._found[1].extend(errors for *_, errors in results)
        updates = self.clock.updates + self.settings.updates_per_cycle
        self.clock = self.clock._replace(updates=updates)
        _, residuals, values, _ = zip(*results, strict=True)
        return list(residuals), list(values)

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

    def _update_one(
        self, learned: Learned, key: Array, batches: Batch, seen: Tree, done: Array
    ) -> tuple[Learned, Array, Array, Tree]:
        """Make the updates of a cycle for one seed, which has seen these observations."""
        if self.learner.observe is not None:
            learned = learned._replace(learner=self.learner.observe(learned.learner, *seen))

        def update_once(carry: tuple[Learned, Array], batch: Tree) -> Tree:
            learned, done = carry
            update_key = jax.random.fold_in(key, done)
            learned, info = update(
                self.learner, update_key, learned, batch, done, thinning=self.settings.thinning
            )
            values_key = jax.random.fold_in(update_key, 1)
            values = self.learner.values(values_key, learned.learner, jnp.asarray(self.tracked))
            return (learned, done + 1), (info.mean_squared_residual, values, info.errors)

        (learned, _), found = jax.lax.scan(update_once, (learned, done), batches)
        residuals, values, errors = found
        return learned, jnp.mean(residuals), values, errors

    def _stack(self, values: list[list[Array]]) -> NDArray:
        """Put the tracked values of all updates one after the other: (updates, seeds, ...)."""
        if not values or not len(self.tracked):
            return np.zeros((0, len(self.seeds)))
        return np.concatenate([np.moveaxis(_whole(parts), 0, 1) for parts in values])


def _whole(parts: Sequence[AnyArray]) -> NDArray:
    """Put the groups' parts together, as an array of the host."""
    return np.concatenate([np.asarray(part) for part in parts])
