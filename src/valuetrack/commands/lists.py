"""``valuetrack envs`` and ``valuetrack algos``: what can be named."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from valuetrack.api.options import LARGEST_COUNT
from valuetrack.commands.train import import_modules
from valuetrack.envs import ids_in_jax
from valuetrack.registry import AGENTS, agent_type

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


def envs(imports: Sequence[str], console: Console) -> None:
    """List the registered environments, the compiled ones first."""
    import_modules(imports)
    table = Table(title="Environments")
    table.add_column("id")
    table.add_column("trainer")
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


def algos(name: str | None, console: Console) -> None:
    """List the algorithms, or all options of one with their defaults."""
    if name is None:
        table = Table(title="Algorithms")
        table.add_column("name")
        table.add_column("what it is")
        table.add_column("posterior")
        for key, kind in AGENTS.items():
            summary = (kind.__doc__ or "").split("\n", 1)[0].split(";")[0].rstrip(".")
            table.add_row(key, summary, "yes" if kind.is_sampler else "no")
        console.print(table)
        console.print("`valuetrack algos lktd` shows the options of one.")
        return
    kind = agent_type(name)
    table = Table(title=f"Options of {kind.__name__}, for --set and as keyword arguments")
    for column in ("option", "default", "allowed"):
        table.add_column(column)
    allowed = kind.options_type.model_json_schema()["properties"]
    for key, field in kind.options_type.model_fields.items():
        table.add_row(key, *map(escape, (json.dumps(field.default), values_of(allowed[key]))))
    console.print(table)
    console.print((kind.options_type.__doc__ or "").strip(), markup=False, highlight=False)


def values_of(schema: Mapping[str, Any]) -> str:
    """Say in words what a JSON schema allows."""
    if "anyOf" in schema:
        return " or ".join(values_of(part) for part in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(schema["enum"])
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        each = schema.get("items") or schema["prefixItems"][0]
        return f"[{values_of(each)}, ...]"
    known = {
        word: schema[word] for word in BOUNDS if schema.get(word, LARGEST_COUNT) != LARGEST_COUNT
    }
    bounds = [f"{BOUNDS[word]} {bound:g}" for word, bound in known.items()]
    return " ".join([TYPES.get(kind, kind), " and ".join(bounds)]).strip()
