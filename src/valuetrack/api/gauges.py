"""What a training's reports say of its pace: steps per second, and how long episodes are."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from valuetrack.training.trainer import Trace, Trainer
from valuetrack.types import Floats


class Reading(NamedTuple):
    """What the gauges show.

    Attributes
    ----------
    epsilon
        The share of random actions now.
    episode_length
        Environment steps of each seed per episode that ended, since the last report in which one
        did; NaN if none did.
    steps_per_second
        Of all seeds together, since the last report.
    """

    epsilon: float
    episode_length: Floats
    steps_per_second: float


class Gauges:
    """Read at every report of a training."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._unended = np.zeros(len(trainer.seeds))
        """Steps since a report in which an episode ended."""
        self._steps, self._time = trainer.steps, time.monotonic()

    def read(self, trace: Trace) -> Reading:
        """Return what they show now, and begin anew."""
        trainer, now = self._trainer, time.monotonic()
        steps = self._unended + np.asarray(trace.cycles) * trainer.settings.transitions_per_cycle
        episodes = np.asarray(trace.episodes)
        with np.errstate(invalid="ignore", divide="ignore"):
            length = np.where(episodes > 0, steps / episodes, np.nan)
        self._unended = np.where(episodes > 0, 0.0, steps)
        taken = (trainer.steps - self._steps) * len(trainer.seeds)
        speed = taken / max(now - self._time, 1e-9)
        self._steps, self._time = trainer.steps, now
        return Reading(float(trainer.settings.exploration(trainer.steps)), length, speed)
