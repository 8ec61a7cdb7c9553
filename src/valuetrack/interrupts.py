"""Ctrl-C at safe places only."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Self

Handler = Callable[[int, FrameType | None], None]


@contextlib.contextmanager
def handled_by(handler: Handler) -> Iterator[None]:
    """Let a handler take Ctrl-C and SIGTERM; in other threads than the main one nothing comes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextlib.contextmanager
def ignored() -> Iterator[None]:
    """Ignore Ctrl-C for a moment; a process that is started meanwhile ignores it for good."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Uninterrupted:
    """A block that Ctrl-C does not cut in two: it is obeyed when the block is done.

    A second Ctrl-C is obeyed at once.

    A compiled program takes over the memory of the state it is given. Stopped between that and
    the assignment of the new state, an agent would have no state at all::

        with Uninterrupted():
            self.state = update(self.state)
    """

    def __init__(self) -> None:
        self._handler: Any = None
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
        if self._asked:
            self._handler(number, frame)
        self._asked = True
