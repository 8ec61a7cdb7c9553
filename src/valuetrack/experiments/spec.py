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

``extends = "indoor-escape"`` takes over all that the file does not say from another experiment,
table by table; rows and the quick run are always its own.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from valuetrack.api.options import Count
from valuetrack.api.options import parse as parse_options
from valuetrack.registry import AGENTS, agent_type

Identifier = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
DEFAULT_PRESET = "reference"


class SpecError(ValueError):
    """A specification cannot be used; the message says where and why."""


class Section(BaseModel):
    """A part of a specification, in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Row(Section):
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
    env: str
    env_options: dict[str, Any] = {}
    steps: Count
    options: dict[str, Any] = {}

    @model_validator(mode="after")
    def _options_exist(self) -> Row:
        parse_options(agent_type(self.algorithm).options_type, self.options, self.id)
        return self


class Task(Section):
    """Where a row is trained, for how long, and the options that belong to the task."""

    env: str
    env_options: dict[str, Any] = {}
    steps: Count
    options: dict[str, Any] = {}


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
    measure: dict[str, Any]
    seeds_per_unit: Count
    rows: tuple[Row, ...]
    quick: Quick | None = None

    @model_validator(mode="after")
    def _ids_differ(self) -> Experiment:
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


class _Source(Section):
    """An experiment as its file has it."""

    name: Identifier
    env: str | None = None
    env_options: dict[str, Any] = {}
    steps: Count | None = None
    seeds_per_unit: Count = 5
    exploration_fraction: Annotated[float, Field(ge=0, le=1)] | None = None
    measure: dict[str, Any]
    options: dict[str, dict[str, Any]] = {}
    presets: dict[str, dict[str, dict[str, Any]]] = {}
    quick: Quick | None = None
    tasks: dict[Identifier, Task] = {}
    rows: tuple[dict[str, Any], ...]


def resolve(
    data: Mapping[str, Any],
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
        read = _Source.model_validate(data)
        presets = read.presets or {DEFAULT_PRESET: {}}
        if preset not in presets:
            raise SpecError(
                f"{read.name} has no preset {preset!r}; there are {', '.join(presets)}."
            )
        for layer in (read.options, *presets.values()):
            _check_groups(layer, source)
        layers = (read.options, presets[preset])
        rows = [
            _row(read, *each, layers, steps) for row in read.rows for each in _by_task(read, row)
        ]
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


def _by_task(read: _Source, row: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return a row for each of its tasks, and that task's options; or the row as it is."""
    if "tasks" not in row:
        return [(row, {})]
    names, id = row["tasks"], row.get("id")
    if not isinstance(names, list) or not set(map(str, names)) <= read.tasks.keys():
        known = ", ".join(read.tasks) or "none"
        raise SpecError(f"The tasks of row {id!r} are a list of those in the file: {known}.")
    own = {key: value for key, value in row.items() if key != "tasks"}
    found = []
    for name in names:
        task = read.tasks[name].model_dump()
        options = task.pop("options")
        found.append(({**task, **own, "id": f"{name}-{id}"}, options))
    return found


def _row(
    read: _Source,
    row: dict[str, Any],
    of_task: dict[str, Any],
    layers: tuple[Mapping[str, Mapping[str, Any]], ...],
    steps: int | None,
) -> dict[str, Any]:
    """Return a row with what it shares with others filled in."""
    name = row.get("algorithm")
    kind = AGENTS.get(name) if isinstance(name, str) else None
    known: Mapping[str, FieldInfo] = {} if kind is None else kind.options_type.model_fields
    groups = ("all", *(["samplers"] if kind is not None and kind.is_sampler else []), str(name))
    options: dict[str, Any] = {}
    for layer in layers:
        for group in groups:
            # What many share may be nothing to one of them; what is its own must exist.
            found = layer.get(group, {})
            options |= {k: v for k, v in found.items() if group == name or k in known}
    options |= of_task
    own = row.get("options", {})
    taken = steps or row.get("steps", read.steps)
    if read.exploration_fraction is not None and isinstance(taken, int):
        options["exploration_steps"] = int(read.exploration_fraction * taken)
    return {
        "env": read.env,
        "env_options": read.env_options,
        **row,
        "steps": taken,
        "options": _with_none({**options, **own}, known) if isinstance(own, dict) else own,
    }


def _with_none(options: dict[str, Any], fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """Read ``"none"`` as None where an option may be None, for which TOML has no word."""
    return {
        key: None
        if value == "none" and key in fields and NoneType in get_args(fields[key].annotation)
        else value
        for key, value in options.items()
    }


def _check_groups(layer: Mapping[str, Mapping[str, Any]], source: str) -> None:
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


def _label(row: Mapping[str, Any], rows: list[dict[str, Any]]) -> str:
    """Return an algorithm's name, and what sets the row apart from the first of its kind."""
    kind = (row.get("algorithm"), row.get("env"))
    first = next(other for other in rows if (other.get("algorithm"), other.get("env")) == kind)
    if not all(isinstance(found["options"], dict) for found in (row, first)):
        return ""  # of no use, as such a row is refused
    own = [
        f"{key} = {value:g}" if isinstance(value, float) else f"{key} = {value}"
        for key, value in row["options"].items()
        if first["options"].get(key) != value
    ]
    name = str(row.get("algorithm"))
    return ", ".join([AGENTS[name].label if name in AGENTS else name, *own])


def from_manifest(manifest: Mapping[str, Any]) -> Experiment:
    """Return the experiment that a run was made with."""
    try:
        return Experiment.model_validate(manifest["spec"])
    except ValidationError as error:
        raise spec_error(error, "manifest.json") from error


def spec_error(error: ValidationError, source: str) -> SpecError:
    """Say in one sentence what is wrong first with a specification."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"])) or "the file"
    what = "unknown key" if first["type"] == "extra_forbidden" else first["msg"]
    return SpecError(f"{source}: {where}: {what.removeprefix('Value error, ')}.")


def experiment_names() -> list[str]:
    """Return the experiments that come with the library."""
    return sorted(path.stem.replace("_", "-") for path in specs_folder().glob("*.toml"))


def load(name: str, **choices: Any) -> Experiment:
    """Read one of the experiments that come with the library, for instance ``indoor-escape``.

    ``choices`` are those of :func:`resolve`.
    """
    return resolve(read_experiment(name), f"{name.replace('-', '_')}.toml", **choices)


def read_experiment(name: str) -> dict[str, Any]:
    """Return the content of an experiment's file."""
    if name not in experiment_names():
        known = ", ".join(experiment_names())
        raise SpecError(f"There is no experiment {name!r}; there are {known}.")
    own = read_toml(specs_folder() / f"{name.replace('-', '_')}.toml")
    base = own.pop("extends", None)
    return own if base is None else _merged(read_experiment(base), own)


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of both files, key by key those of the second where it has one."""
    kept = {key: value for key, value in base.items() if key not in ("rows", "quick")}
    return {**kept, **{key: _over(kept.get(key), value) for key, value in own.items()}}


def _over(below: Any, above: Any) -> Any:
    """Lay one table over another, at every depth."""
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
        return above
    return {**below, **{key: _over(below.get(key), value) for key, value in above.items()}}


def read_toml(path: Path) -> dict[str, Any]:
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
