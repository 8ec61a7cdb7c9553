"""The typed front door: ``src/valuetrack/__init__.pyi``, written from the registry.

Editors and type checkers read it in place of ``__init__.py``: every option of every agent, its type
and its default. A test keeps it equal to what the options say. To write it again::

    python -m valuetrack.commands.stub > src/valuetrack/__init__.pyi
"""

from __future__ import annotations

import inspect

from valuetrack.api.agent import AnyAgent
from valuetrack.api.signatures import written_type, written_value
from valuetrack.registry import CLASSES

HEAD = '''\
"""Deep reinforcement learning that knows how sure it is of its values.

Generated: ``python -m valuetrack.commands.stub > src/valuetrack/__init__.pyi``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from valuetrack import registry
from valuetrack.programs import keep_programs as keep_programs
from valuetrack.registry import load as load

__version__: str
'''


def stub() -> str:
    """Return the text of the stub."""
    return "\n".join([HEAD, "\n".join(map(_class, CLASSES.values()))])


def _class(kind: type[AnyAgent]) -> str:
    name = kind.__name__
    summary = (kind.__doc__ or "").split("\n", 1)[0]
    lines = [f"class {name}(registry.{name}):", f'    """{summary}"""', "", "    def __init__("]
    lines += ["        self,"]
    named = False
    for parameter in inspect.signature(kind).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not named:
            lines.append("        *,")
            named = True
        lines.append(f"        {_argument(parameter)},")
    return "\n".join([*lines, "    ) -> None: ...", ""])


def _argument(parameter: inspect.Parameter) -> str:
    written = f"{parameter.name}: {written_type(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return written
    return f"{written} = {written_value(parameter.default)}"


if __name__ == "__main__":
    print(stub(), end="")
