"""What a trainer is: its settings, its clock, and what it can be asked to do.

One *cycle* is a number of environment steps followed by one or more updates.
:class:`~valuetrack.training.compiled_trainer.CompiledTrainer` runs environments written in JAX,
:class:`~valuetrack.training.host_trainer.HostTrainer` those that run in Python. Both are a
:class:`Trainer`, and one can go on with what the other has learned::

    learned = from_arrays(saved, trainer.learned, LEARNED)
    trainer.adopt(learned, read_clock(saved))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack import posterior
from valuetrack.envs.base import JaxEnvironment
from valuetrack.io.arrays import Arrays, from_arrays
from valuetrack.learner import Learner, LearnerState
from valuetrack.posterior import Pool
from valuetrack.replay import Layout
from valuetrack.schedules import Schedule, constant
from valuetrack.training.seed_groups import groups_for
from valuetrack.training.update import Learned
from valuetrack.types import AnyArray, Array, NDArray, Params, Transition, Tree

LEARNED, CLOCK, TRACE = "learned", "clock", "trace"
"""What the names of saved arrays begin with."""
COUNT_LIMIT = 2**31
"""Counters stay below it: compiled code has them as int32."""


@dataclass(frozen=True)
class Settings:
    """How acting and learning take turns."""

    exploration: Schedule
    """Epsilon as a schedule of the environment steps taken."""
    discount: float = 0.9
    """gamma."""
    n_step: int = 1
    """How many steps of rewards a target has; see :mod:`valuetrack.replay.n_step`."""
    prioritised: float = 0.0
    """alpha of a prioritised replay memory, 0 for an even one."""
    importance: Schedule = field(default_factory=lambda: constant(1.0))
    """beta of its weights, as a schedule of the updates made."""
    half_life: float | None = None
    """After how many transitions one is drawn half as often; ``None`` for never."""
    steps_per_update: int = 10
    """Environment steps between two updates, in each environment."""
    updates_per_cycle: int = 1
    """Updates after these steps, each on a batch of its own."""
    environments: int = 1
    """Environments side by side, per seed."""
    replay_capacity: int | None = 10_000
    """Transitions kept, a multiple of ``steps_per_update * environments``; ``None`` for on-policy
    training, where an update uses just the transitions of its own cycle, as in Algorithm 1."""
    batch_size: int = 100
    """Transitions an update draws from the replay memory; ignored on-policy."""
    learning_starts: int = 1_000
    """Environment steps before the first update."""
    pool_size: int = 0
    thinning: int = 1
    """How many parameter samples are kept, one per ``thinning`` updates; the latest is always
    among them."""

    def __post_init__(self) -> None:
        """Refuse settings that do not fit together."""
        if self.prioritised and self.replay_capacity is None:
            raise ValueError(
                "prioritised is for a replay memory, which on-policy training has not: give a "
                "replay_capacity."
            )
        if self.half_life is not None and (self.prioritised or self.replay_capacity is None):
            raise ValueError(
                "replay_half_life is for a replay memory that is drawn from evenly otherwise: "
                "neither by priority nor on-policy."
            )
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
    def warmup_cycles(self) -> int:
        """How many cycles pass without an update while the replay memory fills."""
        return max(0, -(-self.learning_starts // self.transitions_per_cycle) - 1)

    @property
    def ring_capacity(self) -> int:
        """How many transitions a ring holds; on-policy those of one cycle."""
        return self.replay_capacity or self.transitions_per_cycle


class Clock(NamedTuple):
    """Counters common to all seeds."""

    cycles: int = 0
    updates: int = 0
    emptied: int = 0
    """How many cycles had been done when the replay memory was last empty."""

    @property
    def remembered(self) -> int:
        """How many cycles the replay memory has seen."""
        return self.cycles - self.emptied

    def traced(self) -> Clock:
        """Return the counters as compiled code takes them."""
        return Clock(*(np.int32(count) for count in self))  # type: ignore[arg-type]

    def arrays(self) -> dict[str, NDArray]:
        """Return the counters as named arrays."""
        return {f"{CLOCK}.{name}": np.array(count) for name, count in self._asdict().items()}


class Trace(NamedTuple):
    """Sums over the cycles since somebody last took them, for each seed.

    They are added up one cycle after the other, wherever a run was cut, so that they have the
    same bits however often it was.
    """

    reward: AnyArray
    returns: AnyArray
    episodes: AnyArray
    """The returns of the episodes that ended, and how many did."""
    squared_residual: AnyArray
    learning: AnyArray
    """Mean squared residuals, one per cycle with updates, and how many such cycles there were."""
    cycles: AnyArray
    believed: AnyArray
    start_values: AnyArray
    discounted_returns: AnyArray
    squared_returns: AnyArray
    squared_reaches: AnyArray
    reached_gaps: AnyArray
    squared_gaps: AnyArray
    """What :class:`valuetrack.training.beliefs.Ended` sums up of the episodes that ended."""

    @classmethod
    def empty(cls, seeds: int) -> Trace:
        """Return sums over nothing."""
        floats, counts = np.zeros(seeds, np.float32), np.zeros(seeds, np.int32)
        ended = (counts, *[floats] * 6)
        return cls(floats, floats, counts, floats, counts, counts, *ended)

    def plus(self, **sums: NDArray | int) -> Trace:
        """Return the trace with more added to some of its sums, which keep their dtypes."""
        before: dict[str, AnyArray] = {name: getattr(self, name) for name in sums}
        return self._replace(
            **{name: (old + sums[name]).astype(old.dtype) for name, old in before.items()}
        )

    def means(self) -> tuple[NDArray, NDArray]:
        """Return the mean return per episode and the mean squared residual; NaN without any."""
        with np.errstate(invalid="ignore", divide="ignore"):
            returns = np.asarray(self.returns, np.float64) / np.asarray(self.episodes)
            loss = np.asarray(self.squared_residual, np.float64) / np.asarray(self.learning)
        return returns, loss

    def beliefs(self) -> tuple[NDArray, NDArray]:
        """Return the mean value at the start of an episode and the mean discounted return."""
        with np.errstate(invalid="ignore", divide="ignore"):
            values = np.asarray(self.start_values, np.float64) / np.asarray(self.believed)
            came = np.asarray(self.discounted_returns, np.float64) / np.asarray(self.believed)
        return values, came


class Trainer(ABC):
    """Seeds that learn side by side, each in environments of its own.

    The seeds are trained in groups, which the cores share. What needs no environment is written
    here; the two trainers add the rest.
    """

    def __init__(
        self, learner: Learner, settings: Settings, layout: Layout, seeds: Sequence[int]
    ) -> None:
        self.learner, self.settings, self.layout = learner, settings, layout
        self.seeds = tuple(int(seed) for seed in seeds)
        self.clock = Clock()
        self.trace = Trace.empty(len(self.seeds))
        """Sums since :meth:`take_trace`."""
        self._groups = groups_for(learner, len(self.seeds), settings.batch_size)

    @property
    def steps(self) -> int:
        """Environment steps of each seed so far."""
        return self.clock.cycles * self.settings.transitions_per_cycle

    @property
    def longest_run(self) -> int:
        """How many cycles one run may have without losing tracked values."""
        return COUNT_LIMIT - 1

    @property
    def present_env(self) -> JaxEnvironment | None:
        """The environment in JAX, if there is one: of a changing world, the world as it is now."""
        return None

    @property
    def learned(self) -> Learned:
        """What all seeds have learned, each leaf with a leading axis."""
        return self._groups.join(self._parts)

    @property
    def states(self) -> LearnerState:
        """The learners of all seeds, without their pools, which may be large."""
        return self._groups.join([part.learner for part in self._parts])

    @property
    def diverged(self) -> NDArray:
        """The update at which each seed diverged, or -1."""
        return np.concatenate([np.asarray(part.diverged) for part in self._parts])

    @property
    def halvings(self) -> NDArray:
        """How often each seed's guard has halved the step; zeros without a guard."""
        units = [getattr(part.learner.sampler, "units", None) for part in self._parts]
        guards: list[Tree] = [getattr(part, "guard", None) for part in units]
        if not all(guards):
            return np.zeros(len(self.seeds), int)
        found = np.concatenate([np.asarray(guard.halvings) for guard in guards])
        return found if found.ndim == 1 else found.sum(axis=1)  # of all chains

    def member(self, index: int) -> Learned:
        """Return what one of the seeds has learned."""
        group, place = self._groups.locate(index)
        one: Learned = jax.tree.map(lambda leaf: leaf[place], self._parts[group])
        return one

    def some_samples(self, index: int, most: int) -> tuple[LearnerState, Params, int]:
        """Return a seed's state, ``most`` samples of its pool, and how many of them differ.

        They are spread evenly over the pool, which is large and is not copied. If it holds fewer,
        the first ones differ and the last one is repeated, so that one program serves pools that
        fill up; before the first update, and without a pool, all are the current parameters.
        """
        group, place = self._groups.locate(index)
        part = self._parts[group]
        state: LearnerState = jax.tree.map(lambda leaf: leaf[place], part.learner)
        pool = part.pool
        if not (isinstance(pool, Pool) and self.clock.updates):
            params = state.sampler.params
            same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (most, *leaf.shape)), params)
            return state, same, 1
        slots = posterior.order(Pool((), *(counts[place] for counts in pool[1:])))
        count = min(len(slots), most)
        chosen = slots[np.linspace(0, len(slots) - 1, count).round().astype(int)]
        padded = np.concatenate([chosen, np.repeat(chosen[-1:], most - count)])
        return state, _pick(pool.samples, place, padded), count

    def take_trace(self) -> Trace:
        """Return the sums so far, and begin new ones."""
        taken, self.trace = self.trace, Trace.empty(len(self.seeds))
        return taken

    @property
    @abstractmethod
    def _parts(self) -> list[Learned]:
        """What the seeds of each group have learned."""

    @abstractmethod
    def track(self, observations: NDArray | None) -> None:
        """Return the values at these observations from now on; ``None`` for no values."""

    @abstractmethod
    def run(self, cycles: int) -> NDArray:
        """Run some cycles; return the tracked values.

        They have the shape (updates, seeds, heads, states, actions). If values are tracked,
        ``cycles`` is at most :attr:`longest_run`.
        """

    @abstractmethod
    def memory(self, index: int, most: int | None = None) -> Transition:
        """Return the transitions that a seed remembers, (n, ...), in NumPy; not to be changed.

        On-policy they are those of the last cycle. With ``most``, only so many of the newest.
        """

    @abstractmethod
    def arrays(self, *, replay: bool = True) -> dict[str, NDArray]:
        """Return all that goes into a model file, with or without the replay memory.

        What is learned lies under ``learned.``, the replay memory under ``replay.``, the counters
        under ``clock.``.
        """

    @abstractmethod
    def restore(self, arrays: Arrays, *, replay: bool = True) -> None:
        """Go on from :meth:`arrays`; without replay, the memory is filled anew.

        Raises
        ------
        ValueError
            If the arrays are not those of such a trainer.
        """

    @abstractmethod
    def adopt(self, learned: Learned, clock: Clock) -> None:
        """Go on with what another trainer has learned; the replay memory is filled anew."""

    def _warmup_left(self) -> int:
        """Return how many cycles are still to pass without an update."""
        return max(0, self.settings.warmup_cycles - self.clock.remembered)

    def _encoded(self, observations: NDArray | None) -> NDArray:
        """Return observations to track as an array, which is empty if there are none."""
        layout = self.layout
        if observations is None:
            return np.zeros((0, *layout.observation_shape), layout.observation_dtype)
        return np.asarray(observations, layout.observation_dtype)


def read_clock(arrays: Arrays) -> Clock:
    """Return the saved clock.

    Raises
    ------
    ValueError
        If it is missing or shows a time that cannot be.
    """
    counts = []
    for name in Clock._fields:
        saved = arrays.get(f"{CLOCK}.{name}")
        if saved is None or saved.dtype.kind not in "iu" or saved.shape != ():
            raise ValueError("the saved clock is not three whole numbers")
        counts.append(int(saved))
    clock = Clock(*counts)
    if not (0 <= clock.emptied <= clock.cycles < COUNT_LIMIT and 0 <= clock.updates < COUNT_LIMIT):
        raise ValueError("the saved clock shows a time that cannot be")
    return clock


def read_trace(arrays: Arrays, like: Trace) -> Trace:
    """Return the saved sums; a file without them has nothing summed up."""
    if not any(name.startswith(f"{TRACE}.") for name in arrays):
        return Trace.empty(len(like.cycles))
    saved = from_arrays(arrays, like, TRACE)
    return Trace(*(np.asarray(part) for part in saved))


@jax.jit
def _pick(samples: Params, place: Array, slots: Array) -> Params:
    """Return some samples of one of the pools."""
    return jax.tree.map(lambda leaf: leaf[place, slots], samples)
