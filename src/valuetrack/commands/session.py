"""A training from the command line: its files, and how it is stopped."""

from __future__ import annotations

import contextlib
import json
import signal
import time
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from rich.console import Console

from valuetrack.algorithms import Algorithm, Progress, Tracking
from valuetrack.files import write_atomically
from valuetrack.interrupts import handled_by

AGENT = "agent.vt"
HISTORY = "history.json"
TRACKING = "tracking.npz"
FIGURE = "tracking.png"
SAVE_SECONDS = 60.0
"""How often a training in progress is saved."""


class Stop:
    """Ctrl-C and SIGTERM, obeyed between two cycles; a second Ctrl-C is obeyed at once."""

    asked = is_deaf = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take a signal."""
        if self.asked and number == signal.SIGINT and not self.is_deaf:
            raise KeyboardInterrupt
        self.asked = True


class Tracked:
    """The values at the user's observations, with the earlier ones of a training that goes on.

    Parameters
    ----------
    agent, folder
        Who trains, and where its files are.
    observations, source
        What is tracked, and the file that it was read from.
    resume
        Whether the folder may hold earlier values.
    """

    def __init__(
        self, agent: Algorithm, folder: Path, observations: Any, source: Path, *, resume: bool
    ) -> None:
        self.agent, self.path = agent, folder / TRACKING
        try:
            self.encoded, single = agent.place.encode(observations)
        except ValueError as error:
            raise ValueError(
                f"{source} does not fit {agent.place.id}: {error} An .npy file has a row for each "
                "observation; Dict and Tuple observations take an .npz file, an array each part."
            ) from error
        if single:
            raise ValueError(f"{source} holds a single observation; it should be one row each.")
        self.earlier = self._read() if resume and self.path.exists() else None

    def _read(self) -> Tracking:
        """Return the earlier record, up to where the agent goes on."""
        cure = "move it elsewhere to begin a new record"
        try:
            with np.load(self.path, allow_pickle=False) as arrays:
                names = ("steps", "updates", "samples", "observations")
                steps, updates, samples, observations = (arrays[name] for name in names)
        except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{self.path} does not say which observations were tracked; {cure}."
            ) from error
        if not np.array_equal(observations, self.encoded):
            raise ValueError(
                f"{self.path} is a record at other observations; track those again, or {cure}."
            )
        known = updates <= self.agent.trainer.clock.updates
        return Tracking(steps[known], updates[known], samples[known])

    def whole(self) -> Tracking:
        """Return all records."""
        new, old = self.agent.tracking(), self.earlier
        if old is None or not len(old):
            return new
        if not len(new):
            return old
        parts = zip(_parts(old), _parts(new), strict=True)
        return Tracking(*(np.concatenate(part) for part in parts))

    def save(self) -> None:
        """Write all records, and at which observations they were made."""
        steps, updates, samples = _parts(self.whole())
        arrays = {"steps": steps, "updates": updates, "samples": samples}
        write_atomically(
            self.path,
            lambda file: np.savez_compressed(file, observations=self.encoded, **arrays),
        )

    def show(self, console: Console) -> None:
        """Draw the values, and say where they are."""
        record = self.whole()
        if not len(record):
            console.print("Nothing was tracked: there was no update to record.")
            return
        figure = self.path.with_name(FIGURE)
        record.plot(figure)
        console.print(f"Tracked values: {self.path} and {figure}")


class Recorder:
    """Keeps the history of a training, and saves it and the agent from time to time."""

    def __init__(self, agent: Algorithm, folder: Path, tracked: Tracked | None) -> None:
        self.agent, self.folder, self.tracked = agent, folder, tracked
        self.history = [
            entry for entry in _history(folder) if entry["steps"] <= agent.num_timesteps
        ]
        self.saved = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """Add a report to the history."""
        evaluation = progress.evaluation
        self.history.append(
            {
                "steps": progress.steps,
                "updates": progress.updates,
                "episode_return": _numbers(progress.episode_return),
                "loss": _numbers(progress.loss),
                "evaluation": None if evaluation is None else [_numbers(r) for r in evaluation],
            }
        )

    def save_in_time(self) -> None:
        """Save if the last time is long ago."""
        if time.monotonic() - self.saved > SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Write everything; the agent last, as what goes beyond it is left out at a resume."""
        if self.tracked is not None:
            self.tracked.save()
        text = json.dumps(self.history, indent=1) + "\n"
        write_atomically(self.folder / HISTORY, lambda file: file.write(text.encode()))
        self.agent.save(self.folder / AGENT)
        self.saved = time.monotonic()


@contextlib.contextmanager
def stoppable() -> Iterator[Stop]:
    """Let Ctrl-C and SIGTERM ask for a stop."""
    stop = Stop()
    with handled_by(stop):
        yield stop


@contextlib.contextmanager
def divergence_told_later() -> Iterator[None]:
    """Leave it to the end to say that seeds diverged, without a line of this program."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\w+ diverged: ", RuntimeWarning)
        yield


def save(recorder: Recorder, stop: Stop) -> None:
    """Save a training that has ended, or was stopped, which is said."""
    path = recorder.folder / AGENT
    try:
        recorder.save()
    except RuntimeError as error:
        if not stop.asked:
            raise
        # Stopped within an update, by a third Ctrl-C: what was there is gone.
        kept = f"{path} is as it was saved before" if path.exists() else "nothing is saved"
        raise KeyboardInterrupt(f"Interrupted in the middle of an update; {kept}.") from error
    if stop.asked:
        steps = f"{recorder.agent.num_timesteps:,} steps"
        raise KeyboardInterrupt(
            f"Interrupted after {steps}; the agent is saved in {path}, and --resume goes on."
        )


def _history(folder: Path) -> list[dict[str, Any]]:
    path = folder / HISTORY
    if not path.is_file():
        return []
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if all(isinstance(entry["steps"], int) for entry in content):
            return list(content)
    except (ValueError, TypeError, KeyError):
        pass
    raise ValueError(f"{path} is damaged; move it elsewhere to go on without the history.")


def _parts(record: Tracking) -> tuple[Any, Any, Any]:
    return record.steps, record.updates, record.samples


def _numbers(values: Any) -> list[float | None]:
    """Return numbers for JSON, which knows no NaN."""
    return [float(value) if np.isfinite(value) else None for value in np.asarray(values).ravel()]
