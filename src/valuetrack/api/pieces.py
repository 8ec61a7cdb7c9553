"""A training in short pieces, so that it can be watched and stopped."""

from __future__ import annotations

import time
from collections.abc import Callable

from valuetrack.training.trainer import Trainer
from valuetrack.types import NDArray

PIECE_SECONDS = 0.5
"""How long a training runs before the bar moves and a stop is obeyed."""
PIECE_GROWTH = 4
"""How much longer than the last one a piece may be: the speed is not known at first."""

Heartbeat = Callable[[], bool | None]
"""Called about twice a second between two cycles; returning False ends the training."""


def run_pieces(
    trainer: Trainer,
    end: int,
    *,
    next_point: Callable[[int], int],
    at_point: Callable[[], bool | None],
    heartbeat: Heartbeat,
    sink: Callable[[NDArray], None],
) -> bool:
    """Train up to the cycle ``end``, in pieces of about half a second, however fast that is.

    What is random, and what is summed, does not depend on where a piece begins.

    Parameters
    ----------
    trainer, end
        Who trains, and until which cycle, counted from the very first one.
    next_point
        From a cycle to the next one at which something is due.
    at_point
        Called there, and at the end; returning False ends the training.
    heartbeat
        Called after each piece; returning False ends the training.
    sink
        Receives the tracked values of each piece at once, so that a stop loses none.

    Returns
    -------
    bool
        Whether the end was reached.
    """
    pace = _Pace(trainer)
    while trainer.clock.cycles < end:
        due = min(end, next_point(trainer.clock.cycles))
        while trainer.clock.cycles < due:
            sink(pace.run(due - trainer.clock.cycles))
            at_due = trainer.clock.cycles == due
            wanted = not (at_due and says_no(at_point()))
            if says_no(heartbeat()) or not wanted:
                return trainer.clock.cycles == end and wanted
    return True


class _Pace:
    """Finds out how many cycles a piece should have."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._length, self._warming_up = 1, True

    def run(self, cycles: int) -> NDArray:
        """Run a piece of at most this many cycles; return its tracked values."""
        count = self._next(cycles)
        began = time.monotonic()
        values = self._trainer.run(count)
        took = time.monotonic() - began
        fitting = int(count * PIECE_SECONDS / max(took, 1e-6))
        self._length = max(1, min(fitting, PIECE_GROWTH * self._length))
        return values

    def _next(self, cycles: int) -> int:
        trainer = self._trainer
        known = trainer.clock.cycles - trainer.clock.emptied
        warmup = trainer.settings.warmup_cycles - known
        if warmup > 0:
            cycles = min(cycles, warmup)
        elif self._warming_up:  # updates begin, and cycles take longer than before
            self._length, self._warming_up = 1, False
        return min(cycles, self._length, trainer.longest_run)


def says_no(answer: object) -> bool:
    """Return whether a user's function wants the training to end; ``None`` is no answer."""
    return answer is not None and not answer  # also NumPy's False
