"""The trainer for environments written in JAX: the compiled loop, mapped over seeds."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack import rng
from valuetrack.envs.changing import ChangingWorld
from valuetrack.interrupts import Uninterrupted
from valuetrack.io.arrays import Arrays, from_arrays, to_arrays
from valuetrack.learner import Learner
from valuetrack.replay import newest_rows
from valuetrack.training import beliefs
from valuetrack.training.beliefs import Belief
from valuetrack.training.compiled_loop import NOTHING, JaxEnvironment, Loop, SeedState, layout
from valuetrack.training.seed_groups import Program
from valuetrack.training.trainer import (
    LEARNED,
    TRACE,
    Clock,
    Settings,
    Trace,
    Trainer,
    read_clock,
    read_trace,
)
from valuetrack.training.update import Learned
from valuetrack.types import NDArray, Transition

TRACKED_UPDATES = 1_000
"""For how many updates tracked values stay on the device."""
ENV, LOOP, BELIEF = "env", "loop", "loop.belief"
"""What the names of saved arrays begin with."""
IN_LOOP = ("key", "action", "episode_return", "head")
"""What a seed carries besides its environments, its replay memory and what it has learned."""


class CompiledTrainer(Trainer):
    """Seeds that learn side by side in an environment written in JAX."""

    def __init__(
        self, learner: Learner, settings: Settings, env: JaxEnvironment, seeds: Sequence[int]
    ) -> None:
        super().__init__(learner, settings, layout(env), seeds)
        self.env = env
        self._compile(None)
        start = self._groups.compile(lambda seed: self.loop.init(rng.key(seed)))
        parts = self._groups.split(jnp.asarray(self.seeds, jnp.uint32))
        self._states: list[SeedState] = self._groups.start(start, [(part,) for part in parts])

    @property
    def _parts(self) -> list[Learned]:
        return [state.learned for state in self._states]

    @property
    def present_env(self) -> JaxEnvironment:
        """The environment: of a changing world, the world as it is now."""
        if isinstance(self.env, ChangingWorld):
            return self.env.present(self._states[0].env)
        return self.env

    @property
    def longest_run(self) -> int:
        """How many cycles one run may have without losing tracked values."""
        if not len(self.loop.tracked):
            return super().longest_run
        return self.loop.room // self.settings.updates_per_cycle

    def track(self, observations: NDArray | None) -> None:
        """Return the values at these observations from now on; ``None`` for no values."""
        if np.array_equal(self._encoded(observations), np.asarray(self.loop.tracked)):
            return
        self._compile(observations)
        values = jax.eval_shape(self.loop.init, rng.key(0)).values
        room = self._groups.split(jnp.zeros((len(self.seeds), *values.shape)))
        pairs = zip(self._states, room, strict=True)
        self._states = [state._replace(values=part) for state, part in pairs]

    def _compile(self, observations: NDArray | None) -> None:
        room = 1 if observations is None else max(TRACKED_UPDATES, self.settings.updates_per_cycle)
        tracked = jnp.asarray(self._encoded(observations))
        self.loop = Loop(self.env, self.learner, self.settings, tracked, room)
        self._collect, self._train = (
            self._groups.compile(run, in_axes=(0, 0, None, None), donate_argnums=0)
            for run in (self.loop.collect, self.loop.train)
        )

    def run(self, cycles: int) -> NDArray:
        """Run some cycles; return the tracked values."""
        warmup = min(cycles, self._warmup_left())
        before, traces = self.clock.updates, self._groups.split(self.trace)
        with Uninterrupted():
            if warmup:
                traces = self._start(self._collect, traces, warmup, 0)
            if cycles > warmup:
                updates = self.settings.updates_per_cycle
                traces = self._start(self._train, traces, cycles - warmup, updates)
            # As NumPy's arrays the sums are there, and not merely under way.
            self.trace = jax.tree.map(lambda *parts: _joined([*map(np.asarray, parts)]), *traces)
        return self._tracked(before)

    def _start(
        self, programs: list[Program], traces: list[Trace], cycles: int, updates: int
    ) -> list[Trace]:
        """Start some cycles of every group; return their traces, which are yet to come."""
        clock, count = self.clock.traced(), np.int32(cycles)
        pairs = zip(self._states, traces, strict=True)
        results = self._groups.start(programs, [(*pair, clock, count) for pair in pairs])
        self._states = [state for state, _ in results]
        self.clock = self.clock._replace(
            cycles=self.clock.cycles + cycles, updates=self.clock.updates + cycles * updates
        )
        return [trace for _, trace in results]

    def _tracked(self, before: int) -> NDArray:
        """Return the values recorded since so many updates, (updates, seeds, ...)."""
        if self.clock.updates == before or not len(self.loop.tracked):
            return np.zeros((0, len(self.seeds)))
        slots = np.arange(before, self.clock.updates) % self.loop.room
        values = np.concatenate([np.asarray(state.values) for state in self._states])
        return np.moveaxis(values[:, slots], 0, 1)

    def memory(self, index: int, most: int | None = None) -> Transition:
        """Return the transitions that a seed remembers, (n, ...), in NumPy; not to be changed."""
        group, place = self._groups.locate(index)
        ring, writes = self.loop.ring, self.clock.remembered
        kept = newest_rows(writes * ring.block, ring.capacity, most)
        rows = jax.tree.map(lambda leaf: np.asarray(leaf)[place], self._states[group].replay)
        return ring.unpack(jax.tree.map(lambda leaf: leaf[kept], rows))

    def arrays(self, *, replay: bool = True) -> dict[str, NDArray]:
        """Return all that goes into a model file, with or without the replay memory."""
        state = self._without_rings()
        saved = {
            **to_arrays(state.learned, LEARNED),
            **to_arrays(state.env, ENV),
            **to_arrays({name: getattr(state, name) for name in IN_LOOP}, LOOP),
            **to_arrays(state.belief, BELIEF),
            **to_arrays(self.trace, TRACE),
            **self.clock.arrays(),
        }
        if replay:
            rings = [jax.tree.map(np.asarray, state.replay) for state in self._states]
            whole = jax.tree.map(lambda *parts: _joined(parts), *rings)
            saved |= self.loop.ring.arrays(whole, self.clock.remembered)
        return saved

    def restore(self, arrays: Arrays, *, replay: bool = True) -> None:
        """Go on from :meth:`arrays`; without replay, the memory is filled anew."""
        clock, like = read_clock(arrays), self._without_rings()
        state = like._replace(
            learned=from_arrays(arrays, like.learned, LEARNED),
            env=from_arrays(arrays, like.env, ENV),
            **from_arrays(arrays, {name: getattr(like, name) for name in IN_LOOP}, LOOP),
            belief=read_belief(arrays, like.belief),
        )
        if replay:
            rings = self.loop.ring.restore(arrays, len(self.seeds), clock.remembered)
            memories = self._groups.split(jax.tree.map(jnp.asarray, rings))
        else:
            memories = [part.replay for part in self._states]
            clock = clock._replace(emptied=clock.cycles)
        old = zip(self._groups.split(state), memories, self._states, strict=True)
        self._states = [
            part._replace(replay=memory, values=before.values) for part, memory, before in old
        ]
        self.clock, self.trace = clock, read_trace(arrays, self.trace)

    def adopt(self, learned: Learned, clock: Clock) -> None:
        """Go on with what another trainer has learned; the replay memory is filled anew."""
        parts = self._groups.split(jax.tree.map(jnp.array, learned))  # copies, to be donated
        pairs = zip(self._states, parts, strict=True)
        self._states = [
            state._replace(learned=part, belief=beliefs.forgotten(state.belief))
            for state, part in pairs
        ]
        self.clock = clock._replace(emptied=clock.cycles)

    def _without_rings(self) -> SeedState:
        """Return what the seeds carry, each leaf with a leading axis, but for the large rings."""
        return self._groups.join(
            [state._replace(replay=NOTHING, values=NOTHING) for state in self._states]
        )


def read_belief(arrays: Arrays, like: Belief) -> Belief:
    """Return what was believed of the running episodes; a file without it tells nothing."""
    if not any(name.startswith(f"{BELIEF}.") for name in arrays):
        return beliefs.forgotten(like)
    saved: Belief = from_arrays(arrays, like, BELIEF)
    return saved


def _joined(parts: Sequence[NDArray]) -> NDArray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
