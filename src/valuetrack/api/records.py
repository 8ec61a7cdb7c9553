"""What an agent has tracked: values after its updates, and values solved from its replay memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from valuetrack.api.solving import Solver
from valuetrack.api.tracking import SolvedPoints, Tracking
from valuetrack.learner import Task
from valuetrack.training.trainer import Trainer
from valuetrack.types import Arrays, NDArray

TRACKING = "tracking"
"""What the names of saved arrays begin with."""


class _Values(NamedTuple):
    steps: NDArray
    updates: NDArray
    samples: NDArray


class Records:
    """Grows while an agent learns; :meth:`tracking` returns what there is."""

    def __init__(self) -> None:
        self.observations: NDArray | None = None
        """What is tracked, as the network sees it."""
        self._values: list[_Values] = []
        self._solved: list[SolvedPoints] = []

    def start(self, observations: NDArray) -> None:
        """Track these from now on; others than before begin a new record."""
        if self.observations is None or not np.array_equal(observations, self.observations):
            self.observations, self._values, self._solved = observations, [], []

    def copy(self) -> Records:
        """Return records that grow on their own."""
        twin = Records()
        twin.observations = self.observations
        twin._values, twin._solved = list(self._values), list(self._solved)
        return twin

    def add(self, trainer: Trainer, values: NDArray, every: int) -> None:
        """Keep the values of the last cycles, those of every ``every``-th update."""
        if not len(values):
            return
        clock, how = trainer.clock, trainer.settings
        updates = clock.updates - len(values) + 1 + np.arange(len(values))
        # Updates come at the end of a cycle; the last cycle has just ended.
        behind = (clock.updates - updates) // how.updates_per_cycle
        steps = trainer.steps - behind * how.transitions_per_cycle
        wanted = updates % every == 0
        self._values.append(_Values(steps[wanted], updates[wanted], values[wanted]))

    def solve(self, trainer: Trainer, solver: Solver, transitions: int | None) -> None:
        """Solve the values now, of all seeds, from at most so many transitions of each."""
        assert self.observations is not None
        found = [
            solver.values_from_some(member, self.observations, transitions)
            for member in range(len(trainer.seeds))
        ]
        each = ((v.mean, v.sd, np.broadcast_to(v.bound, v.mean.shape)) for v in found)
        parts = (
            np.stack([np.asarray(part, np.float32) for part in of_seeds])[None]
            for of_seeds in zip(*each, strict=True)
        )
        steps, updates = np.array([trainer.steps]), np.array([trainer.clock.updates])
        self._solved.append(SolvedPoints(steps, updates, *parts))

    def recent(self, seeds: int, task: Task, records: int) -> Tracking:
        """Return the last records, without going through all of them."""
        latest: list[_Values] = []
        for chunk in reversed(self._values):
            if sum(len(one.steps) for one in latest) >= records:
                break
            latest.insert(0, chunk)
        shortened = Records()
        shortened._values, shortened._solved = latest, self._solved[-1:]
        return shortened.tracking(seeds, task)

    def tracking(self, seeds: int, task: Task) -> Tracking:
        """Return all records."""
        solved = None
        if self._solved:
            solved = SolvedPoints(*map(np.concatenate, zip(*self._solved, strict=True)))
        if not self._values:
            samples = np.zeros((0, seeds, 1, 0, task.actions))
            return Tracking(np.zeros(0, int), np.zeros(0, int), samples, solved)
        steps, updates, samples = map(np.concatenate, zip(*self._values, strict=True))
        return Tracking(steps, updates, samples, solved)

    def arrays(self) -> dict[str, NDArray]:
        """Return what goes into a model file: the solved values, and at which observations."""
        if not self._solved or self.observations is None:
            return {}
        solved = SolvedPoints(*map(np.concatenate, zip(*self._solved, strict=True)))
        named = {"observations": self.observations, **solved._asdict()}
        return {f"{TRACKING}.{name}": array for name, array in named.items()}

    def restore(self, arrays: Arrays, seeds: int, task: Task) -> None:
        """Go on from :meth:`arrays`; a file without them has nothing tracked.

        Raises
        ------
        ValueError
            If they do not fit together, or not the agent.
        """
        names = ("observations", *SolvedPoints._fields)
        saved = {name: arrays.get(f"{TRACKING}.{name}") for name in names}
        if saved["bound"] is None and saved["mean"] is not None:  # a file from before there was one
            saved["bound"] = np.full_like(saved["mean"], np.inf)
        found = [array for array in saved.values() if array is not None]
        if not found:
            return
        if len(found) < len(names) or not _fitting(*found, seeds=seeds, task=task):
            raise ValueError("the tracked values do not fit the agent")
        self.observations, self._values = found[0], []
        self._solved = [SolvedPoints(*found[1:])]


def _fitting(
    observations: NDArray,
    steps: NDArray,
    updates: NDArray,
    mean: NDArray,
    sd: NDArray,
    bound: NDArray,
    *,
    seeds: int,
    task: Task,
) -> bool:
    counts = all(part.dtype.kind in "iu" and part.ndim == 1 for part in (steps, updates))
    floats = all(part.dtype.kind == "f" and part.ndim == 4 for part in (mean, sd, bound))
    return (
        counts
        and floats
        and len(steps) > 0
        and observations.shape[1:] == task.shape
        and mean.shape[:3] == (len(steps), seeds, len(observations))
        and mean.shape[3] in (1, task.actions)
        and mean.shape == sd.shape == bound.shape
        and steps.shape == updates.shape
    )
