"""Files for TensorBoard, without TensorFlow or PyTorch; needs the extra ``tensorboard``."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from valuetrack.api.training import Progress

_number = itertools.count()


class Board:
    """One run of TensorBoard's: scalars in a file of its own.

    tensorboardX's ``SummaryWriter`` leaves the writing to a thread, and waits for it for ever if it
    ends early, as on a full disk. What is written here is written at once, or raises.
    """

    def __init__(self, folder: str) -> None:
        try:
            from tensorboardX import event_file_writer, summary  # noqa: PLC0415 - an extra
            from tensorboardX.proto.event_pb2 import Event  # noqa: PLC0415
        except ImportError as error:
            raise ImportError(
                "TensorBoard's files need an extra: pip install 'valuetrack[tensorboard]'."
            ) from error
        self._event, self._scalar = Event, summary.scalar
        os.makedirs(folder, exist_ok=True)
        # Names hold the time in seconds, and two trainings may begin in the same one.
        suffix = f".{os.getpid()}.{next(_number)}"
        self._file = event_file_writer.EventsWriter(os.path.join(folder, "events"), suffix)

    def write(self, step: int, scalars: dict[str, float]) -> None:
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


@contextlib.contextmanager
def written_to(
    folder: str | os.PathLike[str] | None, seeds: Sequence[int]
) -> Iterator[Callable[[Progress], None]]:
    """Yield what writes a training's progress for TensorBoard, a run for each seed.

    Without a folder, nothing is written.
    """
    with contextlib.ExitStack() as opened:
        boards = [Board(os.path.join(folder, f"seed-{seed}")) for seed in seeds if folder]
        for board in boards:
            opened.callback(board.close)

        def write(progress: Progress) -> None:
            for place, board in enumerate(boards):
                scalars = {
                    "rollout/ep_rew_mean": progress.episode_return[place],
                    "rollout/value_at_start": progress.value_at_start[place],
                    "rollout/discounted_return": progress.discounted_return[place],
                    "train/loss": progress.loss[place],
                }
                if progress.evaluation is not None:
                    scalars["eval/mean_reward"] = progress.evaluation[place].mean()
                board.write(progress.steps, scalars)

        yield write
