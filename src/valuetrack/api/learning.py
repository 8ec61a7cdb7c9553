"""How an agent learns: trains, is evaluated meanwhile, and records the values that are tracked."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, cast

import numpy as np

from valuetrack.api import training
from valuetrack.api.alarms import Alarms
from valuetrack.api.arguments import check_count
from valuetrack.api.environment import GivenEnvironment
from valuetrack.api.loggers import Logger
from valuetrack.api.observations import Observation
from valuetrack.api.pieces import Heartbeat
from valuetrack.api.playing import Player
from valuetrack.api.queries import EPISODE_LIMIT
from valuetrack.api.records import Records
from valuetrack.api.solving import TrainerSource
from valuetrack.api.tracking import Tracking
from valuetrack.api.training import Callback
from valuetrack.api.watch import Watch, warn_of_divergence
from valuetrack.types import Bools, NDArray
from valuetrack.values.sandwich import Values

if TYPE_CHECKING:
    from valuetrack.api.agent import AnyAgent

TRACKED_TRANSITIONS = 5_000
"""From how many transitions intervals are solved during a training, unless told otherwise."""


RECENT = 100
"""How many records the logged mean and width of a tracked value are of."""
MOST_LOGGED = 64
"""How many tracked values are logged at most."""
LOGGED_LEVEL = 0.95
Scalars = list[dict[str, float]]
"""Numbers by name, for each seed."""


class Student(Player):
    """What learns in an environment; a base class of the agents."""

    watch: Watch
    best_return: float
    """The highest mean return of an evaluation during a training with ``keep_best``."""
    _records: Records
    _alarms: Alarms
    _source: TrainerSource
    _tracks: bool = False
    """Whether the present training tracks values."""

    @property
    def diverged(self) -> dict[int, int]:
        """The seeds that diverged, each with the update at which it did."""
        at = zip(self.seeds, self.trainer.diverged, strict=True)
        return {seed: int(update) for seed, update in at if update >= 0}

    def learn(
        self,
        total_timesteps: int,
        *,
        callback: Callback | None = None,
        heartbeat: Heartbeat | None = None,
        progress_bar: bool = False,
        report_every: int | None = None,
        evaluate_every: int | None = None,
        evaluation_episodes: int = 5,
        evaluation_env: GivenEnvironment = None,
        max_episode_steps: int = EPISODE_LIMIT,
        keep_best: str | os.PathLike[str] | None = None,
        logger: Logger | Sequence[Logger] | None = None,
        tensorboard: str | os.PathLike[str] | None = None,
        track: Observation | None = None,
        track_every: int = 1,
        track_intervals_every: int | None = None,
        track_intervals_from: int | None = TRACKED_TRANSITIONS,
        alarm_every: int | None = None,
        alarm_rate: float = training.ALARM_RATE,
    ) -> Self:
        """Train for this many more environment steps per seed, rounded up to whole cycles.

        Parameters
        ----------
        total_timesteps
            Environment steps per seed.
        callback
            Called every ``report_every`` steps (a hundredth of the training by default).
        heartbeat
            Called about twice a second, between two cycles; returning False ends the training
            there, with a last call of the callback.
        progress_bar
            Show a bar with speed and time left.
        evaluate_every, evaluation_episodes
            Every this many steps, play this many greedy episodes and tell the callback.
        evaluation_env, max_episode_steps
            Where they are played, and their limit; see :meth:`evaluate`.
        keep_best
            A file where the agent is saved whenever the mean return of an evaluation, over
            episodes and seeds, is the highest so far: ``agent.best_return``.
        logger
            One or more :class:`~valuetrack.api.loggers.Logger`, told what callbacks are told. They
            stay open; close them when all is trained.
        tensorboard
            A folder for TensorBoard (needs the extra ``tensorboard``).
        track, track_every
            Observations whose Q-values are recorded after every ``track_every``-th update; see
            :meth:`tracking`. Other observations than before begin a new record.
        track_intervals_every, track_intervals_from
            After every this many updates, solve the intervals of the tracked values, from at most
            this many transitions drawn from the replay memory (``None`` for all, which takes
            longer and gives narrower intervals).
        alarm_every, alarm_rate
            After every this many steps, judge by the temporal-difference errors of the newest
            transitions whether the world has changed, with at most this many false alarms per step
            while nothing does; see :class:`~valuetrack.api.alarms.Alarms`. An alarm makes a report
            of its own: ``progress.alarms`` of the callback says whose it is, and
            ``agent.tracking().alarms`` has them all.
        """
        check_count("total_timesteps", total_timesteps)
        schedule = training.Schedule(
            report_every,
            evaluate_every,
            evaluation_episodes,
            track_every,
            track_intervals_every,
            track_intervals_from,
            keep_best,
            max_episode_steps,
            alarm_every,
            alarm_rate,
        )
        self._check_learning(schedule, evaluation_env)
        self._start_tracking(track, schedule)
        with self.stage(evaluation_env) as stage:
            training.train(
                cast("AnyAgent", self),
                total_timesteps,
                schedule,
                stage,
                callback=callback,
                heartbeat=heartbeat,
                progress_bar=progress_bar,
                logger=logger,
                tensorboard=tensorboard,
            )
        warn_of_divergence(type(self).__name__, self.diverged)
        return self

    def tracking(self) -> Tracking:
        """Return the values recorded so far; see ``track`` of :meth:`learn`."""
        found = self._records.tracking(len(self.seeds), self.env.task)
        return dataclasses.replace(found, alarms=self._alarms.raised)

    def look_for_changes(self, transitions: int, rate: float) -> Bools:
        """Judge by so many of the newest transitions whether the world has changed, seed by seed.

        ``rate`` is that of false alarms, per transition.
        """
        return self._alarms.look(self.actor, transitions, rate)

    def forget(self) -> Self:
        """Empty the replay memories of all seeds, and go on with what was learned.

        Updates begin again after ``learning_starts`` steps.
        """
        self.trainer.adopt(self.trainer.learned, self.trainer.clock)
        return self

    def recently_tracked(self) -> Scalars:
        """Return the present mean and width of every tracked value, of each seed by its name.

        They are those of the last :data:`RECENT` records: the width is that of the 95 % credible
        interval, and ``value_width`` that of the last interval that was solved for the value
        itself. What is not known yet is NaN. No more than :data:`MOST_LOGGED` values are told.
        """
        seen = self._records.observations
        states = 0 if seen is None or not self._tracks else len(seen)
        per_state = self._values_per_state
        states = min(states, max(1, MOST_LOGGED // per_state))
        recent = self._records.recent(len(self.seeds), self.env.task, RECENT)
        return scalars_of(recent, len(self.seeds), states, per_state)

    @property
    def _values_per_state(self) -> int:
        return self.env.task.actions

    def record(self, values: NDArray, every: int) -> None:
        """Keep the tracked values of the last cycles, those of every ``every``-th update."""
        self._records.add(self.trainer, values, every)

    def solve_values(self, encoded: NDArray, member: int, transitions: int | None) -> Values:
        """Return a seed's values now, solved from at most this many transitions of its memory."""
        return self._solver.values_from_some(member, encoded, transitions)

    def record_intervals(self, transitions: int | None) -> None:
        """Keep the intervals of the tracked values as they are now."""
        self._records.solve(self.trainer, self._solver, transitions)

    def _check_learning(
        self, schedule: training.Schedule, evaluation_env: GivenEnvironment
    ) -> None:
        self.env.check_present()
        if schedule.evaluate_every and evaluation_env is None:
            self.env.check_evaluation()

    def _start_tracking(
        self, observations: Observation | None, schedule: training.Schedule
    ) -> None:
        if observations is None:
            if schedule.intervals_every is not None:
                raise ValueError(
                    "track_intervals_every solves the values of tracked observations; pass "
                    "`track=observations` as well."
                )
            self.trainer.track(None)
            self._tracks = False
            return
        encoded, single = self.env.encode(observations)
        if single:
            raise ValueError("`track` takes a batch of observations; wrap a single one: [obs].")
        if schedule.intervals_every is not None:
            self._source.check()
            self._solver.check(encoded[0])
        self.trainer.track(encoded)
        self._records.start(encoded)
        self._tracks = True


def scalars_of(recent: Tracking, seeds: int, states: int, per_state: int) -> Scalars:
    """Return the mean and the widths of tracked values by name, for each seed."""
    shape = (seeds, states, per_state)
    mean, width, solved = (np.full(shape, np.nan) for _ in range(3))
    if states and len(recent):
        mean = recent.mean(RECENT)[-1, :, :states, :per_state]
        low, high = recent.interval(LOGGED_LEVEL, RECENT, records=[len(recent) - 1])
        width = (high - low)[-1, :, :states, :per_state]
    if states and recent.solved is not None:
        low, high = recent.value_interval(LOGGED_LEVEL)
        solved = (high - low)[-1, :, :states, :per_state]
    found: Scalars = [{} for _ in range(seeds)]
    for seed, state, action in np.ndindex(shape):
        name = f"tracked/state-{state}" + (f"/action-{action}" if per_state > 1 else "")
        for what, numbers in (("mean", mean), ("width", width), ("value_width", solved)):
            found[seed][f"{name}/{what}"] = float(numbers[seed, state, action])
    return found
