"""What Ray runs on its nodes: a task for each unit, and a mailbox beside the command.

Ray's own processes stay small: each unit computes in a process of its own, which a task looks
after.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from valuetrack.experiments.nodes import parcels
from valuetrack.experiments.nodes.orders import Order
from valuetrack.experiments.nodes.parcels import Courier, Parcel
from valuetrack.experiments.nodes.process import End, UnitProcess
from valuetrack.experiments.units import Unit
from valuetrack.io.atomic import write_atomically

PATIENCE_SECONDS = 0.5


class Letter(NamedTuple):
    """How far a unit is, in environment steps over all its seeds, and its new files."""

    unit: Unit
    steps: int
    files: list[Parcel]


class Mailbox:
    """Takes the letters of all units, and says in return whether to stop."""

    def __init__(self) -> None:
        self._letters: list[Letter] = []
        self._stopped = False

    def put(self, letter: Letter) -> bool:
        """Keep a letter; return whether its unit should save and end."""
        self._letters.append(letter)
        return self._stopped

    def take(self) -> list[Letter]:
        """Return the letters since the last time."""
        taken, self._letters = self._letters, []
        return taken

    def stop(self) -> None:
        """Ask all units to save and end."""
        self._stopped = True


class Result(NamedTuple):
    """How a unit ended; with its files, unless they are in the run's folder already."""

    end: End
    steps: int
    files: list[Parcel]


def run_unit_here(order: Order, files: list[Parcel], mailbox: Any) -> Result:
    """Run a unit on this node, in the run's folder or, from these files, in one of its own."""
    if _asks_to_stop(mailbox, Letter(order["unit"], 0, [])):  # before it has begun
        return Result(End(done=False), 0, [])
    if order["folder"] is not None:
        return _run(order, None, mailbox)
    with tempfile.TemporaryDirectory(prefix="valuetrack-") as path:
        text, unit = order["manifest"].encode(), order["unit"]
        write_atomically(Path(path) / "manifest.json", lambda file: file.write(text))
        folder = Path(path) / "units" / unit.row / unit.name
        parcels.unpack(files, folder)
        return _run({**order, "folder": path}, folder, mailbox)


def _run(order: Order, folder: Path | None, mailbox: Any) -> Result:
    """Look after the unit's process; ``folder`` is where its files wait to be sent, if anywhere."""
    courier = None if folder is None else Courier(folder)
    stopped = False
    with UnitProcess(order) as process:
        while process.end is None:
            process.read(PATIENCE_SECONDS)
            news = [] if courier is None else courier.news()
            if _asks_to_stop(mailbox, Letter(order["unit"], process.steps, news)) and not stopped:
                process.stop()
                stopped = True
    end, files = process.end, []
    if folder is not None and end.error is None:
        files = (parcels.pack_finished if end.done else parcels.pack_unfinished)(folder)
    return Result(end, process.steps, files)


def _asks_to_stop(mailbox: Any, letter: Letter) -> bool:
    """Send a letter, and return whether the unit should end.

    A task whose main thread waits in ``ray.get`` lends its core to another task meanwhile. This
    one still computes, in its unit's process, so another thread waits.
    """
    import ray  # noqa: PLC0415 - an extra

    with ThreadPoolExecutor(1) as thread:
        return bool(thread.submit(lambda: ray.get(mailbox.put.remote(letter))).result())
