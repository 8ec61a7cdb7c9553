"""A unit: a group of seeds of a row. Nothing heavy is imported here."""

from __future__ import annotations

from typing import NamedTuple


class Unit(NamedTuple):
    """A group of seeds of a row: what one process runs at a time."""

    row: str
    first_seed: int
    seeds: int

    @property
    def name(self) -> str:
        """The unit's folder."""
        return f"seeds-{self.first_seed:04d}-{self.first_seed + self.seeds - 1:04d}"
