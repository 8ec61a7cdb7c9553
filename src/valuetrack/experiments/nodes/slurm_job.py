"""What a job of SLURM does: it looks after the process of one unit, in the run's folder."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from valuetrack.experiments.nodes.orders import Order
from valuetrack.experiments.nodes.process import UnitProcess
from valuetrack.io.atomic import write_atomically

PATIENCE_SECONDS = 1.0
STOP = "stop"
"""While a file of this name exists among the jobs' files, units save and end."""


class UnitJob:
    """Runs a unit; when its time is up or it is preempted, saves its state and is queued again.

    Parameters
    ----------
    files
        The folder of the jobs' files, which every node sees.
    failure
        Where in it a unit that fails says why.
    """

    def __init__(self, files: str, failure: str) -> None:
        self._files, self._failure = files, failure
        self._process: UnitProcess | None = None

    def __call__(self, order: Order) -> None:
        """Run the unit to its end, or to where it is asked to stop."""
        stop, stopped = Path(self._files) / STOP, False
        with UnitProcess(order) as process:
            self._process = process
            while process.end is None:
                process.read(PATIENCE_SECONDS)
                if not stopped and stop.exists():
                    process.stop()
                    stopped = True
        if process.end.error is not None:
            text = json.dumps({"error": process.end.error})
            path = Path(self._files) / self._failure
            write_atomically(path, lambda file: file.write(text.encode()))
        elif process.end.died is not None:
            raise RuntimeError(process.end.died)  # for the job's log

    def checkpoint(self, order: Order) -> Any:
        """Save the unit's state, and return what submitit queues again."""
        from submitit.helpers import DelayedSubmission  # noqa: PLC0415 - an extra

        if self._process is not None:
            with contextlib.suppress(AttributeError):  # it has not begun
                self._process.stop()
                self._process.wait()
        return DelayedSubmission(UnitJob(self._files, self._failure), order)
