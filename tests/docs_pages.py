"""The pages of the documentation, and what is written in their blocks of code.

The convention, which CONTRIBUTING.md tells writers:

- Python blocks of a page run one after the other in one namespace, in an empty folder. ``vt`` and
  ``np`` are there. What else a reader would have by then stands in a comment that pages do not
  show, ``<!-- first: ... -->``, and runs in its place.
- ``<!-- not run: why -->`` in the line above a block excuses it.
- Trainings are cut short, and networks are small where a block does not say how large.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = {
    str(page.relative_to(ROOT)): page.read_text(encoding="utf-8")
    for page in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
}
"""Name -> text."""
_BLOCK = re.compile(
    r"<!-- first:\n(?P<first>.*?)-->"
    r"|(?P<excuse><!-- not run: [^>]+ -->\n+ *)?(?<!`)```(?P<language>\w*)\n(?P<code>.*?)```",
    flags=re.DOTALL,
)


class Block(NamedTuple):
    """Code on a page."""

    language: str
    code: str
    line: int
    excused: bool


def blocks(text: str, language: str) -> Iterator[Block]:
    """Yield the blocks of a language; what is to run first comes as Python."""
    for found in _BLOCK.finditer(text):
        kind = found["language"] if found["first"] is None else "python"
        code = found["code"] if found["first"] is None else found["first"]
        if kind == language:
            start = found.start("code") if found["first"] is None else found.start("first")
            line = text.count("\n", 0, start)
            yield Block(kind, code, line, found["excuse"] is not None)


def python_of(text: str, name: str) -> list[object]:
    """Return the Python blocks of a page that are to run, compiled, with the page's own lines."""
    return [
        compile("\n" * block.line + _dedented(block.code), name, "exec")
        for block in blocks(text, "python")
        if not block.excused
    ]


def commands_of(text: str) -> list[str]:
    """Return the command lines of a page, without comments and with continued lines joined."""
    found = []
    for block in blocks(text, "bash"):
        if not block.excused:
            lines = _dedented(block.code).replace("\\\n", " ").splitlines()
            found += [line.partition(" #")[0].strip() for line in lines]
    return [line for line in found if line and not line.startswith("#")]


def _dedented(code: str) -> str:
    indent = min(len(line) - len(line.lstrip()) for line in code.splitlines() if line.strip())
    return "\n".join(line[indent:] for line in code.splitlines()) + "\n"
