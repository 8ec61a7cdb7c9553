"""Ctrl-C at safe places only."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Self

Handler = Callable[[int, FrameType | None], object]


@contextlib.contextmanager
def handled_by(
    handler: Handler | signal.Handlers, signals: Iterable[int] = (signal.SIGINT, signal.SIGTERM)
) -> Iterator[None]:
    """Let a handler take Ctrl-C and SIGTERM; in other threads than the main one nothing comes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def ignored() -> contextlib.AbstractContextManager[None]:
    """Ignore Ctrl-C for a moment; a process that is started meanwhile ignores it for good."""
    return handled_by(signal.SIG_IGN, (signal.SIGINT,))


class Uninterrupted:
    """A block that Ctrl-C does not cut in two: it is obeyed when the block is done.

    A second Ctrl-C is obeyed at once.

    A compiled program takes over the memory of the state it is given. Stopped between that and
    the assignment of the new state, an agent would have no state at all::

        with Uninterrupted():
            self.state = update(self.state)
    """

    def __init__(self) -> None:
        self._handler: Handler | None = None
        self._asked = False

    def __enter__(self) -> Self:
        handler = signal.getsignal(signal.SIGINT)
        # Only the main thread is interrupted, and only by a handler that is written in Python.
        if callable(handler) and threading.current_thread() is threading.main_thread():
            self._handler = handler
            signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            if self._asked:
                signal.raise_signal(signal.SIGINT)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked and self._handler is not None:
            self._handler(number, frame)
        self._asked = True
