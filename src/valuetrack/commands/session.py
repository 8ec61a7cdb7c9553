"""What long commands share: how they are stopped, what they say, and the files of a training."""

from __future__ import annotations

import contextlib
import signal
import time
import zipfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from rich.console import Console

from valuetrack.api.agent import AnyAgent
from valuetrack.api.tracking import Tracking
from valuetrack.api.training import Progress
from valuetrack.commands.arguments import Observations, assignments
from valuetrack.commands.options import Reproduce, Train
from valuetrack.commands.search_options import Sweep
from valuetrack.experiments.engines import EngineChoice
from valuetrack.experiments.maps import TrainingMaps
from valuetrack.experiments.runner import Unit
from valuetrack.interrupts import handled_by
from valuetrack.io.atomic import write_atomically
from valuetrack.io.errors import ModelFileError
from valuetrack.io.run_folder import RunFolder
from valuetrack.posterior import samples_needed
from valuetrack.types import Json, NDArray

AGENT = "agent.vt"
TRACKING = "tracking.npz"
FIGURE = "tracking.png"
LEVEL = 0.95
"""Of the intervals in progress records."""
SAVE_SECONDS = 60.0
"""How often a training in progress is saved."""


def say(console: Console, line: str) -> None:
    """Print a line as it is, however long, so that a path in it can be copied."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def engine_choice(given: Reproduce | Sweep | Train) -> EngineChoice:
    """Return where the units of a command run; refuse options that do not fit together."""
    return EngineChoice(
        given.engine.value,
        given.address,
        given.num_cpus,
        given.shared_folder,
        assignments(given.slurm, "--slurm"),
        tuple(getattr(given, "import_", None) or ()),
    )


class Stop:
    """Ctrl-C and SIGTERM, obeyed at the next safe place; a second Ctrl-C is obeyed at once."""

    asked = is_deaf = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take a signal."""
        if self.asked and number == signal.SIGINT and not self.is_deaf:
            raise KeyboardInterrupt
        self.asked = True

    def is_set(self) -> bool:
        """Return whether to stop at the next safe place."""
        return self.asked


@contextlib.contextmanager
def stoppable() -> Iterator[Stop]:
    """Let Ctrl-C and SIGTERM ask for a stop."""
    stop = Stop()
    with handled_by(stop):
        yield stop


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
        self, agent: AnyAgent, folder: Path, observations: Observations, source: Path, resume: bool
    ) -> None:
        self.agent, self.path, self.observations = agent, folder / TRACKING, observations
        try:
            self.encoded, single = agent.env.encode(observations)
        except ValueError as error:
            raise ValueError(
                f"{source} does not fit {agent.env.label}: {error} An .npy file has a row for each "
                "observation; Dict and Tuple observations take an .npz file, an array each part."
            ) from error
        if single:
            raise ValueError(f"{source} holds a single observation; it should be one row each.")
        self.earlier = self._read() if resume and self.path.exists() else agent.tracking()

    def _read(self) -> Tracking:
        """Return the earlier record, up to where the agent goes on."""
        cure = "move it elsewhere to begin a new record"
        try:
            with np.load(self.path, allow_pickle=False) as arrays:
                found, observations = Tracking.from_arrays(arrays), arrays["observations"]
        except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{self.path} does not say which observations were tracked; {cure}."
            ) from error
        if not np.array_equal(observations, self.encoded):
            raise ValueError(
                f"{self.path} is a record at other observations; track those again, or {cure}."
            )
        return found.until(self.agent.trainer.clock.updates)

    def whole(self) -> Tracking:
        """Return all records."""
        return self.earlier.then(self.agent.tracking())

    def save(self) -> None:
        """Write all records, and at which observations they were made."""
        arrays: Any = {"observations": self.encoded, **self.whole().arrays()}
        write_atomically(self.path, lambda file: np.savez_compressed(file, **arrays))

    def summary(self) -> dict[str, NDArray]:
        """Return the present mean and 95 % credible interval, each (seeds, states, actions).

        The interval is NaN while the samples are too few for one. With tracked intervals, the last
        values that were solved are there as well, with their interval.
        """
        members = range(len(self.agent.seeds))
        found = [self.agent.posterior(self.observations, member=member) for member in members]
        mean = np.stack([estimate.mean for estimate in found])
        low, high = np.full((2, *mean.shape), np.nan)
        if min(len(estimate.samples) for estimate in found) >= samples_needed(LEVEL):
            ends = [estimate.interval(LEVEL, kind="credible") for estimate in found]
            low, high = np.stack(ends, axis=1)
        summary = {"mean": mean, "low": low, "high": high}
        record = self.agent.tracking()
        if record.solved is not None:
            least, most = record.value_interval(LEVEL)
            last = {"solved": record.solved.mean, "solved_low": least, "solved_high": most}
            summary |= {name: points[-1] for name, points in last.items()}
        return summary

    def show(self, console: Console) -> None:
        """Draw the values, and say where they are."""
        record, figure = self.whole(), self.path.with_name(FIGURE)
        if not len(record):
            say(console, "Nothing was tracked: there was no update to record.")
            return
        record.plot(figure)
        say(console, f"Tracked values: {self.path} and {figure}")


class Recorder:
    """Follows a training: small records for whoever watches, and the agent from time to time.

    Parameters
    ----------
    agent, folder
        Who trains, in which run, of which it is the only unit.
    tracked, maps
        The values that are tracked, and those of a grid's cells, if there are any.
    console
        Where it says that it could not save.
    """

    def __init__(
        self,
        agent: AnyAgent,
        folder: RunFolder,
        tracked: Tracked | None,
        maps: TrainingMaps | None,
        console: Console,
    ) -> None:
        self.agent, self.folder, self.console = agent, folder, console
        self.tracked, self.maps = tracked, maps
        self.unit = agent.name, Unit(agent.name, agent.seeds[0], len(agent.seeds)).name
        self.path = folder.path / AGENT
        self.began, self.first_step = time.monotonic(), agent.num_timesteps
        self.saved, self.unwritten = self.began, deque[Json]()
        folder.cut_progress(*self.unit, agent.num_timesteps)

    def __call__(self, progress: Progress) -> None:
        """Append a record, unless the training was stopped between two of them."""
        if progress.agent.trainer.trace.cycles.any():
            return
        seconds = max(time.monotonic() - self.began, 1e-9)
        steps = (progress.steps - self.first_step) * len(self.agent.seeds)
        record: Json = {
            "steps": progress.steps,
            "updates": progress.updates,
            "rate": round(steps / seconds, 1),
            "return": progress.episode_return,
            "loss": progress.loss,
            "value_at_start": progress.value_at_start,
            "discounted_return": progress.discounted_return,
        }
        if progress.evaluation is not None:
            record["evaluation"] = progress.evaluation
        if self.tracked is not None:
            record["values"] = self.tracked.summary()
        if diverged := self.agent.diverged:
            record["diverged"] = diverged
        self.unwritten.append(record)
        with contextlib.suppress(OSError):  # a full disk; :meth:`save` says so
            self._write()
            if self.maps is not None and (frame := self.maps.frame()) is not None:
                self.folder.append_map(*self.unit, self.maps.grid, frame)

    def _write(self) -> None:
        """Append the records that are not in the file yet."""
        while self.unwritten:
            self.folder.append_progress(*self.unit, self.unwritten[0])
            self.unwritten.popleft()

    def save_in_time(self) -> None:
        """Save if the last time is long ago; what fails now is tried again later."""
        if time.monotonic() - self.saved <= SAVE_SECONDS:
            return
        try:
            self.save()
        except (OSError, ModelFileError) as error:
            self.saved = time.monotonic()
            again = f"will try again in {SAVE_SECONDS:.0f} seconds"
            say(self.console, f"Could not save, {again}: {error}")

    def save(self) -> None:
        """Write everything; the agent last, as what goes beyond it is left out at a resume."""
        self._write()
        if self.tracked is not None:
            self.tracked.save()
        self.agent.save(self.path)
        self.saved = time.monotonic()

    def finish(self, stop: Stop) -> None:
        """Save a training that has ended, or was stopped, which is said."""
        try:
            self.save()
        except RuntimeError as error:
            if not stop.asked:
                raise
            # Stopped within an update, by a third Ctrl-C: what was there is gone.
            is_kept = self.path.exists()
            kept = f"{self.path} is as it was saved before" if is_kept else "nothing is saved"
            raise KeyboardInterrupt(f"Interrupted in the middle of an update; {kept}.") from error
        if stop.asked:
            raise KeyboardInterrupt(
                f"Interrupted after {self.agent.num_timesteps:,} steps; the agent is saved in "
                f"{self.path}, and --resume goes on."
            )
