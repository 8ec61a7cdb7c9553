"""``valuetrack envs`` and ``valuetrack algos``, and the docs page with all options."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterable, Iterator

import gymnasium
from gymnasium.envs.registration import EnvSpec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from valuetrack.api.agent import AnyAgent
from valuetrack.api.options import LARGEST_COUNT, Options
from valuetrack.commands.arguments import import_modules
from valuetrack.commands.options import Algos, Envs
from valuetrack.envs import ids_in_jax
from valuetrack.registry import AGENTS, agent_type
from valuetrack.types import Json

NEEDS = {"gymnasium.envs.box2d.": "Box2D", "gymnasium.envs.mujoco.": "mujoco"}
"""The packages without which environments of Gymnasium's cannot be made."""
CONTINUOUS = (
    "gymnasium.envs.box2d.bipedal_walker:",
    "gymnasium.envs.box2d.car_racing:",
    "gymnasium.envs.classic_control.continuous_mountain_car:",
    "gymnasium.envs.classic_control.pendulum:",
    "gymnasium.envs.mujoco.",
    "gymnasium.envs.phys2d.pendulum:",
)
"""Environments of Gymnasium's with continuous actions, unless their options say otherwise."""
TYPES = {"integer": "whole number", "boolean": "true or false", "null": "null"}
BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
"""Words of a JSON schema, and what they mean."""


def envs(given: Envs, console: Console) -> None:
    """List the registered environments, the compiled ones first."""
    import_modules(given.import_)
    table = Table("id", "trainer", title="Environments")
    in_jax = ids_in_jax()
    for name in in_jax:
        table.add_row(name, "compiled: in JAX, the whole training under one jit")
    table.add_section()
    for name in sorted(set(gymnasium.registry) - set(in_jax)):
        table.add_row(name, "; ".join(["host", *obstacles(gymnasium.registry[name])]))
    console.print(table)
    console.print("Discrete actions train, continuous ones do not; see which with gymnasium.make.")
    console.print("An environment of your own: --import the module that registers it.")


def obstacles(spec: EnvSpec) -> list[str]:
    """Return why an environment does not train, as far as can be told without making it."""
    entry = spec.entry_point
    if not isinstance(entry, str):
        # Gymnasium keeps the ids of what has left it, with a function that says where it is.
        gone = getattr(entry, "__name__", "").startswith("_raise_")
        return ["not part of Gymnasium any more"] if gone else []
    found = []
    if spec.kwargs.get("continuous", entry.startswith(CONTINUOUS)):
        found.append("continuous actions")
    needed = [package for start, package in NEEDS.items() if entry.startswith(start)]
    needed.append(entry.partition(":")[0].partition(".")[0])
    return found + [f"{name} is not installed" for name in needed if not _is_installed(name)]


def _is_installed(package: str) -> bool:
    """Return whether a package is there, without importing it."""
    return package in sys.modules or importlib.util.find_spec(package) is not None


def algos(given: Algos, console: Console) -> None:
    """List the algorithms, or all options of one with their defaults."""
    if given.name is None:
        table = Table("name", "what it is", "posterior", title="Algorithms")
        for key, kind in AGENTS.items():
            table.add_row(key, _summary(kind), "yes" if kind.is_sampler else "no")
        console.print(table)
        console.print("`valuetrack algos lktd` shows the options of one.")
        return
    kind = agent_type(given.name)
    title = f"Options of {kind.__name__}, for --set and as keyword arguments"
    table = Table("option", "default", "allowed", title=title)
    for cells in _rows(kind.options_type):
        table.add_row(*map(escape, cells))
    console.print(table)
    console.print((kind.options_type.__doc__ or "").strip(), markup=False, highlight=False)


PAGE = """\
# Options of every algorithm

Options are keyword arguments of the classes, `--set KEY=VALUE` on the command line, and `options`
in experiment files. `valuetrack algos lktd` and `help(agent.options)` also say what each one means.

This page is generated from the registry, and a test keeps the two equal. To write it again:

```bash
python -c "from valuetrack.commands.lists import options_page as p; print(p())" > docs/options.md
```
"""


def options_page() -> str:
    """Return ``docs/options.md``: first what all algorithms share, then what each one adds."""
    shared = list(_rows(Options))
    page = [PAGE, "## All algorithms", "", *_markdown(shared)]
    for kind in AGENTS.values():
        own = [row for row in _rows(kind.options_type) if row not in shared]
        page += ["", f"## {kind.label}", "", f"`vt.{kind.__name__}`, `--algo {kind.name}`."]
        page += [f"{_summary(kind)}.", "", *_markdown(own)]
    return "\n".join(page)


def _markdown(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return the lines of a table of options in Markdown."""
    lines = [f"| `{name}` | `{default}` | {allowed} |" for name, default, allowed in rows]
    return ["| option | default | allowed |", "|---|---|---|", *lines]


def _rows(options: type[Options]) -> Iterator[tuple[str, str, str]]:
    """Yield name, default and allowed values of each option."""
    allowed = options.model_json_schema()["properties"]
    for name, field in options.model_fields.items():
        yield name, json.dumps(field.default), values_of(allowed[name])


def _summary(kind: type[AnyAgent]) -> str:
    """Return the first line of a class's docstring, without its full stop."""
    return (kind.__doc__ or "").split("\n", 1)[0].split(";")[0].rstrip(".")


def values_of(schema: Json) -> str:
    """Say in words what a JSON schema allows."""
    if "anyOf" in schema:
        return " or ".join(values_of(part) for part in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    if "oneOf" in schema:
        return "a schedule"
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        each = schema.get("items") or schema["prefixItems"][0]
        return f"[{values_of(each)}, ...]"
    limits = {sign: schema.get(word, LARGEST_COUNT) for word, sign in BOUNDS.items()}
    bounds = [f"{sign} {limit:g}" for sign, limit in limits.items() if limit != LARGEST_COUNT]
    return " ".join([TYPES.get(kind, kind), " and ".join(bounds)]).strip()
