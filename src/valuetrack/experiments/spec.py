"""The specification of an experiment, read from TOML; an unknown key is an error.

::

    name = "my-experiment"
    env = "CartPole-v1"            # of all rows that name none
    steps = 100_000
    seeds_per_unit = 5             # trained side by side, in one process

    [measure]
    kind = "control"               # what is recorded: experiments/measure/
    points = 100

    [options.all]                  # of all rows; also [options.samplers] and [options.<algorithm>]
    discount = 0.99

    [presets.paper.lktd]           # options that a preset replaces, likewise
    gradient = "full"

    [[rows]]
    id = "lktd-small-step"
    algorithm = "lktd"
    options = { step_size = 1e-5 }

A row for each of several tasks, here ``cartpole-sarsa`` and ``acrobot-sarsa``::

    [tasks.cartpole]
    env = "CartPole-v1"
    steps = 100_000
    options = { batch_size = 64 }

    [tasks.acrobot]
    env = "Acrobot-v1"
    steps = 100_000
    options = { batch_size = 128 }

    [[rows]]
    id = "sarsa"
    tasks = ["cartpole", "acrobot"]
    algorithm = "lktd"
    options = { form = "sarsa" }

A task may have options for some algorithms alone, closer to a row than those of the file, and
``like`` takes over all that it does not say from another task, table by table::

    [tasks.cartpole.options_of.samplers]
    prior_sd = 1.0

    [tasks.long-cartpole]
    like = "cartpole"
    steps = 1_000_000

``extends = "indoor-escape"`` takes over all that the file does not say from another experiment,
table by table; rows and the quick run are always its own.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from valuetrack.api.options import Count
from valuetrack.api.options import parse as parse_options
from valuetrack.experiments import overlay
from valuetrack.registry import AGENTS, agent_type
from valuetrack.types import Json

Identifier = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
Layer = dict[str, Json]
"""Options by the group of algorithms that they are for: all, samplers, or one by its name."""
DEFAULT_PRESET = "reference"


class SpecError(ValueError):
    """A specification cannot be used; the message says where and why."""


class Section(BaseModel):
    """A part of a specification, in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Task(Section):
    """Where a row is trained, for how long, and the options that belong to the task."""

    env: str
    env_options: Json = {}
    steps: Count
    options: Json = {}


class _SourceTask(Task):
    """A task as its file has it, also with options for some algorithms alone."""

    options_of: Layer = {}


class Row(Task):
    """One row of the tables: an algorithm in an environment.

    Attributes
    ----------
    id, label
        Its name in files, and the one for readers.
    algorithm, options
        Who learns, with all options that differ from the algorithm's defaults.
    env, env_options, steps
        Where, and for how many environment steps per seed.
    """

    id: Identifier
    label: str
    algorithm: str

    @model_validator(mode="after")
    def _options_exist(self) -> Self:
        parse_options(agent_type(self.algorithm).options_type, self.options, self.id)
        return self


class Quick(Section):
    """The run that gives a first look."""

    rows: tuple[str, ...]
    seeds: Count
    steps: Count
    seeds_per_unit: Count | None = None


class Experiment(Section):
    """A whole experiment, with everything resolved: presets, common options, labels.

    Attributes
    ----------
    name
        Its name, on the command line too.
    measure
        What is recorded: its ``kind`` and the options of that.
    seeds_per_unit
        How many seeds are trained side by side. It is data and not a matter of the machine, so
        that a run has the same units, and the same bits, wherever it is made.
    rows, quick
        All rows, and the quick run of some of them.
    """

    name: Identifier
    measure: Json
    seeds_per_unit: Count
    rows: tuple[Row, ...]
    quick: Quick | None = None

    @model_validator(mode="after")
    def _ids_differ(self) -> Self:
        ids = [row.id for row in self.rows]
        if twice := sorted({row_id for row_id in ids if ids.count(row_id) > 1}):
            raise ValueError(f"two rows have the id {twice[0]!r}")
        return self

    def row(self, row_id: str) -> Row:
        """Return a row by its id."""
        for row in self.rows:
            if row.id == row_id:
                return row
        known = ", ".join(row.id for row in self.rows)
        raise SpecError(f"There is no row {row_id!r} in {self.name}; there are {known}.")

    def hash(self) -> str:
        """Return a fingerprint of all that decides a row's numbers."""
        data = self.model_dump(mode="json", exclude={"quick"})
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


class _SourceRow(Section):
    """A row as its file has it, where it may stand for several tasks."""

    id: Identifier
    label: str | None = None
    algorithm: str
    tasks: object = None
    env: str | None = None
    env_options: Json = {}
    steps: Count | None = None
    options: Json = {}

    @model_validator(mode="after")
    def _algorithm_exists(self) -> Self:
        agent_type(self.algorithm)
        return self


class _Source(Section):
    """An experiment as its file has it."""

    name: Identifier
    env: str | None = None
    env_options: Json = {}
    steps: Count | None = None
    seeds_per_unit: Count = 5
    exploration_fraction: Annotated[float, Field(ge=0, le=1)] | None = None
    measure: Json
    options: Layer = {}
    presets: dict[str, Layer] = {}
    quick: Quick | None = None
    tasks: dict[Identifier, _SourceTask] = {}
    rows: tuple[_SourceRow, ...]


def resolve(
    data: Json,
    source: str,
    *,
    preset: str = DEFAULT_PRESET,
    steps: int | None = None,
    seeds_per_unit: int | None = None,
) -> Experiment:
    """Turn the content of a file into an experiment.

    Parameters
    ----------
    data, source
        The content, and the file's name for messages.
    preset
        Which of the file's presets to take.
    steps, seeds_per_unit
        Replace those of the file.
    """
    try:
        read = _Source.model_validate(overlay.tasks_like_others(data))
        presets = read.presets or {DEFAULT_PRESET: {}}
        if preset not in presets:
            known = ", ".join(presets)
            raise SpecError(f"{read.name} has no preset {preset!r}; there are {known}.")
        of_tasks = (task.options_of for task in read.tasks.values())
        for layer in (read.options, *presets.values(), *of_tasks):
            _check_groups(layer, source)
        layers = (read.options, presets[preset])
        rows = [resolved for row in read.rows for resolved in _rows(read, row, layers, steps)]
        return Experiment.model_validate(
            {
                "name": read.name,
                "measure": read.measure,
                "seeds_per_unit": seeds_per_unit or read.seeds_per_unit,
                "rows": [{"label": _label(row, rows), **row} for row in rows],
                "quick": read.quick,
            }
        )
    except ValidationError as error:
        raise spec_error(error, source) from error
    except overlay.UnknownTaskError as error:
        raise SpecError(f"{source}: {error}") from error


def _rows(
    read: _Source, row: _SourceRow, layers: tuple[Layer, ...], steps: int | None
) -> Iterator[Json]:
    """Yield a row for each of its tasks, with what it shares with others filled in."""
    shared = _shared_options(row.algorithm, layers)
    fields = agent_type(row.algorithm).options_type.model_fields
    own = row.model_dump(exclude={"tasks"}, exclude_unset=True)
    for name, task in _tasks(read, row):
        closer = _shared_options(row.algorithm, (task.pop("options_of"),))
        found = {**task, **own, "id": f"{name}-{row.id}" if name else row.id}
        found["steps"] = taken = steps or found["steps"]
        options = {**shared, **task["options"], **closer}
        if read.exploration_fraction is not None and taken is not None:
            options["exploration_steps"] = int(read.exploration_fraction * taken)
        yield {**found, "options": with_none({**options, **row.options}, fields)}


def _tasks(read: _Source, row: _SourceRow) -> list[tuple[str, Json]]:
    """Return the tasks of a row with their names, or what the file says for all rows."""
    if row.tasks is None:
        task = read.model_dump(include={"env", "env_options", "steps"})
        return [("", {**task, "options": {}, "options_of": {}})]
    if not isinstance(row.tasks, list) or not set(map(str, row.tasks)) <= read.tasks.keys():
        known = ", ".join(read.tasks) or "none"
        raise SpecError(f"The tasks of row {row.id!r} are a list of those in the file: {known}.")
    return [(name, read.tasks[name].model_dump()) for name in map(str, row.tasks)]


def _shared_options(algorithm: str, layers: tuple[Layer, ...]) -> Json:
    """Return the options that all rows of an algorithm share, from general to specific."""
    kind, options = agent_type(algorithm), Json()
    groups = ("all", *(["samplers"] if kind.is_sampler else []), algorithm)
    for found, group in ((layer.get(group, {}), group) for layer in layers for group in groups):
        # What many share may be nothing to one of them; what is its own must exist.
        known = found if group == algorithm else kind.options_type.model_fields
        options |= {key: value for key, value in found.items() if key in known}
    return options


def with_none(options: Json, fields: Mapping[str, FieldInfo]) -> Json:
    """Read ``"none"`` as None where an option may be None, for which TOML has no word."""

    def may_be_none(key: str) -> bool:
        return key in fields and NoneType in get_args(fields[key].annotation)

    return {k: None if v == "none" and may_be_none(k) else v for k, v in options.items()}


def _check_groups(layer: Layer, source: str) -> None:
    """Refuse tables of options that belong to nobody, and options that nobody in a group has."""
    for group, options in layer.items():
        if group in AGENTS:
            continue
        if group not in ("all", "samplers"):
            known = ", ".join(["all", "samplers", *AGENTS])
            raise SpecError(f"{source}: there are no options of {group!r}, only of {known}.")
        kinds = [kind for kind in AGENTS.values() if group == "all" or kind.is_sampler]
        for key in options:
            if not any(key in kind.options_type.model_fields for kind in kinds):
                raise SpecError(f"{source}: options.{group}.{key}: no algorithm has this option.")


def _label(row: Json, rows: list[Json]) -> str:
    """Return an algorithm's name, and what sets the row apart from the first of its kind."""
    kind = (row["algorithm"], row["env"])
    first = next(other for other in rows if (other["algorithm"], other["env"]) == kind)
    own = [
        f"{key} = {value:g}" if isinstance(value, float) else f"{key} = {value}"
        for key, value in row["options"].items()
        if first["options"].get(key) != value
    ]
    return ", ".join([agent_type(row["algorithm"]).label, *own])


def from_manifest(manifest: Json) -> Experiment:
    """Return the experiment that a run was made with."""
    try:
        return Experiment.model_validate(manifest["spec"])
    except ValidationError as error:
        raise spec_error(error, "manifest.json") from error


def spec_error(error: ValidationError, source: str) -> SpecError:
    """Say in one sentence what is wrong first with a specification."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"])) or "the file"
    words = {"extra_forbidden": "unknown key", "model_type": "Input should be a valid dictionary"}
    what = words.get(first["type"], first["msg"])
    return SpecError(f"{source}: {where}: {what.removeprefix('Value error, ')}.")


def experiment_names() -> list[str]:
    """Return the experiments that come with the library."""
    return sorted(path.stem.replace("_", "-") for path in specs_folder().glob("*.toml"))


def load(name: str, **choices: Any) -> Experiment:
    """Read one of the experiments that come with the library, for instance ``indoor-escape``.

    ``choices`` are those of :func:`resolve`.
    """
    return resolve(read_experiment(name), f"{name.replace('-', '_')}.toml", **choices)


def read_experiment(name: str) -> Json:
    """Return the content of an experiment's file, with what it takes over from another."""
    if name not in experiment_names():
        known = ", ".join(experiment_names())
        raise SpecError(f"There is no experiment {name!r}; there are {known}.")
    own = read_toml(specs_folder() / f"{name.replace('-', '_')}.toml")
    base = read_experiment(own.pop("extends")) if "extends" in own else {}
    return overlay.over({key: base[key] for key in base if key not in ("rows", "quick")}, own)


def read_toml(path: Path) -> Json:
    """Read a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SpecError(f"There is no file {path}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} is not valid TOML: {error}.") from error


def specs_folder() -> Path:
    """Return the folder of the TOML files: beside this file if installed, else the repository's."""
    here = Path(__file__).resolve().parent
    installed = here / "specs"
    return installed if installed.is_dir() else here.parents[2] / "experiments"
