"""Deep reinforcement learning that knows how sure it is of its values.

Editors and type checkers read ``__init__.pyi``, which ``commands/stub.py`` writes.
"""

from __future__ import annotations

from typing import Any

from valuetrack.programs import keep_programs

__version__ = "0.1.0.dev0"


def __getattr__(name: str) -> Any:
    """Import agents and ``load`` when they are first asked for: ``--help`` needs none of them."""
    if name == "load" or name[:1].isupper():
        import valuetrack.registry as registry  # noqa: PLC0415, PLR0402 - that is the point

        if name == "load" or name in {kind.__name__ for kind in registry.CLASSES.values()}:
            return getattr(registry, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the agents too, so that interpreters complete them."""
    import valuetrack.registry as registry  # noqa: PLC0415, PLR0402 - as above

    return [*__all__, "load", *(kind.__name__ for kind in registry.CLASSES.values())]


__all__ = ["__version__", "keep_programs"]
