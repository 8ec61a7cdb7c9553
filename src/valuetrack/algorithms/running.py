"""A training from its first step to its last: chunks, progress, callbacks, evaluation."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from valuetrack.algorithms.board import written_to
from valuetrack.algorithms.pieces import Heartbeat, Pieces, says_no

NDArray = npt.NDArray[Any]

REPORTS = 100
"""How often a training tells how far it is, unless it is said otherwise."""


class Progress(NamedTuple):
    """What a callback is told.

    Attributes
    ----------
    agent
        The agent itself.
    steps, updates
        Environment steps of each seed, and updates, so far.
    episode_return
        Mean return of each seed's episodes that ended since the last call; NaN if none did.
    loss
        Mean squared residual (or loss) of each seed since the last call; NaN without updates.
    evaluation
        Returns of an evaluation made now, (seeds, episodes), or ``None``.
    """

    agent: Any
    steps: int
    updates: int
    episode_return: NDArray
    loss: NDArray
    evaluation: NDArray | None


Callback = Callable[[Progress], bool | None]
"""Called as the training goes on; returning False ends it."""


def run_training(
    agent: Any,
    total_timesteps: int,
    *,
    callback: Callback | None,
    heartbeat: Heartbeat | None,
    progress_bar: bool,
    report_every: int | None,
    evaluate_every: int | None,
    evaluation_episodes: int,
    tensorboard: str | os.PathLike[str] | None,
    track_every: int,
) -> None:
    """Train in pieces; what is random does not depend on where they begin."""
    _check(callback, "A callback is a function of the progress")
    _check(heartbeat, "A heartbeat is a function without arguments")
    per_cycle = agent.trainer.settings.transitions_per_cycle
    total = _cycles(total_timesteps, per_cycle)
    report = _cycles(report_every or -(-total_timesteps // REPORTS), per_cycle)
    evaluate = _cycles(evaluate_every, per_cycle) if evaluate_every else total + 1
    bar = show_progress(agent, total_timesteps) if progress_bar else contextlib.nullcontext()
    with bar as advance, written_to(tensorboard, agent.seeds) as write:

        def beat() -> bool | None:
            if advance is not None:
                advance()
            return None if heartbeat is None else heartbeat()

        pieces = Pieces(agent.trainer, lambda values: agent.record(values, track_every), beat)
        done, stopped = 0, False
        while done < total and not stopped:
            # The next thing that is due: the end, a report, an evaluation.
            due = min(total - done, report - done % report, evaluate - done % evaluate)
            stretch = pieces.run(due)
            done += stretch.cycles
            returns = None
            if done % evaluate == 0 and not stretch.stopped:
                returns = agent.evaluate(evaluation_episodes, seed=done // evaluate)
            progress = _progress(agent, stretch.trace, stretch.learning, returns)
            write(progress)
            answer = None if callback is None else callback(progress)
            stopped = stretch.stopped or says_no(answer)


def _progress(agent: Any, trace: Any, learning: int, evaluation: Any) -> Progress:
    """Put together what a callback is told; ``learning`` counts the cycles with updates."""
    with np.errstate(invalid="ignore", divide="ignore"):
        loss = np.asarray(trace.squared_residual, np.float64) / np.float64(learning)
        returns = np.asarray(trace.returns, np.float64) / np.asarray(trace.episodes)
    return Progress(
        agent,
        agent.trainer.steps,
        agent.trainer.clock.updates,
        returns,
        loss,
        evaluation,
    )


@contextlib.contextmanager
def show_progress(
    agent: Any, left: int, *, from_start: bool = False, console: Any = None
) -> Iterator[Callable[[], None]]:
    """Show a bar with the speed over all seeds and the time left; yield what moves it.

    ``from_start`` counts the steps before this training as well.
    """
    from rich.progress import (  # noqa: PLC0415 - only when it is shown
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn(type(agent).__name__),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps"),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    per_cycle = agent.trainer.settings.transitions_per_cycle
    begin = agent.trainer.steps
    end = begin + _cycles(left, per_cycle) * per_cycle
    before = 0 if from_start else begin
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=end - before, completed=begin - before, speed="")

        def advance() -> None:
            speed = (bar.tasks[task].speed or 0) * len(agent.seeds)
            told = f"{speed:,.0f} steps/s" if speed else ""
            bar.update(task, completed=agent.trainer.steps - before, speed=told)

        yield advance


def _check(function: Any, what: str) -> None:
    if function is not None and not callable(function):
        raise TypeError(f"{what}, not a {type(function).__name__}.")


def _cycles(steps: int, per_cycle: int) -> int:
    """Return how many cycles hold so many steps."""
    return math.ceil(steps / per_cycle)
