"""``valuetrack envs`` and ``valuetrack algos``: what can be named."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium
from rich.console import Console
from rich.table import Table

from valuetrack.algorithms import ALGORITHMS
from valuetrack.commands.train import algorithm_type, import_modules
from valuetrack.envs import IN_JAX


def envs(imports: Sequence[str], console: Console) -> None:
    """List the registered environments, the compiled ones first."""
    import_modules(imports)
    table = Table(title="Environments")
    table.add_column("id")
    table.add_column("trainer")
    for name in sorted(IN_JAX):
        table.add_row(name, "compiled: in JAX, the whole training under one jit")
    table.add_section()
    for name in sorted(set(gymnasium.registry) - set(IN_JAX)):
        table.add_row(name, "host")
    console.print(table)
    console.print("An environment of your own: --import the module that registers it.")


def algos(name: str | None, console: Console) -> None:
    """List the algorithms, or all options of one with their defaults."""
    if name is None:
        table = Table(title="Algorithms")
        table.add_column("name")
        table.add_column("what it is")
        table.add_column("posterior")
        for key, kind in ALGORITHMS.items():
            summary = (kind.__doc__ or "").split("\n", 1)[0].split(";")[0].rstrip(".")
            table.add_row(key, summary, "yes" if kind.is_sampler else "no")
        console.print(table)
        console.print("`valuetrack algos lktd` shows the options of one.")
        return
    kind = algorithm_type(name)
    table = Table(title=f"Options of {kind.__name__}, for --set and as keyword arguments")
    table.add_column("option")
    table.add_column("default")
    for key, field in kind.options_type.model_fields.items():
        table.add_row(key, repr(field.default))
    console.print(table)
