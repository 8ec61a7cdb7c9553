"""The compiled loop for several seeds, with the face of the host's trainer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from valuetrack import rng
from valuetrack.envs.base import Environment
from valuetrack.interrupts import Uninterrupted
from valuetrack.learner import Learner, LearnerState
from valuetrack.training.checkpoint import CLOCK, from_arrays, read_clock, to_arrays
from valuetrack.training.compiled import Clock, Loop, LoopSettings, SeedState, Trace
from valuetrack.training.mapping import groups_for
from valuetrack.training.packing import Packing
from valuetrack.training.update import Learned
from valuetrack.types import Params

NDArray = npt.NDArray[Any]

TRACKED_UPDATES = 1_000
"""Updates after which tracked values leave the device."""


class CompiledTrainer:
    """Seeds that learn side by side in an environment written in JAX.

    Parameters
    ----------
    agent, settings, env
        Who learns where, and how acting and learning take turns. The pool of tracked values has
        the size that :meth:`track` needs.
    seeds
        The seeds.
    """

    def __init__(
        self, agent: Learner, settings: LoopSettings, env: Environment[Any], seeds: Sequence[int]
    ) -> None:
        self.agent, self.settings, self.env = agent, settings, env
        self.seeds = tuple(int(seed) for seed in seeds)
        self._groups = groups_for(agent, len(self.seeds), settings.batch_size)
        self._compile(np.zeros((0, *env.observation_shape), np.float32))
        start = self._groups.compile(lambda seed: self.loop.init(rng.key(seed)))
        parts = self._groups.split(jnp.asarray(self.seeds, jnp.uint32))
        self._states: list[SeedState] = self._groups.start(start, [(part,) for part in parts])
        self.clock = Clock.start()
        self.cycles = self.updates = self.emptied = 0

    def track(self, observations: Any) -> None:
        """Return the values at these observations from now on; ``None`` for no values."""
        shape = self.env.observation_shape
        none = np.zeros((0, *shape), np.float32)
        tracked = none if observations is None else np.asarray(observations, np.float32)
        if np.array_equal(tracked, np.asarray(self.loop.tracked)):
            return
        self._compile(tracked)
        values = jax.eval_shape(self.loop.init, rng.key(0)).pool
        room = self._groups.split(jnp.zeros((len(self.seeds), *values.shape)))
        pairs = zip(self._states, room, strict=True)
        self._states = [state._replace(pool=pool) for state, pool in pairs]

    def _compile(self, tracked: NDArray) -> None:
        room = max(TRACKED_UPDATES, self.settings.updates_per_cycle) if len(tracked) else 1
        settings = dataclasses.replace(self.settings, pool_size=room * self.agent.heads)
        self.loop = Loop(self.env, self.agent, settings, jnp.asarray(tracked))
        axes: Any = {"in_axes": (0, None, None), "out_axes": (0, None, 0)}
        self._collect, self._train = (
            self._groups.compile(run, **axes, donate_argnums=0)
            for run in (self.loop.collect, self.loop.train)
        )

    def run(self, cycles: int) -> tuple[Trace, NDArray]:
        """Run so many cycles; return sums for each seed, and the tracked values.

        The values have the shape (updates, seeds, m, states, actions). If they are tracked,
        ``cycles`` is at most :attr:`longest_run`.
        """
        known = self.cycles - self.emptied
        silent = min(cycles, max(0, self.settings.silent_cycles - known))
        made = (cycles - silent) * self.settings.updates_per_cycle
        parts = []
        with Uninterrupted():
            if silent:
                parts.append(self._start(self._collect, silent))
            if cycles > silent:
                parts.append(self._start(self._train, cycles - silent))
            self.cycles += cycles
            self.updates += made
        total = jax.tree.map(_sum, *(self._groups.join(part) for part in parts))
        return total, self._tracked(made)

    def _start(self, programs: Any, cycles: int) -> list[Trace]:
        """Start so many cycles of every group; return their traces, which are yet to come."""
        arguments = [(state, self.clock, cycles) for state in self._states]
        results = self._groups.start(programs, arguments)
        self._states = [state for state, _, _ in results]
        self.clock = results[0][1]
        return [trace for _, _, trace in results]

    @property
    def state(self) -> SeedState:
        """What the seeds carry, each leaf with a leading axis."""
        joined: SeedState = self._groups.join(self._states)
        return joined

    @property
    def steps(self) -> int:
        """Environment steps of each seed so far."""
        return self.cycles * self.settings.transitions_per_cycle

    @property
    def longest_run(self) -> int:
        """How many cycles one call may run without losing tracked values."""
        if not len(self.loop.tracked):
            return 2**31 - 1
        each = self.loop.samples_per_update * self.settings.updates_per_cycle
        return self.loop.settings.pool_size // each

    @property
    def agent_state(self) -> LearnerState:
        """The agents of all seeds, each leaf with a leading axis."""
        joined: LearnerState = self._groups.join([state.agent for state in self._states])
        return joined

    @property
    def samples(self) -> Params:
        """The pools of parameter samples of all seeds."""
        return self._groups.join([state.samples for state in self._states])

    @property
    def diverged(self) -> NDArray:
        """The update at which each seed diverged, or -1."""
        return np.concatenate([np.asarray(state.diverged) for state in self._states])

    def arrays(self, *, replay: bool = True) -> dict[str, NDArray]:
        """Return all that goes into a model file; of the replay memory, the filled rows."""
        states = [state._replace(pool=(), replay=()) for state in self._states]
        joined: SeedState = self._groups.join(states)
        if replay:
            rows = self._filled(self.cycles - self.emptied)
            # Cut on the host: a slice on the device is compiled anew for each length.
            rings = [np.asarray(state.replay)[:, :rows] for state in self._states]
            joined = joined._replace(replay=rings[0] if len(rings) == 1 else np.concatenate(rings))
        clock = np.array([self.cycles, self.updates, self.emptied])
        return {**to_arrays(joined, "state."), CLOCK: clock}

    def restore(self, arrays: Mapping[str, NDArray], *, replay: bool = True) -> None:
        """Go on from arrays of :meth:`arrays`; without replay, the memory is filled anew."""
        cycles, updates, emptied = read_clock(arrays)
        fresh = self.state
        like = fresh._replace(pool=(), replay=fresh.replay if replay else ())
        if replay:
            arrays = self._with_ring(arrays, fresh, self._filled(cycles - emptied))
        state = from_arrays(arrays, like, "state.")
        self._states = self._groups.split(
            state._replace(pool=fresh.pool, replay=state.replay if replay else fresh.replay)
        )
        self.cycles, self.updates = cycles, updates
        self.emptied = emptied if replay else cycles
        self.clock = Clock(*(jnp.int32(c) for c in (self.cycles, self.updates, self.emptied)))

    def _filled(self, cycles: int) -> int:
        """Return how many rows of a ring are filled after so many cycles."""
        return min(self.settings.replay_capacity or 0, cycles * self.settings.transitions_per_cycle)

    def _with_ring(
        self, arrays: Mapping[str, NDArray], fresh: SeedState, filled: int
    ) -> dict[str, NDArray]:
        """Return the arrays with whole rings; those of older files are whole already."""
        before = fresh[: SeedState._fields.index("replay")]
        name = f"state.{len(jax.tree.leaves(before))}"
        seeds, capacity, width = fresh.replay.shape
        saved = arrays.get(name)
        if saved is None or saved.shape not in ((seeds, n, width) for n in (filled, capacity)):
            raise ValueError("the saved memory does not fit")
        self._check_actions(saved)
        ring = np.zeros(fresh.replay.shape, saved.dtype)
        ring[:, : saved.shape[1]] = saved
        return {**arrays, name: ring}

    def _check_actions(self, rows: NDArray) -> None:
        packing = Packing(tuple(self.env.observation_shape), self.env.num_actions)
        action = 2 * packing.observation_size
        chosen = rows[..., [action, action + 3]]  # and the next one
        if not np.isin(chosen, np.arange(packing.actions)).all():
            raise ValueError("the saved memory holds actions that there are not")

    def adopt(self, other: Any) -> None:
        """Go on with what another trainer's agents have learned; the memory is filled anew."""
        self._states = self._groups.split(
            self.state._replace(
                agent=other.agent_state,
                samples=other.samples,
                diverged=jnp.asarray(other.diverged, jnp.int32),
            )
        )
        self.cycles = self.emptied = other.cycles
        self.updates = other.updates
        self.clock = Clock(*(jnp.int32(c) for c in (self.cycles, self.updates, self.emptied)))

    def _tracked(self, made: int) -> NDArray:
        if not made or not len(self.loop.tracked):
            return np.zeros((0, len(self.seeds)))
        heads = self.loop.samples_per_update
        last = np.arange(self.updates - made, self.updates)
        slots = (last[:, None] * heads + np.arange(heads)) % self.loop.settings.pool_size
        pool = np.concatenate([np.asarray(state.pool) for state in self._states])
        return np.moveaxis(pool[:, slots], 0, 1)


def learned_in(arrays: Mapping[str, NDArray], like: Learned, *, replay: bool) -> Learned:
    """Return what was learned by the seeds whose :meth:`CompiledTrainer.arrays` these are.

    Their environment may be unknown. ``like`` has the shapes of the result.

    Raises
    ------
    ValueError
        If the arrays are not those of such agents.
    """
    # How many arrays an environment has is not known, but what comes behind them is.
    last = sum(name.startswith("state.") for name in arrays) - 1
    samples = last - 1 - len(jax.tree.leaves(like.samples))  # the returns lie between
    agent = samples - replay - len(jax.tree.leaves(like.learner))
    return Learned(
        from_arrays(arrays, like.learner, "state.", agent),
        from_arrays(arrays, like.samples, "state.", samples),
        from_arrays(arrays, like.diverged, "state.", last),
    )


def _sum(*parts: Any) -> Any:
    return np.sum([np.asarray(part) for part in parts], axis=0)
