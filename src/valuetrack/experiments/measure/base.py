"""What an experiment records: the contract, and the columns that measures fill."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from valuetrack.api.options import parse
from valuetrack.experiments.spec import Row
from valuetrack.io.arrays import Arrays
from valuetrack.io.run_folder import Columns
from valuetrack.registry import agent_type
from valuetrack.types import Json, NDArray


class Measure(Protocol):
    """Looks at an agent at chosen points of its training, and makes tables of what it saw.

    It is built from (options, row, agent). All that it remembers goes through :meth:`arrays` and
    :meth:`restore`, so that a run can be killed at any moment.
    """

    tracked: NDArray | None = None
    """Observations whose values :meth:`collect` is given after every update, or ``None``."""
    points: list[int]
    """After how many cycles it wants to look, in ascending order; the last is the end."""

    @property
    def done(self) -> bool:
        """Whether nothing is left to be seen, so that a unit may end before its last point."""
        return False

    grid: Json | None = None
    """What its maps are of, as ``grid.json`` says it, if it makes any."""

    def collect(self, values: NDArray) -> None:
        """Take the tracked values of the last updates, (updates, seeds, heads, states, actions)."""

    def look(self, index: int) -> Json:
        """Measure at a point; return a small record for those who follow the run."""
        ...

    def map(self, index: int) -> Json | None:
        """Return a map of the values at a point, for those who follow the run, if one is due."""
        return None

    def arrays(self) -> Columns:
        """Return everything it remembers."""
        ...

    def restore(self, arrays: Arrays) -> None:
        """Remember what was saved."""
        ...

    def tables(self) -> dict[str, Columns]:
        """Return the tables of the finished unit, without the columns that all rows share."""
        ...

    def write_files(self, folder: Path) -> None:
        """Write files of its own into the unit's folder, if it has any."""


class Records:
    """Rows of a table that grows while a run goes on, as columns of numbers."""

    def __init__(self) -> None:
        self.columns: Columns = {}

    def append(self, rows: Columns) -> None:
        """Add rows with the same columns as before."""
        before = self.columns or {name: column[:0] for name, column in rows.items()}
        self.columns = {name: np.concatenate([before[name], rows[name]]) for name in rows}

    def arrays(self, name: str) -> Columns:
        """Return the columns under names below ``name``, and their order.

        A checkpoint does not keep the order of its arrays, and a run that was killed has the same
        files as another, wherever that was.
        """
        if not self.columns:
            return {}
        return {**placed_below(name, self.columns), f"{name}_order": np.array(list(self.columns))}

    def restore(self, arrays: Arrays, name: str) -> None:
        """Take up the columns that were saved below ``name``."""
        found = below(name, arrays)
        self.columns = {key: found[key] for key in arrays.get(f"{name}_order", np.array([*found]))}


def placed_below(name: str, arrays: Arrays) -> Columns:
    """Return arrays under names that begin with ``name``."""
    return {f"{name}.{key}": array for key, array in arrays.items()}


def below(name: str, arrays: Arrays) -> Columns:
    """Return the arrays that :func:`placed_below` put there, under their own names."""
    start = f"{name}."
    return {k.removeprefix(start): array for k, array in arrays.items() if k.startswith(start)}


def steps_per_cycle(row: Row) -> int:
    """Return how many environment steps a cycle of a row has."""
    options = parse(agent_type(row.algorithm).options_type, row.options, row.id)
    return int(options.steps_per_update * options.environments)


def cycles_of(row: Row) -> int:
    """Return how many cycles a row's steps are, rounded up."""
    return -(-row.steps // steps_per_cycle(row))
