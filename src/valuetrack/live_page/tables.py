"""What finished units left where their progress records are missing, as in a copy of results."""

from __future__ import annotations

import numpy as np

from valuetrack.io.run_folder import UNIT
from valuetrack.live_page.files import Folder, Names
from valuetrack.types import Floats, NDArray

MOST_BYTES = 64_000_000
MOST_NUMBERS = 20_000_000
"""How large a table may be, as a file and when it is read: a small file may hold a huge one."""
SERIES = {
    "metrics": {
        "training_return": "return",
        "mse": "mse",
        "coverage": "coverage",
        "credible_coverage": "credible_coverage",
        "legal_width": "legal_width",
    },
    "points": {
        "training_return": "return",
        "evaluation_return": "evaluation",
        "discounted_return": "discounted_return",
        "start_value": "start_value",
    },
}
"""Table -> its columns -> what progress records call them."""
POLICY = ("seed", "cell", "action", "probability")


def read_columns(folder: Folder, names: Names, wanted: set[str]) -> dict[str, NDArray]:
    """Return some columns of a Parquet file, as far as it has them."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.parquet as pq  # noqa: PLC0415

    data = folder.read(names, MOST_BYTES)
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        present = [name for name in file.schema_arrow.names if name in wanted]
        if file.metadata.num_rows * max(1, len(present)) > MOST_NUMBERS:
            raise folder.error(names, "is damaged: it holds more numbers than a unit can have")
        table = file.read(columns=present)
        return {name: table[name].to_numpy() for name in present}
    except (pa.ArrowException, OSError, LookupError, TypeError, MemoryError) as error:
        raise folder.error(names, "is damaged: it is not a Parquet table") from error


def series_of_tables(
    folder: Folder, unit: Names, seeds: range
) -> dict[str, tuple[NDArray, Floats]]:
    """Return name -> steps (n,) and numbers (n, seeds) of a unit, from its tables."""
    found: dict[str, tuple[NDArray, Floats]] = {}
    for table, columns in SERIES.items():
        names = (*unit, f"{table}.parquet")
        if folder.stamp(names) is None:
            continue
        read = read_columns(folder, names, {"seed", "step", *columns})
        if not {"seed", "step"} <= read.keys():
            raise folder.error(names, "is damaged: it lacks seeds and steps")
        for column, name in columns.items():
            if column in read:
                found[name] = by_step(read["step"], read["seed"], read[column], seeds)
    return found


def by_step(step: NDArray, seed: NDArray, values: NDArray, seeds: range) -> tuple[NDArray, Floats]:
    """Return the steps, and the mean value of each at each seed, NaN where there is none.

    Examples
    --------
    >>> steps, numbers = by_step(np.array([5, 5]), np.array([0, 0]), np.array([1, 3]), range(2))
    >>> steps.tolist(), numbers.tolist()
    ([5], [[2.0, nan]])
    """
    known = np.isin(seed, np.arange(seeds.start, seeds.stop)) & np.isfinite(values.astype(float))
    steps, place = np.unique(step[known].astype(np.int64), return_inverse=True)
    total, count = np.zeros((2, len(steps), len(seeds)))
    where = (place, seed[known].astype(np.int64) - seeds.start)
    np.add.at(total, where, values[known].astype(np.float64))
    np.add.at(count, where, 1.0)
    with np.errstate(invalid="ignore"):
        return steps, total / count


def final_policy(
    folder: Folder, unit: Names, seeds: range, cells: int, actions: tuple[str, ...]
) -> Floats | None:
    """Return how probable each action was at the end of a unit, (seeds, cells, actions)."""
    names = (*unit, "policy.parquet")
    if folder.stamp(names) is None or folder.stamp((*unit, UNIT)) is None:
        return None
    read = read_columns(folder, names, set(POLICY))
    if set(POLICY) - read.keys():
        raise folder.error(names, "is damaged: it lacks columns")
    place = {name: i for i, name in enumerate(actions)}
    found = np.full((len(seeds), cells, len(actions)), np.nan)
    for seed, cell, action, probability in zip(*(read[name] for name in POLICY), strict=True):
        if seed in seeds and 0 <= cell < cells and action in place:
            found[seed - seeds.start, cell, place[action]] = probability
    return found
