"""Units in processes of this machine, one per core, or one after the other in this one.

Processes rather than threads: XLA's thread pool, shared by several devices in one process, makes
small computations wait for each other, and pinning a process to a core keeps its caches warm. The
units share nothing but the run's folder, in which each writes files of its own.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from typing import Any, Self

from valuetrack.experiments import spec as specs
from valuetrack.experiments.engines.base import Event, WorkerError
from valuetrack.experiments.runner import Unit, run_unit
from valuetrack.experiments.spec import SpecError
from valuetrack.interrupts import ignored
from valuetrack.io.errors import ModelFileError, StoreError
from valuetrack.io.run_folder import RunFolder

PATIENCE_SECONDS = 0.5
Message = tuple[str, str, int]
"""What a worker says: ("step", row, steps), ("done", row, 0) or ("error", why, 0)."""


class LocalEngine:
    """Worker processes, each on a core of its own.

    A terminal sends Ctrl-C to every process. The workers leave it to this one, which asks them to
    stop where they can save their state.

    Parameters
    ----------
    folder
        The run's folder.
    workers
        How many units run at a time.
    """

    def __init__(self, folder: RunFolder, workers: int) -> None:
        self._folder, self._workers = folder, workers
        self._context = multiprocessing.get_context("spawn")
        self._messages: Queue[Message] = self._context.Queue()
        self._tasks: Queue[Unit] = self._context.Queue()
        # A plain byte in shared memory: a multiprocessing.Event waits for its waiters, for ever
        # if one of them was killed.
        self._halt = self._context.Value("b", 0, lock=False)
        self._processes: list[BaseProcess] = []
        self._left, self._stopped = 0, False

    def __enter__(self) -> Self:
        """Start nothing yet: a worker starts with the first unit for it."""
        return self

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
        if len(self._processes) < self._workers:
            arguments = (
                str(self._folder.path), len(self._processes),
                self._tasks, self._messages, self._halt,
            )  # fmt: skip
            process = self._context.Process(target=_work, args=arguments, daemon=True)
            with _one_thread_each(), ignored():
                process.start()
            self._processes.append(process)

    def follow(self, seconds: float) -> list[Event]:
        """Return the workers' progress; raise what one of them raised."""
        alive = any(process.is_alive() for process in self._processes)
        events: list[Event] = []
        timeout = seconds if alive else 0.01
        while True:
            try:
                kind, text, steps = self._messages.get(timeout=timeout)
            except queue.Empty:
                break
            if kind == "error":
                raise WorkerError(text)
            if kind == "done":
                self._left -= 1
            else:
                events.append(Event(text, steps))
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


class InlineEngine:
    """Units one after the other in a thread of this process: for accelerators.

    This thread is left to follow them, so that bars move and Ctrl-C is obeyed meanwhile.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._spec = specs.from_manifest(folder.manifest())
        self._stop = threading.Event()
        self._events: queue.Queue[Event] = queue.Queue()
        self._worker = ThreadPoolExecutor(1, "unit")
        self._units: deque[Future[bool]] = deque()

    def __enter__(self) -> Self:
        """Start nothing."""
        return self

    def __exit__(self, kind: object, error: object, traceback: object, /) -> None:
        """Ask the unit that runs to save and end, and wait for it."""
        self._stop.set()
        self._worker.shutdown(cancel_futures=True)

    def submit(self, unit: Unit) -> None:
        """Add a unit."""
        self._units.append(self._worker.submit(self._run, unit))

    def _run(self, unit: Unit) -> bool:
        if self._stop.is_set():
            return False

        def advance(steps: int) -> None:
            self._events.put(Event(unit.row, steps))

        return run_unit(unit, self._spec, self._folder, advance, self._stop)

    def follow(self, seconds: float) -> list[Event]:
        """Return the progress; raise what a unit raised."""
        wait_for([self._units[0]], seconds)
        if self._units[0].done():
            self._units.popleft().result()
        events = []
        with contextlib.suppress(queue.Empty):
            while True:
                events.append(self._events.get_nowait())
        return events

    def is_busy(self) -> bool:
        """Return whether there are units that run or wait."""
        return bool(self._units)

    def stop(self) -> None:
        """Ask the unit that runs to save and end, and run no other."""
        self._stop.set()


def call_in_process(
    function: Callable[..., Any], *arguments: Any, advance: Callable[[], None]
) -> Any:
    """Call a function in a process of its own, with one thread on one core; return its result.

    ``function`` takes the arguments and a keyword ``advance``, through which it reports progress.
    """
    context = multiprocessing.get_context("spawn")
    messages: Queue[tuple[str, Any]] = context.Queue()
    process = context.Process(target=_call, args=(function, arguments, messages), daemon=True)
    with _one_thread_each(), ignored():
        process.start()
    try:
        while True:
            try:
                kind, content = messages.get(timeout=PATIENCE_SECONDS)
            except queue.Empty:
                if process.is_alive():
                    continue
                raise WorkerError("The measuring process ended early; run it again.") from None
            if kind == "error":
                raise WorkerError(content)
            if kind == "result":
                return content
            advance()
    finally:
        process.terminate()
        process.join()


def _work(path: str, index: int, tasks: Queue[Unit], messages: Queue[Message], halt: Any) -> None:
    """Be a worker: take units until there are none."""
    _end_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):  # which may come to all processes at once
        signal.signal(number, signal.SIG_IGN)
    _pin(index)
    stop = _Flag(halt)
    try:
        folder = RunFolder.open(path)
        spec = specs.from_manifest(folder.manifest())
        while not stop.is_set():
            try:
                unit = tasks.get(timeout=PATIENCE_SECONDS)
            except queue.Empty:
                return
            run_unit(unit, spec, folder, _tell(messages, unit.row), stop)
            messages.put(("done", unit.row, 0))
    except Exception as error:  # it is told to the parent, which raises it
        messages.put(("error", _told(error), 0))


def _told(error: Exception) -> str:
    """Return the sentence of an error of ours; another one is named too."""
    is_ours = isinstance(error, StoreError | SpecError | ModelFileError)
    return str(error) if is_ours else f"{type(error).__name__}: {error}"


def _tell(messages: Queue[Message], row: str) -> Callable[[int], None]:
    """Return the function that tells the parent how a row gets on."""
    return lambda steps: messages.put(("step", row, steps))


def _call(
    function: Callable[..., Any], arguments: tuple[Any, ...], messages: Queue[tuple[str, Any]]
) -> None:
    """Be the process of :func:`call_in_process`."""
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _pin(0)
    try:
        result = function(*arguments, advance=lambda: messages.put(("advance", None)))
    except Exception as error:  # it is told to the parent, which raises it
        messages.put(("error", _told(error)))
    else:
        messages.put(("result", result))


class _Flag:
    """A byte in shared memory that looks like an event."""

    def __init__(self, byte: Any) -> None:
        self.byte = byte

    def is_set(self) -> bool:
        return bool(self.byte.value)


def _end_with_parent() -> None:
    """Make this process end at once when its parent does, however that happens."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _pin(index: int) -> None:
    """Keep this process on one core, where the system lets it."""
    if hasattr(os, "sched_getaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[index % len(allowed)]})


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let processes started meanwhile compute with one thread."""
    before = os.environ.get("XLA_FLAGS")
    single = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["XLA_FLAGS"] = f"{before} {single}" if before else single
    try:
        yield
    finally:
        if before is None:
            del os.environ["XLA_FLAGS"]
        else:
            os.environ["XLA_FLAGS"] = before
