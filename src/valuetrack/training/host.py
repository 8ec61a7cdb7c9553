r"""The host's training loop: any Gymnasium environment, many seeds, updates batched over them.

It keeps the rhythm of the compiled loop (act for a cycle, then update), and of its randomness:
what a seed draws depends on the seed and on the number of the cycle alone, so that nothing of it
needs to be saved.

The environments run in Python while an update runs in XLA: the action of the next step is chosen
before the update begins, as SARSA needs it, so the step can be taken meanwhile. With ``overlap``
all steps of a cycle are: their actions are those of the parameters before the updates that run,

.. math:: a_t \sim \pi_{\theta_{k-1}} \quad\text{while}\quad \theta_{k-1} \to \theta_k .
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from valuetrack import rng
from valuetrack.envs.gym.vectorised import Observed, VectorisedEnvs
from valuetrack.interrupts import Uninterrupted
from valuetrack.learner import Learner, LearnerState
from valuetrack.training.checkpoint import CLOCK, from_arrays, read_clock, to_arrays
from valuetrack.training.compiled import LoopSettings, Trace
from valuetrack.training.mapping import groups_for
from valuetrack.training.memory import Memory, on_host
from valuetrack.training.update import Learned, start, update
from valuetrack.types import Array, Params, Transition

NDArray = npt.NDArray[Any]

STREAM = 0x7661_6C75_6574
"""The second word of the host generators' keys, so that no other use of a seed shares a stream."""
CYCLES_DRAWN = 16
"""For how many cycles uniform numbers are drawn at a time: a generator takes long to make."""


class _Acting(NamedTuple):
    """The part of a learner's state that acts."""

    params: Params


def _acting(agent: LearnerState) -> LearnerState:
    """Leave behind what only updates need: every array of an argument costs time."""
    return agent._replace(sampler=_Acting(agent.sampler.params), target=())


class HostTrainer:
    """Seeds that learn side by side in environments of their own.

    Parameters
    ----------
    agent, settings
        Who learns, and how acting and learning take turns.
    lanes
        ``settings.environments`` lanes for each seed, those of one seed side by side.
    seeds
        The seeds.
    """

    def __init__(
        self,
        agent: Learner,
        settings: LoopSettings,
        lanes: VectorisedEnvs,
        seeds: Sequence[int],
    ) -> None:
        if lanes.count != len(seeds) * settings.environments:
            raise ValueError(
                f"{len(seeds)} seeds with {settings.environments} environments each need "
                f"{len(seeds) * settings.environments} lanes, not {lanes.count}."
            )
        self.agent, self.settings, self.lanes = agent, settings, lanes
        self.seeds = tuple(int(seed) for seed in seeds)
        shape = lanes.encoder.shape
        self.cycles = self.updates = self.emptied = 0
        self._owner = np.arange(lanes.count) // settings.environments
        self._drawn, self._drawn_block = np.zeros(0, np.float32), -1
        self._groups = groups_for(agent, len(self.seeds), settings.batch_size)
        # Split as in the compiled loop, so that a seed begins with the same parameters in both.
        keys = jax.vmap(lambda seed: jax.random.split(rng.key(seed), 3))(
            jnp.asarray(self.seeds, jnp.uint32)
        )
        self._keys = self._groups.split(keys[:, 0])
        start = self._groups.compile(self._start)
        self._underway: list[Future[Any]] = []
        self._copies: list[Any] = []
        self._results: list[tuple[list[Array], list[Array]]] = []
        self.learned = self._groups.start(
            start, [(part,) for part in self._groups.split(keys[:, 1])]
        )
        self.memory = Memory(
            len(self.seeds),
            settings.replay_capacity or settings.transitions_per_cycle,
            shape,
            lanes.encoder.dtype,
            lanes.num_actions,
        )
        self._act = self._groups.compile(self._act_one, in_axes=(0, 0, 0, 0, None))
        self._compile(np.zeros((0, *shape), lanes.encoder.dtype))
        self._begin_episodes()

    def track(self, observations: Any) -> None:
        """Return the values at these observations from now on; ``None`` for no values."""
        inputs = self.lanes.encoder
        none = np.zeros((0, *inputs.shape), inputs.dtype)
        tracked = none if observations is None else np.asarray(observations, inputs.dtype)
        if not np.array_equal(tracked, self.tracked):
            self._compile(tracked)

    def _compile(self, tracked: NDArray) -> None:
        self.tracked = tracked
        self._updates = self._groups.compile(
            self._update_one, in_axes=(0, 0, 0, None), donate_argnums=0
        )

    @property
    def learned(self) -> list[Learned]:
        """What has been learned, by group, when all updates are done that were started."""
        self._settle()
        return self._learned

    @learned.setter
    def learned(self, groups: list[Learned]) -> None:
        self._underway, self._learned = [], groups
        if self.settings.overlap:  # they act with arrays that no update takes over
            self._copies = [jax.tree.map(jnp.copy, _acting(group.learner)) for group in groups]
            self._actors = self._copies

    def run(self, cycles: int) -> tuple[Trace, NDArray]:
        """Run so many cycles; return sums for each seed, and the tracked values.

        The values have the shape (updates, seeds, m, states, actions).
        """
        zeros: Any = [np.zeros(self.lanes.count) for _ in Trace._fields]
        sums: Any = Trace(*zeros)
        self._results = []
        for _ in range(cycles):
            policy, batches = self._uniforms()
            for taken, uniforms in enumerate(policy):
                self._step(uniforms, self.steps + taken * self.settings.environments, sums)
            learns = self.cycles - self.emptied >= self.settings.silent_cycles
            self.cycles += 1
            if learns:
                self._learn(batches)
        self._settle()
        by_seed = (len(self.seeds), self.settings.environments)
        total: Any = Trace(*(part.reshape(by_seed).sum(1) for part in sums))
        if self._results:
            found = [_whole(residuals) for residuals, _ in self._results]
            total.squared_residual[:] = np.sum(found, axis=0)
        return total, self._stack([values for _, values in self._results])

    @property
    def steps(self) -> int:
        """Environment steps of each seed so far."""
        return self.cycles * self.settings.transitions_per_cycle

    @property
    def longest_run(self) -> int:
        """How many cycles one call may run without losing tracked values."""
        return 2**31 - 1

    @property
    def agent_state(self) -> LearnerState:
        """The agents of all seeds, each leaf with a leading axis."""
        joined: LearnerState = self._groups.join([group.learner for group in self.learned])
        return joined

    @property
    def samples(self) -> Params:
        """The pools of parameter samples of all seeds."""
        return self._groups.join([group.samples for group in self.learned])

    @property
    def diverged(self) -> NDArray:
        """The update at which each seed diverged, or -1."""
        return np.concatenate([np.asarray(group.diverged) for group in self.learned])

    def arrays(self, *, replay: bool = True) -> dict[str, NDArray]:
        """Return all that goes into a model file: everything but the environments."""
        clock = np.array([self.cycles, self.updates, self.emptied])
        memory = self.memory.arrays() if replay else {}
        return {**to_arrays(self._groups.join(self.learned), "state."), **memory, CLOCK: clock}

    def restore(self, arrays: Mapping[str, NDArray], *, replay: bool = True) -> None:
        """Go on from arrays of :meth:`arrays`; the environments begin new episodes.

        Their seeds depend on how far the training is. Without replay, the memory is filled anew.
        """
        cycles, updates, emptied = read_clock(arrays)
        restored = from_arrays(arrays, self._groups.join(self.learned), "state.")
        if replay:
            most = (cycles - emptied) * self.settings.transitions_per_cycle
            self.memory.restore(arrays, most)
        else:
            self.memory.forget()
            emptied = cycles
        self.learned = self._groups.split(restored)
        self.cycles, self.updates, self.emptied = cycles, updates, emptied
        self._begin_episodes()

    def adopt(self, other: Any) -> None:
        """Go on with what another trainer's agents have learned; the memory is filled anew."""
        learned = Learned(other.agent_state, other.samples, jnp.asarray(other.diverged, jnp.int32))
        self.learned = self._groups.split(learned)
        self.cycles = self.emptied = other.cycles
        self.updates = other.updates
        self.memory.forget()
        self._begin_episodes()

    def _begin_episodes(self) -> None:
        lanes = range(self.settings.environments)
        starts = [
            int(np.random.SeedSequence([seed, lane, self.cycles]).generate_state(1)[0] >> 1)
            for seed in self.seeds
            for lane in lanes
        ]
        self.places = self.lanes.reset(starts)
        self.returns = np.zeros(self.lanes.count)
        generators = [self._generator(seed, self.cycles, start=1) for seed in self.seeds]
        uniforms = np.stack([g.random((len(lanes), 2), np.float32) for g in generators])
        self.action = self._choose(self.places, uniforms, self.steps)

    def _step(self, uniforms: NDArray, step: int, sums: Any) -> None:
        """Step every lane once, remember it, and choose the next actions."""
        arrived = self.lanes.step(self.action)
        over = arrived.terminated | arrived.truncated
        action = self._choose(arrived.current, uniforms, step)
        next_action = self._choose(arrived.next, uniforms, step) if over.any() else action
        self.memory.write(
            np.flatnonzero(arrived.is_transition),
            self._owner,
            on_host(
                observation=self.places.observation,
                action=self.action,
                reward=arrived.reward,
                discount=np.where(arrived.terminated, 0.0, self.settings.discount),
                next_observation=arrived.next.observation,
                next_action=next_action,
                next_mask=arrived.next.mask,
            ),
        )
        gained = arrived.reward * arrived.is_transition
        self.returns += gained
        sums.reward[:] += gained
        if over.any():
            ended = over & arrived.is_transition
            sums.returns[:] += np.where(ended, self.returns, 0.0)
            sums.episodes[:] += ended
            self.returns[ended] = 0.0
        self.places, self.action = arrived.current, action

    def _choose(self, places: Observed, uniforms: NDArray, step: int) -> NDArray:
        by_seed = (len(self.seeds), self.settings.environments)
        seen = [part.reshape(*by_seed, *part.shape[1:]) for part in places]
        parts = zip(self._act, self._acting(), self._groups.split((*seen, uniforms)), strict=True)
        chosen = [act(actor, *part, np.int32(step)) for act, actor, part in parts]
        return _whole(chosen).reshape(-1)

    def _acting(self) -> list[LearnerState]:
        """Return who chooses the actions, by group."""
        if self.settings.overlap:
            return self._actors
        return [_acting(group.learner) for group in self._learned]

    def _learn(self, uniforms: NDArray) -> None:
        """Start the updates of a cycle; nothing waits for them here."""
        if self.settings.replay_capacity is None:
            batch = self.memory.newest(self.settings.transitions_per_cycle)
            batch = jax.tree.map(lambda leaf: np.stack([leaf] * uniforms.shape[1], axis=1), batch)
        else:
            batch = self.memory.draw(uniforms)
        self._update(batch)

    def _update(self, batch: Transition) -> None:
        self._settle()
        done = np.int32(self.updates)
        given = zip(self._learned, self._keys, self._groups.split(batch), strict=True)
        arguments = [(*each, done) for each in given]
        with Uninterrupted():
            if self.settings.overlap:
                # Who acts from now on has learned all but what is learned meanwhile.
                self._actors = self._copies
                self._underway = self._groups.start_behind(self._updates, arguments)
            else:
                self._take(self._groups.start(self._updates, arguments))
            self.updates += self.settings.updates_per_cycle

    def _settle(self) -> None:
        """Wait for updates that run behind the scenes."""
        if self._underway:
            results = [future.result() for future in self._underway]
            with Uninterrupted():
                self._underway = []
                self._take(results)

    def _take(self, results: list[Any]) -> None:
        learned, residuals, values, copies = zip(*results, strict=True)
        self._learned, self._copies = list(learned), list(copies)
        self._results.append((list(residuals), list(values)))

    def _uniforms(self) -> tuple[NDArray, NDArray]:
        """Return the uniform numbers of this cycle: (steps, seeds, lanes, 2) and for batches."""
        s = self.settings
        acting = (s.steps_per_update, s.environments, 2)
        batches = (s.updates_per_cycle, s.batch_size)
        block, cycle = divmod(self.cycles, CYCLES_DRAWN)
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

    def _start(self, key: Array) -> Learned:
        return start(self.agent, key, self.settings.parameter_samples)

    def _act_one(
        self, agent: LearnerState, observation: Array, mask: Array, uniforms: Array, step: Array
    ) -> Array:
        return self.agent.act(agent, observation, mask, uniforms, self.settings.exploration(step))

    def _update_one(
        self, learned: Learned, key: Array, batches: Transition, done: Array
    ) -> tuple[Learned, Array, Array, Any]:
        """Make the updates of a cycle for one seed; also return a copy that can act."""

        def update_once(carry: tuple[Learned, Array], batch: Transition) -> Any:
            learned, done = carry
            update_key = jax.random.fold_in(key, done)
            learned, residual = update(
                self.agent, update_key, learned, batch, done, thinning=self.settings.thinning
            )
            values_key = jax.random.fold_in(update_key, 1)
            values = self.agent.values(values_key, learned.learner, jnp.asarray(self.tracked))
            return (learned, done + 1), (residual, values)

        (learned, _), (residuals, values) = jax.lax.scan(update_once, (learned, done), batches)
        actor = _acting(learned.learner) if self.settings.overlap else ()
        return learned, jnp.mean(residuals), values, actor

    def _stack(self, values: list[list[Array]]) -> NDArray:
        """Put the tracked values of all updates one after the other: (updates, seeds, ...)."""
        if not values or not len(self.tracked):
            return np.zeros((0, len(self.seeds)))
        return np.concatenate([np.moveaxis(_whole(parts), 0, 1) for parts in values])


def _whole(parts: Sequence[Any]) -> NDArray:
    """Put the groups' parts together, as an array of the host."""
    return np.concatenate([np.asarray(part) for part in parts])
