"""The process that computes one unit: ``python -m valuetrack.experiments.nodes.program``.

See :mod:`valuetrack.experiments.nodes.process` for what it is told and what it says.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import signal
import threading
from typing import IO

from valuetrack.experiments.nodes.orders import Order, UnequalError, check_versions
from valuetrack.experiments.nodes.surroundings import pin
from valuetrack.programs import keep_programs_by_environment


def main() -> None:
    """Take an order, compute, and say how it went."""
    for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2"):  # a batch system's, for its parent
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    say = _Speaker()
    line = _read_line()
    if not line:
        return
    order: Order = json.loads(line)
    stop = threading.Event()
    threading.Thread(target=_obey, args=(stop,), daemon=True).start()
    held = pin(order["cpus"])
    try:
        check_versions(order["versions"])
        say(done=_run(order, say, stop))
    except UnequalError as error:
        say(error=str(error))
    except Exception as error:  # the engine raises it
        from valuetrack.experiments.engines.base import explained  # noqa: PLC0415 - JAX

        say(error=explained(error))
    for file in held:
        file.close()


class _Speaker:
    """Says things on what was the standard output; what others print goes to the error output."""

    def __init__(self) -> None:
        self._output: IO[bytes] = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)

    def __call__(self, **message: object) -> None:
        self._output.write(json.dumps(message).encode() + b"\n")
        self._output.flush()


def _obey(stop: threading.Event) -> None:
    """Stop when told to; end at once when the process that gave the order has ended."""
    while _read_line():
        stop.set()
    os._exit(1)


def _read_line() -> bytes:
    """Read a line, without a buffer: a thread that waits in one would be in the way at the end."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 1)
        if not part:
            return b""
        line += part
    return line


def _run(order: Order, say: _Speaker, stop: threading.Event) -> bool:
    """Run the unit in its folder, which no other process writes to meanwhile."""
    keep_programs_by_environment()  # before JAX is imported
    from valuetrack.experiments.runner import Unit, run_unit  # noqa: PLC0415
    from valuetrack.experiments.spec import from_manifest  # noqa: PLC0415
    from valuetrack.io.run_folder import RunFolder, StoreError  # noqa: PLC0415

    for module in order["imports"]:  # of the user's, which register environments
        importlib.import_module(module)
    unit, steps = Unit(*order["unit"]), 0
    assert order["folder"] is not None
    folder = RunFolder(order["folder"])

    def advance(taken: int) -> None:
        nonlocal steps
        steps += taken
        say(steps=steps)

    try:
        manifest = folder.manifest()
    except StoreError as error:
        raise StoreError(
            f"The node {platform.node()} does not see the run: {error} Leave out --shared-folder, "
            "or choose a folder that all nodes share."
        ) from error
    with folder.lock_unit(unit.row, unit.name, stop) as is_ours:
        if not is_ours:
            return False
        if folder.is_finished(unit.row, unit.name):
            return True
        spec = from_manifest(manifest)
        return run_unit(unit, spec, folder, advance, stop, order["checkpoint_seconds"])


if __name__ == "__main__":
    main()
