"""The contract between an experiment and whatever runs its units."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, Self

from valuetrack.experiments.runner import Unit
from valuetrack.experiments.spec import SpecError
from valuetrack.io.errors import ModelFileError, StoreError


class WorkerError(RuntimeError):
    """A unit failed; the message says why."""


def explained(error: Exception) -> str:
    """Say why a unit failed; our own errors are sentences already."""
    if isinstance(error, StoreError | SpecError | ModelFileError):
        return str(error)
    return f"{type(error).__name__}: {error}"


class Event(NamedTuple):
    """A unit has gone on by some environment steps, over all its seeds.

    They are negative when a unit begins again elsewhere, from where it was saved last.
    """

    row: str
    steps: int


class Engine(Protocol):
    """Runs units, somewhere. Their results are in the run's folder when they are done.

    ::

        with engine:
            for unit in units:
                engine.submit(unit)
            while engine.is_busy():
                for event in engine.follow(0.5):
                    ...
                if enough:
                    engine.stop()
    """

    def __enter__(self) -> Self:
        """Start whatever runs units, unless that waits for the first one."""
        return self

    def __exit__(self, kind: object, error: object, traceback: object, /) -> None:
        """Collect what is left: ask units to save and end, and wait until they have."""
        ...

    def submit(self, unit: Unit) -> None:
        """Add a unit to those to be run."""
        ...

    def follow(self, seconds: float) -> Iterable[Event]:
        """Return what has happened, waiting up to this long for something to happen.

        Raises
        ------
        WorkerError
            If a unit has failed.
        """
        ...

    def is_busy(self) -> bool:
        """Return whether there are units that run or wait."""
        ...

    def stop(self) -> None:
        """Ask all units to save their state and end at the next safe place."""
        ...
