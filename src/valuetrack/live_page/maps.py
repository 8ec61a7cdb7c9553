"""The values of a grid over time: what ``grid.json`` and ``maps.jsonl`` of a unit say."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from valuetrack.io.errors import StoreError
from valuetrack.io.run_folder import GRID, MAPS
from valuetrack.live_page.files import Folder, Names
from valuetrack.live_page.records import Tail
from valuetrack.live_page.tables import final_policy
from valuetrack.types import Floats, Json

ESCAPE = "valuetrack/IndoorEscape-v0"
ACTIONS = ("E", "N", "W", "S")
FIELDS = ("mean", "width", "probability", "solved", "solved_width")
MOST_CELLS = 10_000
MOST_FRAMES = 200


class Grid(NamedTuple):
    """A grid: its size, its special cells, and the exact values, NaN where they are not known."""

    width: int
    height: int
    walls: tuple[tuple[int, int], ...]
    start: tuple[int, int]
    goal: tuple[int, int]
    seeds: tuple[int, ...]
    level: float
    truth: Floats

    @property
    def cells(self) -> int:
        """How many cells it has."""
        return self.width * self.height

    def describe(self) -> Json:
        """Return what the page is told."""
        return {**self._asdict(), "truth": flat(self.truth, 5), "actions": ACTIONS}


class Frame(NamedTuple):
    """The values at one moment, each array (seeds, cells, actions)."""

    steps: int
    arrays: dict[str, Floats]


class UnitMaps:
    """The maps of one unit, which grow while it runs."""

    def __init__(self, folder: Folder, unit: Names, seeds: range, entry: Json, ties: str) -> None:
        self.folder, self.unit, self.seeds = folder, tuple(unit), seeds
        self._entry, self._ties = entry, ties
        self.frames: list[Frame] = []
        self.grid: Grid | None = None
        self._problem = ""
        self._tail = Tail(folder, (*unit, MAPS), self._take, self.frames.clear)
        self._has_looked = False

    @property
    def problem(self) -> str:
        """What is wrong with its files, in one sentence."""
        return self._problem or self._tail.problem

    def refresh(self) -> None:
        """Read what is new."""
        try:
            if self.grid is None and self.folder.stamp((*self.unit, GRID)) is not None:
                content = self.folder.read_json((*self.unit, GRID))
                self.grid = read_grid(self.folder, (*self.unit, GRID), content, set(self.seeds))
                self._problem = ""
            if self.grid is not None:
                self._tail.refresh()
            if not self.frames and not self._has_looked:
                self._look_at_tables()
        except StoreError as error:
            self._problem = str(error)

    def of_seed(self, seed: int, start: int) -> Json:
        """Return the frames of a seed from a number on, for the page."""
        if self.grid is None:
            return {"grid": None, "frames": [], "total": 0}
        seeds = self.grid.seeds
        place = seeds.index(seed) if seed in seeds else None
        frames = [] if place is None else self.frames
        return {
            "grid": self.grid.describe(),
            "total": len(frames),
            "frames": [
                {"steps": frame.steps, **{k: flat(v[place], 4) for k, v in frame.arrays.items()}}
                for frame in frames[start:]
            ],
        }

    def _take(self, record: Json) -> None:
        assert self.grid is not None
        shape = (len(self.grid.seeds), self.grid.cells, len(ACTIONS))
        steps = record.get("steps")
        if not isinstance(steps, int) or len(self.frames) >= MOST_FRAMES:
            raise ValueError("no steps, or too many frames")
        arrays = {name: np.asarray(record[name], np.float32) for name in FIELDS if name in record}
        if "mean" not in arrays or any(array.shape != shape for array in arrays.values()):
            raise ValueError("another shape")
        self.frames.append(Frame(steps, arrays))

    def _look_at_tables(self) -> None:
        """Show what the tables of a unit without maps have: the policy at the end."""
        known = self.grid or grid_of_entry(self._entry, tuple(self.seeds), self._ties)
        if known is None:
            return
        self.grid = known
        policy = final_policy(self.folder, self.unit, self.seeds, known.cells, ACTIONS)
        if policy is not None and len(known.seeds) == len(self.seeds):
            self._has_looked = True
            self.frames.append(Frame(int(self._entry["steps"]), {"probability": policy}))


def read_grid(folder: Folder, names: Names, content: Json, seeds: set[int]) -> Grid:
    """Return what ``grid.json`` says, or refuse it."""
    try:
        width, height = int(content["width"]), int(content["height"])
        if not (1 <= width <= 1000 and 1 <= height <= 1000 and width * height <= MOST_CELLS):
            raise ValueError("no grid")
        truth = np.asarray(content["truth"], np.float64)
        shown = tuple(int(seed) for seed in content["seeds"])
        if truth.shape != (width * height, len(ACTIONS)) or not set(shown) <= seeds:
            raise ValueError("another shape, or other seeds")
        return Grid(
            width,
            height,
            tuple(map(_cell, content["walls"][:MOST_CELLS])),
            _cell(content["start"]),
            _cell(content["goal"]),
            shown,
            float(content["level"]),
            truth,
        )
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise folder.error(names, "is damaged: it describes no grid") from error


def grid_of_entry(entry: Json, seeds: tuple[int, ...], ties: str) -> Grid | None:
    """Return the grid of a row whose units say nothing about it, from its options."""
    options = entry["options"]
    if entry["env"] != ESCAPE or not {"exploration_final", "discount"} <= options.keys():
        return None
    try:
        found = _exact(
            json.dumps(entry["env_options"]),
            float(options["exploration_final"]),
            float(options["discount"]),
            ties,
        )
    except (TypeError, ValueError, MemoryError, RecursionError):
        return None
    return found._replace(seeds=seeds)


@lru_cache(maxsize=32)
def _exact(env_options: str, epsilon: float, discount: float, ties: str) -> Grid:
    """Return a grid and its exact values; the options are JSON, which can be a key."""
    from valuetrack.envs.indoor_escape import (  # noqa: PLC0415 - imports JAX
        IndoorEscape,
        TieRule,
        optimal_q,
    )

    options = json.loads(env_options)
    for side in ("width", "height"):
        if options.get(side, 10) not in range(1, 101):
            raise ValueError("too large a grid")
    env = IndoorEscape(**options)
    rule: TieRule = "reference" if ties == "reference" else "uniform"
    exact = optimal_q(env, epsilon=epsilon, discount=discount, ties=rule).values
    return Grid(env.width, env.height, env.walls, env.start, env.goal_position, (), 0.95, exact)


def flat(values: Floats, digits: int) -> list[float | None]:
    """Return all numbers of an array in a row, with few digits; NaN is ``None``."""
    found = np.ravel(values).tolist()
    return [float(f"{x:.{digits}g}") if math.isfinite(x) else None for x in found]


def _cell(value: object) -> tuple[int, int]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError("not a cell")
    return int(value[0]), int(value[1])
