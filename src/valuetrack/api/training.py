"""A training from its first step to its last: reports, callbacks, evaluation."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from valuetrack.api.arguments import check_count
from valuetrack.api.gauges import Gauges
from valuetrack.api.loggers import Logger, log_progress
from valuetrack.api.pieces import Heartbeat, run_pieces
from valuetrack.api.playing import Stage
from valuetrack.api.progress_bar import show_progress
from valuetrack.api.queries import EPISODE_LIMIT
from valuetrack.api.tensorboard import TensorBoardLogger
from valuetrack.training.trainer import Trace, Trainer
from valuetrack.types import Bools, NDArray

if TYPE_CHECKING:
    from valuetrack.api.agent import AnyAgent

ALARM_RATE = 1e-5
"""How many false alarms there are per step at most, unless told otherwise."""
REPORTS = 100
"""How many reports a training makes, unless told otherwise."""


class Progress(NamedTuple):
    """What a callback is told.

    Attributes
    ----------
    agent
        The agent itself.
    steps, updates
        Environment steps per seed, and updates, so far.
    episode_return
        Mean return of each seed's episodes that ended since the last report; NaN if none did.
    loss
        Mean squared residual (or loss) of each seed since the last report; NaN without updates.
    value_at_start, discounted_return
        What each seed believed its episodes to be worth when they began, and the discounted return
        that came of them: means over the episodes that ended since the last report; NaN if none
        did, or if a given policy acts. They may differ by what exploration costs.
    evaluation
        Returns of an evaluation made now, (seeds, episodes), or ``None``.
    epsilon, episode_length, steps_per_second
        See :class:`~valuetrack.api.gauges.Reading`.
    alarms
        Which seeds' errors say, at this moment, that the world has changed, (seeds,); see
        ``alarm_every`` of :meth:`~valuetrack.api.learning.Student.learn`.
    """

    agent: AnyAgent
    steps: int
    updates: int
    episode_return: NDArray
    loss: NDArray
    value_at_start: NDArray
    discounted_return: NDArray
    evaluation: NDArray | None
    epsilon: float
    episode_length: NDArray
    steps_per_second: float
    alarms: Bools


Callback = Callable[[Progress], bool | None]
"""Called as the training goes on; returning False ends it."""


@dataclass(frozen=True)
class Schedule:
    """How often a training reports and evaluates, in environment steps."""

    report_every: int | None = None
    """``None`` for a hundredth of the training."""
    evaluate_every: int | None = None
    episodes: int = 5
    """How often greedy episodes are played (``None`` for never), and how many."""
    track_every: int = 1
    """Tracked values are recorded after every this many updates."""
    intervals_every: int | None = None
    intervals_from: int | None = None
    """Their intervals are solved after every this many updates (``None`` for never), from at most
    this many transitions."""
    keep_best: str | os.PathLike[str] | None = None
    """Where the agent is saved whenever an evaluation is the best so far."""
    max_episode_steps: int = EPISODE_LIMIT
    """After how many steps an evaluation gives up on an episode."""
    alarm_every: int | None = None
    alarm_rate: float = ALARM_RATE
    """How many transitions of each seed are judged at a time (``None`` for no alarms), and how many
    false alarms there may be per step."""

    def __post_init__(self) -> None:
        """Refuse what is no whole number of at least one."""
        check_count("report_every", self.report_every, optional=True)
        check_count("evaluate_every", self.evaluate_every, optional=True)
        check_count("evaluation_episodes", self.episodes)
        check_count("max_episode_steps", self.max_episode_steps)
        if self.keep_best is not None and self.evaluate_every is None:
            raise ValueError(
                "keep_best saves the agent of the best evaluation, and there is none: pass "
                "evaluate_every=10_000, for instance."
            )
        check_count("track_every", self.track_every)
        check_count("track_intervals_every", self.intervals_every, optional=True)
        check_count("track_intervals_from", self.intervals_from, optional=True)
        check_count("alarm_every", self.alarm_every, optional=True)
        if self.alarm_every is not None and not 0 < self.alarm_rate * self.alarm_every < 1:
            raise ValueError(
                "alarm_rate is the number of false alarms per step, and must be above 0 and below "
                f"1 / alarm_every; {self.alarm_rate} is not."
            )

    def solves_at(self, trainer: Trainer) -> bool:
        """Return whether intervals are due now."""
        updates = trainer.clock.updates
        if self.intervals_every is None or not updates:
            return False
        return updates % self.intervals_every < trainer.settings.updates_per_cycle

    def alarms_at(self, trainer: Trainer) -> bool:
        """Return whether a block of transitions is to be judged now."""
        if self.alarm_every is None or not trainer.clock.updates:
            return False
        return trainer.clock.cycles % self._alarm_cycles(trainer) == 0

    def next_alarm(self, trainer: Trainer) -> float:
        """Return the cycle after which a block is judged next."""
        if self.alarm_every is None:
            return math.inf
        period = self._alarm_cycles(trainer)
        return (trainer.clock.cycles // period + 1) * period

    def _alarm_cycles(self, trainer: Trainer) -> int:
        assert self.alarm_every is not None
        return math.ceil(self.alarm_every / trainer.settings.transitions_per_cycle)

    def next_solving(self, trainer: Trainer) -> float:
        """Return the cycle after which intervals are due next."""
        if self.intervals_every is None:
            return math.inf
        clock, how = trainer.clock, trainer.settings
        warmup = max(0, how.warmup_cycles - clock.remembered)
        updates = self.intervals_every - clock.updates % self.intervals_every
        return clock.cycles + warmup + math.ceil(updates / how.updates_per_cycle)


def train(
    agent: AnyAgent,
    steps: int,
    schedule: Schedule,
    stage: Stage,
    *,
    callback: Callback | None = None,
    heartbeat: Heartbeat | None = None,
    progress_bar: bool = False,
    logger: Logger | Sequence[Logger] | None = None,
    tensorboard: str | os.PathLike[str] | None = None,
) -> None:
    """Train for this many more steps; reports come at multiples of ``report_every``.

    Evaluations are played on ``stage``.
    """
    _check_callable(callback, "A callback is a function of the progress")
    _check_callable(heartbeat, "A heartbeat is a function without arguments")
    trainer, gauges = agent.trainer, Gauges(agent.trainer)
    none = np.zeros(len(agent.seeds), bool)
    per_cycle = trainer.settings.transitions_per_cycle
    end = trainer.clock.cycles + math.ceil(steps / per_cycle)
    report = math.ceil((schedule.report_every or math.ceil(steps / REPORTS)) / per_cycle)
    evaluate = math.ceil((schedule.evaluate_every or 0) / per_cycle)
    bar = show_progress(agent, steps) if progress_bar else contextlib.nullcontext(lambda: None)
    with bar as advance, _logging_to(logger, tensorboard) as loggers:

        def tell(trace: Trace, evaluation: NDArray | None, alarms: Bools) -> bool | None:
            sums = (*trace.means(), *trace.beliefs())
            epsilon, length, speed = gauges.read(trace)
            progress = Progress(
                agent,
                trainer.steps,
                trainer.clock.updates,
                *sums,
                evaluation,
                epsilon,
                length,
                speed,
                alarms,
            )
            log_progress(loggers, progress)
            return None if callback is None else callback(progress)

        def at_point() -> bool | None:
            cycles, evaluation, alarms = trainer.clock.cycles, None, none
            if schedule.solves_at(trainer):
                agent.record_intervals(schedule.intervals_from)
            if schedule.alarm_every is not None and schedule.alarms_at(trainer):
                alarms = agent.look_for_changes(schedule.alarm_every, schedule.alarm_rate)
            if evaluate and cycles % evaluate == 0:
                evaluation = _evaluate(agent, schedule, stage, cycles // evaluate)
            elif cycles % report and cycles != end and not alarms.any():
                return None
            trace = trainer.take_trace()
            agent.watch.look(trace, trainer.clock.updates)
            agent.watch.look_at_guard(trainer.halvings)
            return tell(trace, evaluation, alarms)

        def beat() -> bool | None:
            advance()
            return None if heartbeat is None else heartbeat()

        def next_point(cycle: int) -> int:
            periods = [period for period in (report, evaluate) if period]
            reported = min((cycle // period + 1) * period for period in periods)
            judged = min(schedule.next_solving(trainer), schedule.next_alarm(trainer))
            return int(min(reported, judged))

        finished = run_pieces(
            trainer,
            end,
            next_point=next_point,
            at_point=at_point,
            heartbeat=beat,
            sink=lambda values: agent.record(values, schedule.track_every),
        )
        # A stop between two points is reported too, but what it has summed up stays for the next.
        if not finished and trainer.trace.cycles.any():
            tell(trainer.trace, None, none)


def _evaluate(agent: AnyAgent, schedule: Schedule, stage: Stage, seed: int) -> NDArray:
    """Return the returns of greedy episodes; the best agent so far is saved, if that is wanted."""
    limit = schedule.max_episode_steps
    found = np.asarray(agent.play_on(stage, schedule.episodes, seed, limit).returns)
    if schedule.keep_best is not None and found.mean() > agent.best_return:
        agent.best_return = float(found.mean())
        agent.save(schedule.keep_best)
    return found


@contextlib.contextmanager
def _logging_to(
    logger: Logger | Sequence[Logger] | None, tensorboard: str | os.PathLike[str] | None
) -> Iterator[list[Logger]]:
    """Yield all loggers; those that are given stay open, as another training may follow."""
    given = [] if logger is None else list(logger) if isinstance(logger, Sequence) else [logger]
    for one in given:
        if not callable(getattr(one, "log", None)):
            raise TypeError(
                f"A logger has the methods log(step, values) and close(); {one!r} has not."
            )
    with contextlib.ExitStack() as opened:
        if tensorboard is not None:
            board = TensorBoardLogger(tensorboard)
            opened.callback(board.close)
            given.append(board)
        yield given


def _check_callable(function: object, what: str) -> None:
    if function is not None and not callable(function):
        raise TypeError(f"{what}, not a {type(function).__name__}.")
