"""The numbers of a row over time: the band of all its seeds, and one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from valuetrack.live_page.maps import flat
from valuetrack.types import Floats, Json, NDArray

if TYPE_CHECKING:
    from valuetrack.live_page.run_view import RowView, UnitView

MOST_SHOWN = 200
"""How many points of a curve are sent."""
MOST_LINES = 12
"""Up to how many seeds each get a line of their own."""
BAND = (0.05, 0.5, 0.95)
FIRST = ("evaluation", "return", "start_value", "value_at_start", "discounted_return", "loss")
"""The order of what all trainings have; the rest follows as it stands in the records."""


def row_json(row: RowView, seed: int | None) -> Json:
    """Return what the page draws of a row, with the seed that was chosen, if one was."""
    names = dict.fromkeys(name for unit in row.units for name in _columns(unit))
    ordered = [name for name in FIRST if name in names]
    ordered += [name for name in names if name not in FIRST]
    diverged = {s: at for unit in row.units for s, at in unit.diverged.items()}
    return {
        "row": row.entry["id"],
        "seed": seed,
        "version": row.version,
        "updates": max((unit.records.updates for unit in row.units), default=0),
        "series": [_series(row, name, seed) for name in ordered],
        "tracked": _tracked(row, row.seeds[0] if seed is None else seed),
        "diverged": [{"seed": s, "update": at} for s, at in sorted(diverged.items())][:100],
    }


def _columns(unit: UnitView) -> list[str]:
    return [*unit.records.columns, *(unit.tables or {})]


def _numbers(unit: UnitView, name: str) -> tuple[NDArray, Floats]:
    """Return the steps and the numbers, (steps, seeds), of a unit that has them."""
    if unit.tables and name in unit.tables:
        return unit.tables[name]
    rows = unit.records.columns[name]
    return np.fromiter(rows, np.int64, len(rows)), np.stack(list(rows.values()))


def merged(row: RowView, name: str) -> tuple[NDArray, Floats]:
    """Return all steps, and the numbers of all seeds at them, NaN where there are none."""
    found = [(unit, *_numbers(unit, name)) for unit in row.units if name in _columns(unit)]
    steps = thinned(np.unique(np.concatenate([steps for _, steps, _ in found])), MOST_SHOWN)
    place = {seed: i for i, seed in enumerate(row.seeds)}
    numbers = np.full((len(steps), len(place)), np.nan)
    for unit, own, values in found:
        known = np.isin(own, steps)
        columns = np.array([place[seed] for seed in unit.seeds])
        numbers[np.ix_(np.searchsorted(steps, own[known]), columns)] = values[known]
    return steps, numbers


def thinned(steps: NDArray, most: int) -> NDArray:
    """Return at most ``most`` of the steps, evenly spread, with the first and the last."""
    if len(steps) <= most:
        return steps
    return np.asarray(steps[np.linspace(0, len(steps) - 1, most).round().astype(int)])


def quantiles(numbers: Floats, levels: tuple[float, ...]) -> list[Floats]:
    """Return quantiles along the last axis of the numbers that are finite; NaN if none is.

    As ``numpy.nanquantile``, which is slow where some are NaN.

    Examples
    --------
    >>> quantiles(np.array([[3.0, np.nan, 1.0]]), (0.5,))
    [array([2.])]
    """
    ordered = np.sort(np.where(np.isfinite(numbers), numbers, np.nan), axis=-1)
    count = np.isfinite(ordered).sum(axis=-1)
    found = []
    for level in levels:
        rank = level * np.maximum(count - 1, 0)
        below, above = np.floor(rank).astype(int), np.ceil(rank).astype(int)
        low = np.take_along_axis(ordered, below[..., None], -1)[..., 0]
        high = np.take_along_axis(ordered, above[..., None], -1)[..., 0]
        found.append(low + (rank - below) * (high - low))
    return found


def _series(row: RowView, name: str, seed: int | None) -> Json:
    steps, numbers = merged(row, name)
    has_any = np.isfinite(numbers).any(axis=1)
    steps, numbers = steps[has_any], numbers[has_any]
    low, middle, high = quantiles(numbers, BAND) if len(steps) else (np.zeros(0),) * 3
    seeds = row.seeds
    found = {
        "name": name,
        "steps": steps.tolist(),
        "low": flat(low, 5),
        "middle": flat(middle, 5),
        "high": flat(high, 5),
        "seeds": flat(np.isfinite(numbers).sum(axis=1), 9),
    }
    if seed is not None:
        found["one"] = flat(numbers[:, seeds.index(seed)], 5)
    if 1 < len(seeds) <= MOST_LINES:
        found["lines"] = [flat(line, 5) for line in numbers.T]
    return found


def _tracked(row: RowView, seed: int) -> Json | None:
    """Return the tracked values of a seed, if any are: for each state and action, over time."""
    unit = row.unit_of(seed)
    if unit is None or not unit.records.tracked:
        return None
    every = unit.records.tracked
    steps = thinned(np.fromiter(every, np.int64, len(every)), MOST_SHOWN)
    _, states, actions = every[int(steps[-1])]["mean"].shape
    kinds = dict.fromkeys(name for found in every.values() for name in found)
    member, nothing = seed - unit.seeds.start, np.full((states, actions), np.nan)

    def at(step: int, kind: str) -> Floats:
        found = every[step].get(kind)
        is_known = found is not None and found.shape[1:] == nothing.shape
        return found[member] if found is not None and is_known else nothing

    return {
        "seed": seed,
        "steps": steps.tolist(),
        "states": states,
        "actions": actions,
        "kinds": {kind: [flat(at(int(step), kind), 5) for step in steps] for kind in kinds},
    }
