"""A process that computes one unit, seen from the process that started it.

They talk in lines of JSON. The order goes to its standard input, where a second line, whatever it
says, asks it to save and end, and the end of the input ends it at once: whoever starts a unit and
dies, dies with it. What it says on its standard output is told by :meth:`UnitProcess.read`.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from typing import NamedTuple, Self

from valuetrack.experiments.nodes.orders import Order
from valuetrack.experiments.nodes.surroundings import variables_here

PROGRAM = "valuetrack.experiments.nodes.program"


class End(NamedTuple):
    """How a unit's process ended.

    Attributes
    ----------
    done
        Whether the unit is finished; if not, it was asked to stop or has not succeeded.
    error
        Why it failed, in a sentence, or ``None``.
    died
        Why it may succeed elsewhere: the process was killed; ``None`` otherwise.
    """

    done: bool
    error: str | None = None
    died: str | None = None


class UnitProcess:
    """Starts a process for a unit when it is entered, and waits for its end when it is left.

    Attributes
    ----------
    steps
        The environment steps that it has said it is at, over all seeds.
    end
        How it ended, or ``None`` while it runs.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._end: End | None = None
        self.steps = 0
        self.end: End | None = None

    def __enter__(self) -> Self:
        paths = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**variables_here(self._order["variables"]), "PYTHONPATH": paths},
            start_new_session=True,  # signals to a group are for the process that started it
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._write(json.dumps(self._order))
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._listener.join()

    def read(self, seconds: float) -> None:
        """Wait up to this long for news; :attr:`steps` and :attr:`end` tell them."""
        with contextlib.suppress(queue.Empty):
            line = self._lines.get(timeout=seconds)
            while True:
                self._hear(line)
                line = self._lines.get_nowait()

    def stop(self) -> None:
        """Ask it to save its state and end; may be called from a signal handler."""
        self._write("stop")

    def wait(self) -> None:
        """Wait until it has ended; may be called from a signal handler.

        ``Popen.wait`` holds a lock while it waits, and a handler that interrupts it would wait for
        that lock for ever.
        """
        with contextlib.suppress(ChildProcessError):  # whose end has been noticed
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        data = f"{text}\n".encode()
        # It has ended, which is noticed elsewhere, or is waited for with its input closed.
        with contextlib.suppress(OSError, ValueError):
            while data:
                data = data[os.write(self._process.stdin.fileno(), data) :]

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._lines.put(line)
        self._lines.put(None)

    def _hear(self, line: bytes | None) -> None:
        if line is None:
            code = self._process.wait()
            killed = f"its process ended with the exit code {code}"
            self.end = self._end or End(done=False, died=killed)
            return
        message = json.loads(line)
        self.steps = message.get("steps", self.steps)
        if "done" in message:
            self._end = End(message["done"])
        elif "error" in message:
            self._end = End(done=False, error=message["error"])
