"""A sweep of one's own: environments x algorithms x options x seeds, as a TOML file.

::

    name = "first-try"                       # the file's name by default
    environments = ["CartPole-v1", { env = "Acrobot-v1", steps = 100_000 }]
    algorithms = ["lktd", "dqn"]
    steps = 50_000                           # of each seed
    seeds = 5
    first_seed = 0
    seeds_per_unit = 5                       # trained side by side, in one process

    [options]                                # of all rows
    discount = 0.98

    [options.dqn]                            # also [options.samplers]
    double = false

    [grid]                                   # every combination is a row
    learning_rate = [1e-3, 3e-4]
    hidden = [[64, 64], [256, 256]]          # a list of lists

    [grid.lktd]
    alpha = [0.5, 0.9]

    [measure]                                # of the learning curves
    points = 20
    episodes = 10
    final_episodes = 100

An environment is its id, or a table with ``env`` and any of ``env_options``, ``steps`` and
``options``. What is closer to a row counts: the options of all, of samplers, of the algorithm, of
the environment. An option of all, or of samplers, is nothing to an algorithm that lacks it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from valuetrack.api import settings
from valuetrack.api.environment import AgentEnvironment
from valuetrack.api.options import Count, CountOrZero, parse, written_setting
from valuetrack.experiments import measure
from valuetrack.experiments.spec import (
    Experiment,
    Section,
    SpecError,
    Task,
    read_toml,
    resolve,
    spec_error,
    with_none,
)
from valuetrack.registry import AGENTS, agent_type
from valuetrack.types import Json

NAME = "sweep"
"""The experiment's name in the manifest; the sweep's own is its preset."""
LETTERS, DIGITS = 24, 8
"""Of the environment's name in a row's id, and of the fingerprint of its settings."""
MOST_ROWS = 10_000
SHARED = ("samplers",)


class _Environment(Section):
    """Where to train; what is not said is as for the others."""

    env: str
    env_options: Json = Field(default_factory=dict)
    steps: Count | None = None
    options: Json = Field(default_factory=dict)


def _as_table(given: object) -> object:
    return {"env": given} if isinstance(given, str) else given


Place = Annotated[_Environment, BeforeValidator(_as_table)]


class _Source(Section):
    """A sweep as its file has it."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    environments: Annotated[list[Place], Field(min_length=1)]
    algorithms: Annotated[list[str], Field(min_length=1)]
    steps: Count
    seeds: Count = 5
    first_seed: CountOrZero = 0
    seeds_per_unit: Count = 5
    options: Json = Field(default_factory=dict)
    grid: Json = Field(default_factory=dict)
    measure: Json = Field(default_factory=dict)

    @model_validator(mode="after")
    def _algorithms_exist(self) -> Self:
        for name in self.algorithms:
            if name not in AGENTS:
                raise ValueError(f"there is no algorithm {name!r}; there are {', '.join(AGENTS)}")
        return self


class Sweep(NamedTuple):
    """A sweep, resolved to an experiment.

    Attributes
    ----------
    name
        Its own name.
    spec
        A row for each environment, algorithm and combination of options.
    first_seed, seeds
        The seeds of each row.
    """

    name: str
    spec: Experiment
    first_seed: int
    seeds: int

    @property
    def rows(self) -> tuple[str, ...]:
        """The ids of all rows."""
        return tuple(row.id for row in self.spec.rows)


def load(path: Path, *, steps: int | None = None) -> Sweep:
    """Read a sweep from a file; ``steps`` replaces those of the file, all of them."""
    return resolve_sweep(read_toml(path), path.name, name=path.stem, steps=steps)


def resolve_sweep(data: Json, source: str, *, name: str = NAME, steps: int | None = None) -> Sweep:
    """Turn the content of a file into a sweep.

    Raises
    ------
    SpecError
        If a key is unknown, or an option cannot be; the message names the row.
    """
    try:
        read = _Source.model_validate({"name": name, **data})
    except ValidationError as error:
        raise spec_error(error, source) from error
    _check_groups(read, source)
    rows = list(_rows(read, source, steps))
    for row in rows:
        _check_options(row, source)
    spec = resolve(
        {
            "name": NAME,
            "seeds_per_unit": read.seeds_per_unit,
            "measure": {"kind": "outcome", **read.measure},
            "rows": rows,
        },
        source,
    )
    measure.check(spec, [row.id for row in spec.rows])
    return Sweep(read.name, spec, read.first_seed, read.seeds)


def check_environments(sweep: Sweep) -> None:
    """Make every environment once, and every row's learner, so that what cannot be is said now.

    Raises
    ------
    SpecError
        With the row's id, and what is wrong with it.
    """
    made: dict[str, AgentEnvironment] = {}
    for row in sweep.spec.rows:
        key = json.dumps([row.env, row.env_options], sort_keys=True)
        kind = agent_type(row.algorithm)
        options = parse(kind.options_type, row.options, row.id)
        try:
            if key not in made:
                made[key] = AgentEnvironment(row.env, row.env_options, "auto", 1)
            learner = kind.build(made[key].task, options)
            settings.settings_of(options, learner, min(sweep.seeds, sweep.spec.seeds_per_unit))
        except (ValueError, TypeError, RuntimeError, ImportError, MemoryError) as error:
            raise SpecError(f"Row {row.id} ({row.env}, {row.label}): {error}") from error


def _rows(read: _Source, source: str, steps: int | None) -> Iterator[Json]:
    """Yield every row as :func:`valuetrack.experiments.spec.resolve` takes it."""
    count = 0
    for place, name in itertools.product(read.environments, read.algorithms):
        fixed = {**_layers(read.options, name), **_known(name, place.options)}
        fields = agent_type(name).options_type.model_fields
        for varied in _combinations(_grid_of(read, name, fixed, source)):
            task = Task(
                env=place.env,
                env_options=place.env_options,
                steps=steps or place.steps or read.steps,
                options=with_none({**fixed, **varied}, fields),
            )
            yield _row(name, task, varied)
            if (count := count + 1) > MOST_ROWS:
                raise SpecError(f"{source}: more than {MOST_ROWS:,} rows; make the grid smaller.")


def _row(algorithm: str, task: Task, varied: Json) -> Json:
    """Return a row whose id is made of what it is, so that a larger sweep has it again."""
    settled = [task.env, task.env_options, algorithm, task.options]
    text = json.dumps(settled, sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
    env = re.sub(r"[^a-z0-9]+", "-", task.env.lower()).strip("-")[:LETTERS].strip("-") or "env"
    label = ", ".join(
        [agent_type(algorithm).label, *(written_setting(*pair) for pair in varied.items())]
    )
    return {
        "id": f"{env}-{algorithm}-{digest}",
        "label": label,
        "algorithm": algorithm,
        **task.model_dump(),
    }


def _combinations(grid: dict[str, list[object]]) -> Iterator[Json]:
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _is_group(key: str, value: object) -> bool:
    return isinstance(value, dict) and (key in AGENTS or key in SHARED)


def _layers(table: Json, algorithm: str) -> Json:
    """Return what a table says to an algorithm, from general to specific."""
    kind = agent_type(algorithm)
    found = _known(algorithm, {k: v for k, v in table.items() if not _is_group(k, v)})
    if kind.is_sampler:
        found |= _known(algorithm, table.get("samplers", {}))
    return {**found, **table.get(algorithm, {})}


def _known(algorithm: str, options: Json) -> Json:
    """Leave out the options that an algorithm does not have; others in the sweep do."""
    fields = agent_type(algorithm).options_type.model_fields
    return {key: value for key, value in options.items() if key in fields}


def _grid_of(read: _Source, algorithm: str, fixed: Json, source: str) -> dict[str, list[object]]:
    """Return the values of each option that is varied."""
    grid = _layers(read.grid, algorithm)
    for key, values in grid.items():
        where = f"{source}: grid: {key}"
        if not isinstance(values, list) or not values:
            raise SpecError(f"{where} takes a list of values, not {values!r}.")
        written = [json.dumps(value, sort_keys=True, default=str) for value in values]
        if len(set(written)) < len(written):
            raise SpecError(f"{where} has a value twice.")
        if key in fixed:
            raise SpecError(f"{where} is in the options too; leave it out of one of them.")
    return grid


def _check_groups(read: _Source, source: str) -> None:
    """Refuse options that no algorithm of the sweep has, and tables for those it does not have."""
    tables = [("options", read.options), ("grid", read.grid)]
    tables += [(f"{place.env}: options", place.options) for place in read.environments]
    for name, table in tables:
        for key, value in table.items():
            if key in AGENTS and isinstance(value, dict):
                if key not in read.algorithms:
                    raise SpecError(f"{source}: {name}.{key}: the sweep does not run {key}.")
            elif key in SHARED and isinstance(value, dict):
                kinds = [k for k in read.algorithms if agent_type(k).is_sampler]
                for inner in value:
                    _check_known(inner, kinds, f"{source}: {name}.{key}")
            else:
                _check_known(key, read.algorithms, f"{source}: {name}")


def _check_known(key: str, algorithms: Sequence[str], where: str) -> None:
    if not any(_known(name, {key: None}) for name in algorithms):
        told = ", ".join(algorithms) or "there is no sampler"
        raise SpecError(f"{where}.{key}: no algorithm of the sweep has this option ({told}).")


def _check_options(row: Json, source: str) -> None:
    """Refuse options that cannot be, with the row they are of."""
    kind = agent_type(row["algorithm"])
    try:
        parse(kind.options_type, row["options"], kind.label)
    except ValueError as error:
        where = f"row {row['id']} ({row['env']}, {row['label']})"
        raise SpecError(f"{source}: {where}: {error}") from error
