"""Spread units over processes, one for each core.

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
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from typing import Any

from valuetrack.experiments.kinds import kind_of
from valuetrack.experiments.spec import PresetName
from valuetrack.experiments.unit import StopFlag, Unit
from valuetrack.interrupts import ignored
from valuetrack.io.run_folder import RunFolder

PATIENCE_SECONDS = 0.5


class WorkerError(RuntimeError):
    """A worker process failed; the message says why."""


def run_in_processes(
    units: Sequence[Unit],
    folder: RunFolder,
    *,
    workers: int,
    advance: Callable[[str, int], None],
    stop: StopFlag,
) -> None:
    """Run units on ``workers`` processes until all are finished or ``stop`` is set.

    A terminal sends Ctrl-C to every process. The workers leave it to this one, which asks them to
    stop where they can save their state.
    """
    context = multiprocessing.get_context("spawn")
    messages, tasks = context.Queue(), context.Queue()
    # A plain byte in shared memory: a multiprocessing.Event waits for its waiters, for ever if
    # one of them was killed.
    halt = context.Value("b", 0, lock=False)
    for unit in units:
        tasks.put((unit.row.id, unit.first_seed, unit.seeds))
    processes = [
        context.Process(
            target=_work, args=(str(folder.path), index, tasks, messages, halt), daemon=True
        )
        for index in range(min(workers, len(units)))
    ]
    with _one_thread_each(), ignored():
        for process in processes:
            process.start()
    try:
        _listen(processes, messages, halt, advance, stop)
    except KeyboardInterrupt:  # asked for a second time
        for process in processes:
            process.kill()
        raise
    finally:
        halt.value = 1
        tasks.cancel_join_thread()
        for process in processes:
            process.join()


def call_in_process(
    function: Callable[..., Any], *arguments: Any, advance: Callable[[], None]
) -> Any:
    """Call a function in a process of its own, with one thread on one core; return its result.

    ``function`` takes the arguments and a keyword ``advance``, through which it reports progress.
    """
    context = multiprocessing.get_context("spawn")
    messages = context.Queue()
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


def run_here(
    units: Sequence[Unit],
    folder: RunFolder,
    *,
    advance: Callable[[str, int], None],
    stop: StopFlag,
) -> None:
    """Run units one after the other in this process."""
    for unit in units:
        if stop.is_set():
            return
        _run_unit(unit, folder, advance, stop)


def _listen(
    processes: Sequence[Any],
    messages: Any,
    halt: Any,
    advance: Callable[[str, int], None],
    stop: StopFlag,
) -> None:
    """Pass on the workers' progress until the last one has ended; raise what one of them raised."""
    while True:
        if stop.is_set():
            halt.value = 1
        alive = any(process.is_alive() for process in processes)
        try:
            kind, first, second = messages.get(timeout=PATIENCE_SECONDS if alive else 0.01)
        except queue.Empty:
            if not alive:
                break
            continue
        if kind == "error":
            raise WorkerError(first)
        advance(first, second)
    codes = [process.exitcode for process in processes]
    if any(codes) and not stop.is_set():
        raise WorkerError(f"A worker process ended with the exit codes {codes}; run it again.")


def _work(path: str, index: int, tasks: Any, messages: Any, halt: Any) -> None:
    """Be a worker: take units until there are none."""
    _end_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):  # which may come to all processes at once
        signal.signal(number, signal.SIG_IGN)
    _pin(index)
    stop = _Flag(halt)
    folder = RunFolder.open(path)
    manifest = folder.manifest()
    spec = kind_of(manifest["experiment"]).parse(manifest["spec"], "manifest.json")
    try:
        while not stop.is_set():
            try:
                row, first_seed, seeds = tasks.get(timeout=PATIENCE_SECONDS)
            except queue.Empty:
                return
            unit = Unit(spec.row(row), first_seed, seeds)
            _run_unit(unit, folder, lambda row, steps: messages.put(("step", row, steps)), stop)
    except Exception as error:  # it is told to the parent, which raises it
        messages.put(("error", f"{type(error).__name__}: {error}", 0))


def _call(function: Callable[..., Any], arguments: tuple[Any, ...], messages: Any) -> None:
    """Be the process of :func:`call_in_process`."""
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _pin(0)
    try:
        result = function(*arguments, advance=lambda: messages.put(("advance", None)))
    except Exception as error:  # it is told to the parent, which raises it
        messages.put(("error", f"{type(error).__name__}: {error}"))
    else:
        messages.put(("result", result))


class _Flag:
    """A byte in shared memory that looks like an event."""

    def __init__(self, byte: Any) -> None:
        self.byte = byte

    def is_set(self) -> bool:
        return bool(self.byte.value)


def _run_unit(
    unit: Unit, folder: RunFolder, advance: Callable[[str, int], None], stop: StopFlag
) -> None:
    manifest = folder.manifest()
    preset: PresetName = manifest["preset"]
    kind = kind_of(manifest["experiment"])
    spec = kind.parse(manifest["spec"], "manifest.json")
    run = kind.runner(unit, spec, preset, folder)
    run.run(stop, lambda steps: advance(unit.row.id, steps))


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
