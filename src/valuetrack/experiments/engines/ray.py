"""Units as tasks of Ray, on a cluster or on a new one of this machine; needs the extra ``ray``.

The command retries units that die with their node, as it knows the newest state of each: Ray's own
retries would begin with what the task was first given.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, Self

from valuetrack.experiments.engines.base import Engine, Event, WorkerError
from valuetrack.experiments.engines.options import NodeOptions
from valuetrack.experiments.nodes import parcels
from valuetrack.experiments.nodes.orders import Order
from valuetrack.experiments.nodes.process import End
from valuetrack.experiments.nodes.ray_task import Letter, Mailbox, Result, run_unit_here
from valuetrack.experiments.runner import Unit
from valuetrack.io.run_folder import RunFolder
from valuetrack.training.seed_groups import available_cores

MOST_DEATHS = 20
"""How often a unit may die with its node or process before the run ends."""
ANSWER_SECONDS = 10.0
"""How long a cluster may take to answer."""
QUIET = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}


def import_ray() -> Any:
    """Return Ray, or say how to install it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it reports nothing to anybody
    # Units never use an accelerator; without this, Ray warns that it may no longer hide them.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray  # noqa: PLC0415 - an extra
        import ray.exceptions  # noqa: PLC0415
        import ray.util.scheduling_strategies  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("--engine ray needs an extra: pip install 'valuetrack[ray]'.") from error
    return ray


class RayEngine(Engine):
    """Runs units on the nodes of a Ray cluster.

    Parameters
    ----------
    folder
        The run's folder.
    options
        How many cores a unit has, and whether the nodes see the folder.
    address
        ``auto`` or HOST:PORT of a cluster; ``None`` for a new one on this machine, which ends with
        the run.
    """

    def __init__(self, folder: RunFolder, options: NodeOptions, address: str | None = None) -> None:
        self._ray = import_ray()
        self._folder, self._options, self._address = folder, options, address
        self._shares = options.shared_folder or address is None
        self._running: dict[Any, Unit] = {}
        self._steps: Counter[Unit] = Counter()
        self._deaths: Counter[Unit] = Counter()
        self._stopped = False

    def __enter__(self) -> Self:
        """Connect to the cluster, or start one."""
        with _own_signals():
            self._connect()
        ray = self._ray
        self._check_cores()
        # Beside this process, so that it lives as long, whichever node dies.
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self._mailbox = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()
        self._task = ray.remote(run_unit_here).options(
            num_cpus=self._options.num_cpus, max_retries=0, scheduling_strategy="SPREAD"
        )
        return self

    def __exit__(self, kind: object, error: object, traceback: object, /) -> None:
        """Ask units to save and end, and wait for them; a second Ctrl-C ends them at once."""
        try:
            if self._running and not isinstance(error, KeyboardInterrupt):
                self.stop()
                while self._running:
                    with contextlib.suppress(WorkerError):  # the first one is being raised
                        self.follow(1.0)
        finally:
            with _own_signals():
                self._ray.shutdown()

    def submit(self, unit: Unit) -> None:
        """Add a unit."""
        order = self._options.order(self._folder, unit, shares=self._shares)
        self._running[self._start(order)] = unit

    def follow(self, seconds: float) -> list[Event]:
        """Return what the nodes have told; raise why a unit failed."""
        ray = self._ray
        ended, _ = ray.wait(list(self._running), timeout=seconds, fetch_local=False)
        events: list[Event] = []
        for letter in ray.get(self._mailbox.take.remote()):
            events += self._take(letter)
        for task in ended:
            events += self._finish(task)
        return events

    def is_busy(self) -> bool:
        """Return whether there are units that run or wait."""
        return bool(self._running)

    def stop(self) -> None:
        """Ask all units to save and end."""
        if not self._stopped:
            self._stopped = True
            self._ray.get(self._mailbox.stop.remote())

    def _connect(self) -> None:
        if self._address is None:
            try:
                self._ray.init(address="local", num_cpus=available_cores(), **QUIET)
            except Exception as error:  # Ray raises no kind of its own
                reason = " ".join(str(error).split())
                raise ConnectionError(f"Ray does not start on this machine: {reason}") from error
            return
        try:
            if self._address != "auto":  # Ray itself would try for minutes
                host, _, port = self._address.rpartition(":")
                socket.create_connection((host, int(port)), ANSWER_SECONDS).close()
            self._ray.init(address=self._address, log_to_driver=False, logging_level="error")
        except (OSError, ValueError, RuntimeError, self._ray.exceptions.RayError) as error:
            raise ConnectionError(
                f"There is no Ray cluster at {self._address}; start one with `ray start --head`, "
                "or leave out --address for one on this machine."
            ) from error

    def _check_cores(self) -> None:
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        most = max(node["Resources"].get("CPU", 0) for node in nodes)
        if most < self._options.num_cpus:
            self._ray.shutdown()
            raise ValueError(
                f"--num-cpus is {self._options.num_cpus}, but no node has more than {most:.0f}."
            )

    def _start(self, order: Order) -> Any:
        """Start a task, from the state in the run's folder if the node does not see that."""
        unit = order["unit"]
        path = self._folder.unit_path(unit.row, unit.name)
        files = [] if self._shares else parcels.pack_unfinished(path)
        return self._task.remote(order, files, self._mailbox)

    def _take(self, letter: Letter) -> Iterator[Event]:
        unit = Unit(*letter.unit)
        self._write(unit, letter.files)
        yield from self._advance(unit, letter.steps)

    def _advance(self, unit: Unit, steps: int) -> Iterator[Event]:
        """Tell how far a unit has come since it was last heard of."""
        before = self._steps[unit]
        if steps != before:
            self._steps[unit] = steps
            yield Event(unit.row, steps - before)

    def _finish(self, task: Any) -> Iterator[Event]:
        """Keep what a unit that has ended leaves; run it again if it has died."""
        unit = self._running.pop(task)
        result = self._result(task, unit)
        died = result.end.died
        if result.end.error is not None:
            raise WorkerError(result.end.error)
        self._write(unit, result.files)
        yield from self._advance(unit, result.steps)
        if died is None or self._stopped:
            return
        self._deaths[unit] += 1
        if self._deaths[unit] > MOST_DEATHS:
            raise WorkerError(
                f"{unit.row}, {unit.name} has died {self._deaths[unit]} times ({died}); does it "
                "have enough memory? --num-cpus 2 lets half as many units share a node's."
            )
        self.submit(unit)

    def _result(self, task: Any, unit: Unit) -> Result:
        """Return what a task returned, or how it ended without a result."""
        errors = self._ray.exceptions
        try:
            result: Result = self._ray.get(task)
            return result
        except errors.RayTaskError as error:
            raise WorkerError(_failure(error)) from error
        except errors.RayError as error:  # of the node, its memory or the network
            died = End(done=False, died=f"{type(error).__name__}")
            return Result(died, self._steps[unit], [])

    def _write(self, unit: Unit, files: list[parcels.Parcel]) -> None:
        if files:
            parcels.unpack(files, self._folder.unit_path(unit.row, unit.name))


def _failure(error: Exception) -> str:
    """Say why a task could not run a unit at all."""
    text = str(error)
    if "No module named 'valuetrack" in text:
        return "A node of the cluster has no valuetrack; install it there, in the same version."
    cause = getattr(error, "cause", None) or error
    last = str(cause).strip().splitlines()[-1:] or [""]
    return f"A task of Ray failed: {type(cause).__name__}: {last[0]}"


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keep the handlers of Ctrl-C and SIGTERM, which Ray replaces by its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
