"""Files for TensorBoard, without TensorFlow or PyTorch; needs the extra ``tensorboard``."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from valuetrack.api.loggers import SEED, Logger, Values

_number = itertools.count()


def import_tensorboard() -> tuple[Any, Any, Any]:
    """Return what writes files, a scalar and an event, or say how to install them."""
    try:
        from tensorboardX import event_file_writer, summary  # noqa: PLC0415 - an extra
        from tensorboardX.proto.event_pb2 import Event  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            "TensorBoard's files need an extra: pip install 'valuetrack[tensorboard]'."
        ) from error
    return event_file_writer, summary.scalar, Event


class Board:
    """One run of TensorBoard's: scalars in a file of its own.

    tensorboardX's ``SummaryWriter`` leaves the writing to a thread, and waits for it for ever if it
    ends early, as on a full disk. What is written here is written at once, or raises.
    """

    def __init__(self, folder: str) -> None:
        event_file_writer, self._scalar, self._event = import_tensorboard()
        os.makedirs(folder, exist_ok=True)
        # Names hold the time in seconds, and two trainings may begin in the same one.
        suffix = f".{os.getpid()}.{next(_number)}"
        self._file = event_file_writer.EventsWriter(os.path.join(folder, "events"), suffix)

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write what is finite of the scalars."""
        for name, value in scalars.items():
            if np.isfinite(value):
                content = self._scalar(name, value)
                self._file.write_event(
                    self._event(wall_time=time.time(), step=step, summary=content)
                )
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoardLogger(Logger):
    """Files for TensorBoard below a folder, a run for each seed."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = os.fspath(folder)
        self._boards: dict[str, Board] = {}
        import_tensorboard()

    def log(self, step: int, values: Values) -> None:
        """Write what is finite of a seed's numbers."""
        name = f"seed-{values[SEED]}" if SEED in values else ""
        if name not in self._boards:
            self._boards[name] = Board(os.path.join(self._folder, name))
        self._boards[name].write(step, {k: v for k, v in values.items() if k != SEED})

    def close(self) -> None:
        """Close all files."""
        for board in self._boards.values():
            board.close()
