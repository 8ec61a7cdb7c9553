"""What both trainers share: seeds in groups, each with what it has learned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import jax
import numpy as np

from valuetrack.learner import Learner, LearnerState
from valuetrack.training.seed_groups import groups_for
from valuetrack.training.trainer import Clock, Settings, Trace
from valuetrack.training.update import Learned
from valuetrack.types import NDArray


class GroupedTrainer(ABC):
    """The part of a :class:`~valuetrack.training.trainer.Trainer` that needs no environment."""

    def __init__(self, learner: Learner, settings: Settings, seeds: Sequence[int]) -> None:
        self.learner, self.settings = learner, settings
        self.seeds = tuple(int(seed) for seed in seeds)
        self.clock = Clock()
        self.trace = Trace.empty(len(self.seeds))
        self._groups = groups_for(learner, len(self.seeds), settings.batch_size)

    @property
    @abstractmethod
    def _parts(self) -> list[Learned]:
        """What the seeds of each group have learned."""

    @property
    def steps(self) -> int:
        """Environment steps of each seed so far."""
        return self.clock.cycles * self.settings.transitions_per_cycle

    @property
    def learned(self) -> Learned:
        """What all seeds have learned, each leaf with a leading axis."""
        joined: Learned = self._groups.join(self._parts)
        return joined

    @property
    def states(self) -> LearnerState:
        """The learners of all seeds, without their pools, which may be large."""
        joined: LearnerState = self._groups.join([part.learner for part in self._parts])
        return joined

    @property
    def diverged(self) -> NDArray:
        """The update at which each seed diverged, or -1."""
        return np.concatenate([np.asarray(part.diverged) for part in self._parts])

    def member(self, index: int) -> Learned:
        """Return what one of the seeds has learned."""
        for part, size in zip(self._parts, self._groups.sizes, strict=True):
            if index < size:
                one: Learned = jax.tree.map(lambda leaf, i=index: leaf[i], part)
                return one
            index -= size
        raise IndexError(f"There are {len(self.seeds)} seeds.")

    def take_trace(self) -> Trace:
        """Return the sums so far, and begin new ones."""
        taken, self.trace = self.trace, Trace.empty(len(self.seeds))
        return taken

    def _warmup_left(self) -> int:
        """Return how many cycles are still to pass without an update."""
        return max(0, self.settings.warmup_cycles - self.clock.remembered)
