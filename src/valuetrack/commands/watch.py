"""``valuetrack watch``, and ``--watch`` of other commands: the live page of a run folder."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import signal
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

from rich.console import Console

from valuetrack.commands.options import Watch
from valuetrack.interrupts import handled_by, ignored
from valuetrack.live_page.run_view import RunView
from valuetrack.live_page.server import PageServer

USUAL_PORT = 8765
"""Tried first, so that the address is the same every time."""
START_SECONDS = 30.0
CONTEXT = multiprocessing.get_context("spawn")


def watch(given: Watch, console: Console) -> int:
    """Serve the page of a run until Ctrl-C."""
    with make_server(RunView(given.run), given.port) as server:
        _say(console, f"Live page: {server.address} (Ctrl-C ends it)")
        if given.browser:
            open_browser(server.address, console)
        with handled_by(_end), contextlib.suppress(KeyboardInterrupt):
            server.serve_forever(poll_interval=0.2)
    _say(console, "The page is closed.")
    return 0


def make_server(view: RunView, port: int | None) -> PageServer:
    """Return a server on a port: 0 for a free one, ``None`` for the usual one or a free one."""
    try:
        return PageServer(view, USUAL_PORT if port is None else port)
    except OSError as error:
        if port is None:
            return PageServer(view, 0)
        is_taken = error.errno == errno.EADDRINUSE
        why = "is in use" if is_taken else f"cannot be used ({error.strerror})"
        raise ValueError(
            f"Port {port} {why}; choose another with --port, or 0 for a free one."
        ) from error


class Page:
    """The live page beside a run, in a process of its own, if it is wanted and could be started."""

    def __init__(self, process: BaseProcess | None, console: Console) -> None:
        self.process, self.console = process, console

    def stay(self) -> None:
        """Keep the page of a run that has come to its end open until Ctrl-C, in a terminal."""
        if self.process is None or not self.process.is_alive() or not self.console.is_terminal:
            return
        _say(self.console, "The run has ended; its page stays open until Ctrl-C.")
        with handled_by(_end), contextlib.suppress(KeyboardInterrupt):
            self.process.join()


@contextlib.contextmanager
def watched(path: Path, port: int | None, console: Console, *, wanted: bool) -> Iterator[Page]:
    """Show a run while it goes on, if that is wanted.

    Whatever happens to the page's process does nothing to the run. It ends with this one.
    """
    process = _start(path, port, console) if wanted else None
    try:
        yield Page(process, console)
    finally:
        if process is not None:
            process.kill()
            process.join()


def open_browser(address: str, console: Console) -> None:
    """Open the page, where somebody sits in front of a screen."""
    is_x11 = sys.platform.startswith(("linux", "freebsd"))
    has_screen = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    is_here = has_screen if is_x11 else "SSH_CONNECTION" not in os.environ
    if console.is_terminal and is_here:
        with contextlib.suppress(webbrowser.Error, OSError):
            webbrowser.open(address)


def _start(path: Path, port: int | None, console: Console) -> BaseProcess | None:
    """Start the process, wait for its address and say it; a failure is said, and no more."""
    ours, theirs = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_serve, args=(str(path), port, theirs), daemon=True)
    with ignored():  # a terminal sends Ctrl-C to both; this one ends the other
        process.start()
    theirs.close()
    end, said = time.monotonic() + START_SECONDS, ("error", "it did not start in time.")
    with contextlib.suppress(EOFError, OSError):
        said = ours.recv() if ours.poll(max(0.0, end - time.monotonic())) else said
    kind, text = said
    if kind == "error":
        _say(console, f"No live page: {text} The run goes on without it.")
        process.kill()
        process.join()
        return None
    _say(console, f"Live page: {text}")
    open_browser(text, console)
    return process


def _serve(path: str, port: int | None, out: Connection) -> None:
    """Be the process that shows a run."""
    _end_with_parent()
    try:
        server = make_server(RunView(path), port)
    except (ValueError, OSError) as error:
        out.send(("error", str(error)))
        return
    out.send(("address", server.address))
    out.close()
    server.serve_forever(poll_interval=0.2)


def _end_with_parent() -> None:
    """End at once when the parent does, however that happens."""
    parent = multiprocessing.parent_process()

    def look() -> None:
        if parent is not None:
            wait([parent.sentinel])
            os._exit(0)

    threading.Thread(target=look, daemon=True).start()


def _end(number: int, frame: FrameType | None) -> None:
    """Let Ctrl-C and SIGTERM end the page; what comes after the first is ignored."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
