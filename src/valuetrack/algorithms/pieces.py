"""A training in short pieces, so that it can be watched and stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

PIECE_SECONDS = 0.5
"""How long a training runs before the bar moves and a stop is obeyed."""
PIECE_GROWTH = 4
"""How much longer than the last one a piece may be: the speed is not known at first."""

Heartbeat = Callable[[], bool | None]
"""Called about twice a second between two cycles; returning False ends the training."""


class Stretch(NamedTuple):
    """What a number of cycles brought.

    Attributes
    ----------
    cycles
        How many there were.
    learning
        How many of them had updates.
    trace
        Sums over them, for each seed.
    stopped
        Whether the heartbeat ended them.
    """

    cycles: int
    learning: int
    trace: Any
    stopped: bool


class Pieces:
    """Runs of a trainer, cut into pieces of about half a second, however fast it is.

    What is random does not depend on where a piece begins.

    Parameters
    ----------
    trainer
        The trainer that does the work.
    record
        Takes the tracked values of each piece at once, so that a stop loses none.
    heartbeat
        Called after each piece; returning False ends the run.
    """

    def __init__(self, trainer: Any, record: Callable[[Any], None], heartbeat: Heartbeat) -> None:
        self._trainer, self._record, self._heartbeat = trainer, record, heartbeat
        self._length, self._waited = 1, True

    def run(self, cycles: int) -> Stretch:
        """Run so many cycles, or fewer if the heartbeat ends them."""
        trainer, settings = self._trainer, self._trainer.settings
        updates, done, stopped, total = trainer.clock.updates, 0, False, None
        while done < cycles and not stopped:
            count = self._next(cycles - done)
            began = time.monotonic()
            trace, values = trainer.run(count)
            # As NumPy's arrays they are there, and not merely under way.
            trace = type(trace)(*map(np.asarray, trace))
            took = time.monotonic() - began
            self._record(values)
            total = trace if total is None else type(trace)(*map(np.add, total, trace))
            fitting = int(count * PIECE_SECONDS / max(took, 1e-6))
            self._length = max(1, min(fitting, PIECE_GROWTH * self._length))
            done += count
            stopped = says_no(self._heartbeat())
        learning = (trainer.clock.updates - updates) // settings.updates_per_cycle
        return Stretch(done, learning, total, stopped)

    def _next(self, cycles: int) -> int:
        """Return how long the next piece is, at most so many cycles."""
        trainer = self._trainer
        warmup: int = trainer.settings.warmup_cycles - trainer.clock.remembered
        if warmup > 0:
            cycles = min(cycles, warmup)
        elif self._waited:  # updates begin, and cycles take longer than before
            self._length, self._waited = 1, False
        longest: int = trainer.longest_run  # a longer run would lose tracked values
        return min(cycles, self._length, longest)


def says_no(answer: Any) -> bool:
    """Return whether a user's function wants the training to end; ``None`` is no answer."""
    return answer is not None and not answer  # also NumPy's False
