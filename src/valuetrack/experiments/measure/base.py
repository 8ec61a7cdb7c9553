"""What an experiment records: the contract, and the columns that measures fill."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from valuetrack.api.options import parse
from valuetrack.experiments.spec import Row
from valuetrack.io.run_folder import Columns
from valuetrack.registry import agent_type
from valuetrack.types import NDArray


class Measure(Protocol):
    """Looks at an agent at chosen points of its training, and makes tables of what it saw.

    It is built from (options, row, agent). All that it remembers goes through :meth:`arrays` and
    :meth:`restore`, so that a run can be killed at any moment.
    """

    tracked: NDArray | None
    """Observations whose values :meth:`collect` is given after every update, or ``None``."""
    points: list[int]
    """After how many cycles it wants to look, in ascending order; the last is the end."""

    def collect(self, values: NDArray) -> None:
        """Take the tracked values of the last updates, (updates, seeds, heads, states, actions)."""
        ...

    def look(self, index: int) -> dict[str, Any]:
        """Measure at a point; return a small record for those who follow the run."""
        ...

    def arrays(self) -> dict[str, NDArray]:
        """Return everything it remembers."""
        ...

    def restore(self, arrays: Mapping[str, NDArray]) -> None:
        """Remember what was saved."""
        ...

    def tables(self) -> dict[str, Columns]:
        """Return the tables of the finished unit, without the columns that all rows share."""
        ...

    def write_files(self, folder: Path) -> None:
        """Write files of its own into the unit's folder, if it has any."""
        ...


class Records:
    """Rows of a table that grows while a run goes on, as columns of numbers."""

    def __init__(self) -> None:
        self.columns: Columns = {}

    def append(self, rows: Columns) -> None:
        """Add rows with the same columns as before."""
        if not self.columns:
            self.columns = {name: np.asarray(column) for name, column in rows.items()}
            return
        self.columns = {
            name: np.concatenate([self.columns[name], rows[name]]) for name in self.columns
        }

    def arrays(self, name: str) -> dict[str, NDArray]:
        """Return the columns under names below ``name``."""
        return {f"{name}.{column}": values for column, values in self.columns.items()}

    def restore(self, arrays: Mapping[str, NDArray], name: str) -> None:
        """Take up the columns that were saved below ``name``."""
        start = f"{name}."
        self.columns = {
            key.removeprefix(start): values
            for key, values in arrays.items()
            if key.startswith(start)
        }


def steps_per_cycle(row: Row) -> int:
    """Return how many environment steps a cycle of a row has."""
    options = parse(agent_type(row.algorithm).options_type, row.options, row.id)
    return int(options.steps_per_update * options.environments)


def cycles_of(row: Row) -> int:
    """Return how many cycles a row's steps are, rounded up."""
    return -(-row.steps // steps_per_cycle(row))
