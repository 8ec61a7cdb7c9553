"""What a node is told about a unit, as JSON, and what must be the same there as here."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TypedDict

from valuetrack import __version__
from valuetrack.experiments.units import Unit

SAME = ("jax", "jaxlib", "numpy")
"""The packages whose version decides about rounding."""


class Order(TypedDict):
    """One unit for one process; see :func:`valuetrack.experiments.nodes.program.main`."""

    folder: str | None
    """The run's folder, if the node sees it; otherwise it makes one of its own."""
    manifest: str
    """The text of its manifest, for a node that does not see it."""
    unit: Unit
    cpus: int
    imports: list[str]
    checkpoint_seconds: float
    versions: dict[str, str]
    variables: dict[str, str]


class UnequalError(RuntimeError):
    """A node has other software than the machine that sent the order."""


@cache
def versions() -> dict[str, str]:
    """Return what must be the same on every node, for the same bits."""
    found = {name: metadata.version(name) for name in SAME}
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, **found, "valuetrack": __version__, "source": _source()}


def check_versions(wanted: Mapping[str, str]) -> None:
    """Refuse to compute with other software than the one that sent the order."""
    for name, there in wanted.items():
        here = versions().get(name)
        if here == there:
            continue
        node = platform.node()
        if name == "source":
            told = f"The node {node} has valuetrack {__version__} with other source code"
        else:
            told = f"The node {node} has {name} {here}, and the command runs with {there}"
        raise UnequalError(f"{told}; install the same on every node.")


def _source() -> str:
    """Return a checksum of the package's source: two trees may have the same version."""
    root, found = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(path.relative_to(root).as_posix().encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]
