"""Deep reinforcement learning that knows how sure it is of its values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from valuetrack.programs import keep_programs

if TYPE_CHECKING:
    from valuetrack.algorithms import DQN, KOVA, LKTD, QRDQN, SGHMC, SGLD, BootDQN, load

__version__ = "0.1.0.dev0"

LOADED_LATER = ("DQN", "KOVA", "LKTD", "QRDQN", "SGHMC", "SGLD", "BootDQN", "load")

__all__ = [
    "DQN",
    "KOVA",
    "LKTD",
    "QRDQN",
    "SGHMC",
    "SGLD",
    "BootDQN",
    "__version__",
    "keep_programs",
    "load",
]


def __getattr__(name: str) -> Any:
    """Import the classes when they are first asked for: the command line's help needs none."""
    if name in LOADED_LATER:
        from valuetrack import algorithms  # noqa: PLC0415 - that is the point

        return getattr(algorithms, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
