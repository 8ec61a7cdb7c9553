"""Docstrings are written for ``help`` and Sphinx's roles; the site's pages are Markdown."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

MATHS = re.compile(r":math:`([^`]*)`")
ROLE = re.compile(r":(?:class|func|meth|attr|data|mod):`~?([^`]*)`")
BLOCK = re.compile(r"^( *)\.\. math::(.*(?:\n(?:\1 +\S.*| *(?=\n\1 +)))*)", re.MULTILINE)
SEVERAL = re.compile(r"^( *)(\w+(?:, \w+)+)\n((?:\1 +\S.*\n?|\s*\n(?=\1 +\S))+)", re.MULTILINE)
"""Several parameters that one text explains."""


def as_markdown(text: str) -> str:
    """Return a docstring with its roles and equations in Markdown.

    >>> as_markdown("see :func:`~valuetrack.posterior.mean` of :math:`x`")
    'see `mean` of $x$'
    """
    text = SEVERAL.sub(_one_by_one, text)
    text = BLOCK.sub(_equation, text)
    text = MATHS.sub(lambda found: "$" + " ".join(found.group(1).split()) + "$", text)
    return ROLE.sub(lambda found: f"`{found.group(1).rpartition('.')[2]}`", text)


def _equation(found: re.Match[str]) -> str:
    indent, body = found.groups()
    lines = textwrap.dedent(body.strip("\n")).strip().splitlines()
    inside = "\n".join(indent + line.strip() for line in lines if line.strip())
    return f"{indent}$$\n{inside}\n{indent}$$"


def _one_by_one(found: re.Match[str]) -> str:
    """Repeat the text for each parameter: the parser gives all of them the first one's type."""
    indent, names, body = found.groups()
    return "".join(f"{indent}{name}\n{body.rstrip()}\n" for name in names.split(", "))


class Markdown(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)
