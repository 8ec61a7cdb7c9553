"""A training from its first step to its last: chunks, progress, callbacks, evaluation."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

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
    progress_bar: bool,
    report_every: int | None,
    evaluate_every: int | None,
    evaluation_episodes: int,
    tensorboard: str | os.PathLike[str] | None,
    track_every: int,
) -> None:
    """Train in chunks; what is random does not depend on where they begin."""
    _check(callback)
    per_cycle = agent.trainer.settings.transitions_per_cycle
    total = _cycles(total_timesteps, per_cycle)
    report = _cycles(report_every or -(-total_timesteps // REPORTS), per_cycle)
    evaluate = _cycles(evaluate_every, per_cycle) if evaluate_every else 0
    with _bar(agent, total * per_cycle, progress_bar) as advance, _board(tensorboard) as write:
        done, evaluated = 0, 0
        while done < total:
            # A chunk ends where something is due, and before tracked values would be lost.
            due = [total - done, report - done % report, agent.trainer.longest_run]
            if evaluate:
                due.append(evaluate - done % evaluate)
            cycles = min(due)
            before = agent.trainer.updates
            trace, values = agent.trainer.run(cycles)
            learning = (agent.trainer.updates - before) // agent.trainer.settings.updates_per_cycle
            agent.record(values, track_every)
            done += cycles
            advance(cycles * per_cycle)
            returns = None
            if evaluate and done % evaluate == 0:
                evaluated += 1
                returns = agent.evaluate(evaluation_episodes, seed=evaluated)
            progress = _progress(agent, trace, learning, returns)
            write(progress)
            if callback is not None:
                answer = callback(progress)
                if answer is not None and not answer:  # also NumPy's False
                    return


def _progress(agent: Any, trace: Any, learning: int, evaluation: Any) -> Progress:
    """Put together what a callback is told; ``learning`` counts the cycles with updates."""
    with np.errstate(invalid="ignore", divide="ignore"):
        loss = np.asarray(trace.squared_residual, np.float64) / np.float64(learning)
        returns = np.asarray(trace.returns, np.float64) / np.asarray(trace.episodes)
    return Progress(
        agent,
        agent.trainer.steps,
        agent.trainer.updates,
        returns,
        loss,
        evaluation,
    )


@contextlib.contextmanager
def _bar(agent: Any, steps: int, wanted: bool) -> Iterator[Callable[[int], None]]:
    """Show a bar with the speed over all seeds and the time left."""
    if not wanted:
        yield lambda steps: None
        return
    from rich.progress import (  # noqa: PLC0415 - only when it is shown
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    seeds = len(agent.seeds)
    columns = (
        TextColumn(f"{type(agent).__name__}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps"),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as bar:
        task = bar.add_task("", total=steps, speed="")

        def advance(count: int) -> None:
            speed = bar.tasks[task].speed
            bar.update(task, advance=count, speed=f"{speed * seeds:,.0f} steps/s" if speed else "")

        yield advance


@contextlib.contextmanager
def _board(folder: str | os.PathLike[str] | None) -> Iterator[Callable[[Progress], None]]:
    """Write scalars for TensorBoard, a run for each seed."""
    if folder is None:
        yield lambda progress: None
        return
    try:
        from tensorboardX import SummaryWriter  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError(
            "TensorBoard's files need an extra: pip install 'valuetrack[tensorboard]'."
        ) from error
    with contextlib.ExitStack() as open_writers:
        writers: dict[int, Any] = {}

        def write(progress: Progress) -> None:
            for place, seed in enumerate(progress.agent.seeds):
                if seed not in writers:
                    path = os.path.join(folder, f"seed-{seed}")
                    writers[seed] = open_writers.enter_context(SummaryWriter(path))
                scalars = {
                    "rollout/ep_rew_mean": progress.episode_return[place],
                    "train/loss": progress.loss[place],
                }
                if progress.evaluation is not None:
                    scalars["eval/mean_reward"] = progress.evaluation[place].mean()
                for name, value in scalars.items():
                    if np.isfinite(value):
                        writers[seed].add_scalar(name, value, progress.steps)

        yield write


def _check(callback: Any) -> None:
    if callback is not None and not callable(callback):
        kind = type(callback).__name__
        raise TypeError(f"A callback is a function of the progress, not a {kind}.")


def _cycles(steps: int, per_cycle: int) -> int:
    """Return how many cycles hold so many steps."""
    return math.ceil(steps / per_cycle)
