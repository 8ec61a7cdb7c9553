"""Units in processes of this machine, one per core, or one after the other in this one.

Processes rather than threads: XLA's thread pool, shared by several devices in one process, makes
small computations wait for each other, and pinning a process to a core keeps its caches warm. The
units share nothing but the run's folder, in which each writes files of its own.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import queue
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from ctypes import c_byte
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from typing import Any, TypeAlias, TypeVar

from valuetrack.experiments.engines.base import Engine, Event, WorkerError, explained
from valuetrack.experiments.nodes.surroundings import pin, single_threaded
from valuetrack.experiments.runner import Unit, run_unit
from valuetrack.experiments.spec import from_manifest
from valuetrack.interrupts import ignored
from valuetrack.io.run_folder import RunFolder

PATIENCE_SECONDS = 0.5
Result = TypeVar("Result")
CONTEXT = multiprocessing.get_context("spawn")
Messages: TypeAlias = "Queue[tuple[str, Any]]"
"""What a process says: ("step", an event), ("done", the result) or ("error", why)."""


class LocalEngine(Engine):
    """Worker processes, each on a core of its own, which start with the first unit for them.

    A terminal sends Ctrl-C to every process. The workers leave it to this one, which asks them to
    stop where they can save their state.

    Parameters
    ----------
    folder
        The run's folder.
    workers
        How many units run at a time.
    imports
        Modules that every worker imports first, as they register environments.
    """

    def __init__(self, folder: RunFolder, workers: int, imports: tuple[str, ...] = ()) -> None:
        self._folder, self._workers, self._imports = folder, workers, imports
        self._messages: Messages = CONTEXT.Queue()
        self._tasks: Queue[Unit] = CONTEXT.Queue()
        # A plain byte in shared memory: a multiprocessing.Event waits for its waiters, for ever
        # if one of them was killed.
        self._halt = CONTEXT.Value("b", 0, lock=False)
        self._processes: list[BaseProcess] = []
        self._left, self._stopped = 0, False

    def __exit__(self, kind: object, error: object, traceback: object, /) -> None:
        """Ask the workers to end, and wait for them; a second Ctrl-C kills them."""
        if isinstance(error, KeyboardInterrupt):
            for process in self._processes:
                process.kill()
        self._halt.value = 1
        self._tasks.cancel_join_thread()
        for process in self._processes:
            process.join()

    def submit(self, unit: Unit) -> None:
        """Add a unit; start another worker for it if a core is free."""
        self._tasks.put(unit)
        self._left += 1
        core = len(self._processes)
        if core < self._workers:
            shared = (self._tasks, self._messages, self._halt)
            job = (_run_units, (str(self._folder.path), self._imports, *shared))
            self._processes.append(start_process(core, self._messages, *job))

    def follow(self, seconds: float) -> list[Event]:
        """Return the workers' progress; raise what one of them raised."""
        alive = any(process.is_alive() for process in self._processes)
        events: list[Event] = []
        timeout = seconds if alive else 0.01
        with contextlib.suppress(queue.Empty):
            while True:
                kind, content = read_message(self._messages, timeout)
                if kind == "step":
                    events.append(content)
                else:
                    self._left -= 1
                timeout = 0.0
        if not alive and not events and self._left:
            self._left = 0
            codes = [process.exitcode for process in self._processes]
            if not self._stopped:
                raise WorkerError(
                    f"A worker process ended with the exit codes {codes}; run it again."
                )
        return events

    def is_busy(self) -> bool:
        """Return whether there are units that run or wait."""
        return self._left > 0

    def stop(self) -> None:
        """Ask all workers to save and end."""
        self._stopped = True
        self._halt.value = 1


class InlineEngine(Engine):
    """Units one after the other in a thread of this process: for accelerators.

    This thread is left to follow them, so that bars move and Ctrl-C is obeyed meanwhile.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._spec = from_manifest(folder.manifest())
        self._stop = threading.Event()
        self._events: queue.Queue[Event] = queue.Queue()
        self._worker = ThreadPoolExecutor(1, "unit")
        self._units: deque[Future[bool]] = deque()

    def __exit__(self, kind: object, error: object, traceback: object, /) -> None:
        """Ask the unit that runs to save and end, and wait for it."""
        self._stop.set()
        self._worker.shutdown(cancel_futures=True)

    def submit(self, unit: Unit) -> None:
        """Add a unit."""
        self._units.append(self._worker.submit(self._run, unit))

    def _run(self, unit: Unit) -> bool:
        def advance(steps: int) -> None:
            self._events.put(Event(unit.row, steps))

        is_wanted = not self._stop.is_set()
        return is_wanted and run_unit(unit, self._spec, self._folder, advance, self._stop)

    def follow(self, seconds: float) -> list[Event]:
        """Return the progress; raise what a unit raised."""
        wait_for([self._units[0]], seconds)
        if self._units[0].done():
            self._units.popleft().result()
        return [self._events.get() for _ in range(self._events.qsize())]

    def is_busy(self) -> bool:
        """Return whether there are units that run or wait."""
        return bool(self._units)

    def stop(self) -> None:
        """Ask the unit that runs to save and end, and run no other."""
        self._stop.set()


def call_in_process(
    function: Callable[..., Result], *arguments: object, advance: Callable[[], None]
) -> Result:
    """Call a function in a process of its own, with one thread on one core; return its result.

    ``function`` takes the arguments and a keyword ``advance``, through which it reports progress.
    """
    messages: Messages = CONTEXT.Queue()
    process = start_process(0, messages, _call, (function, arguments, messages))
    try:
        while True:
            try:
                kind, content = read_message(messages, PATIENCE_SECONDS)
            except queue.Empty:
                if process.is_alive():
                    continue
                raise WorkerError("The measuring process ended early; run it again.") from None
            if kind == "done":
                result: Result = content
                return result
            advance()
    finally:
        process.kill()
        process.join()


def read_message(messages: Messages, timeout: float) -> tuple[str, Any]:
    """Return the next message of a process; raise what it raised."""
    kind, content = messages.get(timeout=timeout)
    if kind == "error":
        raise WorkerError(content)
    return kind, content


def start_process(core: int | None, messages: Messages, *job: object) -> BaseProcess:
    """Start a process on a core, with one thread, that does a job and says when it fails.

    Without a core, it looks for one on which no other process has pinned itself.
    """
    process = CONTEXT.Process(target=_be_process, args=(core, messages, *job), daemon=True)
    with _one_thread_each(), ignored():
        process.start()
    return process


def _be_process(
    core: int | None, messages: Messages, job: Callable[..., None], arguments: tuple[object, ...]
) -> None:
    """Do a job; leave Ctrl-C and SIGTERM, which may come to all processes, to the parent."""
    _end_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    held = pin(1) if core is None else []
    if core is not None and hasattr(os, "sched_getaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[core % len(allowed)]})
    try:
        job(*arguments)
    except Exception as error:  # the parent raises it
        messages.put(("error", explained(error)))
    for file in held:
        file.close()


def _run_units(
    path: str, imports: tuple[str, ...], tasks: Queue[Unit], messages: Messages, halt: c_byte
) -> None:
    """Take units until there are none."""
    for module in imports:
        importlib.import_module(module)
    folder, stop = RunFolder.open(path), Flag(halt)
    spec = from_manifest(folder.manifest())
    with contextlib.suppress(queue.Empty):
        while not stop.is_set():
            unit = tasks.get(timeout=PATIENCE_SECONDS)

            def advance(steps: int, row: str = unit.row) -> None:
                messages.put(("step", Event(row, steps)))

            messages.put(("done", run_unit(unit, spec, folder, advance, stop)))


def _call(
    function: Callable[..., object], arguments: tuple[object, ...], messages: Messages
) -> None:
    """Do the job of :func:`call_in_process`."""
    result = function(*arguments, advance=lambda: messages.put(("step", None)))
    messages.put(("done", result))


class Flag:
    """A byte in shared memory that looks like an event."""

    def __init__(self, byte: c_byte) -> None:
        self.byte = byte

    def is_set(self) -> bool:
        """Return whether it is set."""
        return bool(self.byte.value)


def _end_with_parent() -> None:
    """Make this process end at once when its parent does, however that happens."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let processes started meanwhile compute with one thread."""
    single = single_threaded(os.environ)
    before = {name: os.environ.get(name) for name in single}
    os.environ.update(single)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
