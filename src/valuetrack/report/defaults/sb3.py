"""The rows of ``studies/sb3_defaults.py``, which lie in the run's folder beside the others."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from valuetrack.io.errors import StoreError
from valuetrack.io.manifest import Row as Entry
from valuetrack.io.run_folder import Columns, RunFolder
from valuetrack.report.run_data import Row

FILE = "sb3.json"
"""What the study writes into the run's folder."""
NAME, LABEL = "sb3", "DQN of SB3"


class _Point(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    step: int
    evaluation_return: float
    discounted_return: float
    start_value: float


class _Trained(BaseModel):
    """One seed on one task."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    env: str
    steps: int
    seed: int
    diverged: bool
    final_return: float
    discounted_return: float
    start_value: float
    state_actions: float = math.nan
    value_rmse: float = math.nan
    value_bias: float = math.nan
    policy_value: float = math.nan
    seconds: float
    points: tuple[_Point, ...]


class _File(BaseModel):
    versions: dict[str, str]
    rows: tuple[_Trained, ...]


def sb3_rows(folder: RunFolder) -> Iterator[tuple[Row, Columns, Columns]]:
    """Go through the tasks of the study, each with its seeds' table and that of their points.

    Raises
    ------
    StoreError
        If there is such a file, but not one of the study.
    """
    path = folder.path / FILE
    if not path.is_file():
        return
    try:
        found = _File.model_validate_json(path.read_bytes()).rows
    except ValidationError as error:
        raise StoreError(
            f"{path} is not as studies/sb3_defaults.py writes it; delete it or run the study again."
        ) from error
    for task in dict.fromkeys(row.task for row in found):
        yield _task(sorted((row for row in found if row.task == task), key=lambda row: row.seed))


def _task(rows: list[_Trained]) -> tuple[Row, Columns, Columns]:
    first = rows[0]
    entry = Entry(
        id=f"{first.task}-{NAME}",
        label=LABEL,
        algorithm=NAME,
        env=first.env,
        env_options={},
        steps=first.steps,
        options={},
        units=[[row.seed, 1] for row in rows],
    )
    row = Row(
        entry,
        tuple(row.seed for row in rows),
        {row.seed: 0 for row in rows if row.diverged},
        {row.seed: row.seconds for row in rows},
    )
    names = [name for name in _Trained.model_fields if name not in ("task", "env", "points")]
    seeds = {name: np.array([getattr(row, name) for row in rows]) for name in names}
    seeds["acted_rmse"] = seeds["value_rmse"]
    points = [
        {"seed": row.seed, "point": place + 1, **point.model_dump()}
        for row in rows
        for place, point in enumerate(row.points)
    ]
    table = {name: np.array([point[name] for point in points]) for name in points[0]}
    unknown = np.full(len(points), np.nan)
    return row, seeds, {**table, "training_return": unknown, "training_episodes": unknown}
