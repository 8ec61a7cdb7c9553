"""Errors about files, each one sentence that says what is wrong and what to do."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Self

ECHO = 80
"""How many characters of a file's content an error repeats."""
GAP = " ... "
"""Stands for the characters that it leaves out."""

StrPath = str | os.PathLike[str]


class FileError(ValueError):
    """Something is wrong with a file; the message says what, and what to do.

    Attributes
    ----------
    problem
        What is wrong, without the file's name and without what to do.
    """

    problem: str = ""

    @classmethod
    def about(cls, path: StrPath, problem: str, cure: str = "") -> Self:
        """Return the error that says in one sentence what is wrong with a file.

        Examples
        --------
        >>> print(ModelFileError.about("agent.vt", "is damaged: it is empty", "save it again"))
        agent.vt is damaged: it is empty; save it again.
        """
        sentence = f"{problem}; {cure}" if cure else problem
        end = "" if sentence.endswith("?") else "."
        error = cls(f"{shown(path)} {sentence}{end}")
        error.problem = problem
        return error


class StoreError(FileError):
    """A run folder cannot be used as asked."""


class ModelFileError(FileError):
    """An array file cannot be written or read."""


file_error = ModelFileError.about


def check_format(
    kind: type[FileError], path: StrPath, version: int, known: int, again: str
) -> None:
    """Refuse a format other than the known one; ``again`` says how to replace an older file."""
    if version > known:
        problem = f"was written by a newer valuetrack in format {shortened(str(version))}"
        raise kind.about(path, problem, "update valuetrack")
    if version < known:
        problem = f"was written by an earlier development version of valuetrack (format {version})"
        raise kind.about(path, problem, again)


@contextlib.contextmanager
def reading(path: StrPath, cure: str = "check its permissions") -> Iterator[None]:
    """Turn what the system says against reading a file of a run folder into one sentence."""
    try:
        yield
    except OSError as error:
        raise StoreError.about(path, f"cannot be read: {reason(error)}", cure) from error


def shown(path: StrPath) -> str:
    """Return a file's name as it can be printed: without line breaks and escape sequences."""
    name = str(path)
    return name if name.isprintable() else repr(name)


def shortened(text: str, most: int = ECHO) -> str:
    """Return a text from a file as one line of at most ``most`` characters, cut in the middle.

    Examples
    --------
    >>> shortened("one two  three", 11)
    'one ... ree'
    """
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    half = (most - len(GAP)) // 2
    return f"{line[:half]}{GAP}{line[-half:]}"


def reason(error: OSError) -> str:
    """Return the system's own words for what went wrong."""
    return error.strerror or type(error).__name__
