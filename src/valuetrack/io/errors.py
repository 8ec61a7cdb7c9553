"""Errors about files, each one sentence that says what is wrong and what to do."""

from __future__ import annotations

import os

ECHO = 80
"""How many characters of a file's content an error repeats."""
GAP = " ... "
"""Stands for the characters that it leaves out."""

StrPath = str | os.PathLike[str]


class StoreError(ValueError):
    """A run folder cannot be used as asked; the message says why and what to do."""


class ModelFileError(ValueError):
    """An array file cannot be written or read; the message says why and what to do.

    Attributes
    ----------
    problem
        What is wrong, without the file's name and without what to do.
    """

    problem: str = ""


def file_error(path: StrPath, problem: str, cure: str = "") -> ModelFileError:
    """Return the error that says in one sentence what is wrong with an array file.

    Examples
    --------
    >>> print(file_error("agent.vt", "is damaged: it is empty", "save the model again"))
    agent.vt is damaged: it is empty; save the model again.
    """
    sentence = f"{problem}; {cure}" if cure else problem
    end = "" if sentence.endswith("?") else "."
    error = ModelFileError(f"{shown(path)} {sentence}{end}")
    error.problem = problem
    return error


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
