"""What users give on the command line, read: modules, ``key=value`` pairs, observations."""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import os
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from valuetrack.types import Json, NDArray

Observations = NDArray | dict[str, NDArray] | tuple[NDArray, ...]
"""A batch of observations: of a Box or the like, of a Dict, of a Tuple."""


class ModuleFailedError(ValueError):
    """The code of a module that the user named does not run."""

    exit_code = 1


def import_modules(names: Sequence[str] | None) -> None:
    """Import modules, those in the working directory included, so that they register theirs."""
    here = os.getcwd()
    if names and here not in sys.path:
        sys.path.insert(0, here)
    for name in names or ():
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # whatever a module of the user's raises
            what = f"{type(error).__name__}: {error}".removesuffix(": ").removesuffix(".")
            # The package of a module that is not there may be missing instead of it.
            missing = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(
                f"{error.name}."
            )
            kind = ValueError if missing else ModuleFailedError
            raise kind(f"The module {name} cannot be imported: {what}.") from error


def assignments(pairs: Sequence[str] | None, option: str) -> Json:
    """Turn ``key=value`` into a dictionary.

    Values are JSON, or as Python writes them (``False``, ``None``, ``(64, 64)``), or else plain
    text.
    """
    found: Json = {}
    for pair in pairs or ():
        key, equals, text = map(str.strip, pair.partition("="))
        if not equals or not key:
            raise ValueError(f"{option} takes key=value, for instance discount=0.9, not {pair!r}.")
        if key in found:
            raise ValueError(f"{option} sets {key} twice.")
        found[key] = read_value(text)
    return found


def read_value(text: str) -> object:
    """Read a value as JSON or Python writes it; anything else is plain text."""
    for read in (json.loads, ast.literal_eval):  # which takes literals and runs nothing
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return read(text)
    return text


def read_observations(path: Path) -> Observations:
    """Read a batch of observations from a file of NumPy's, in a form that cannot hold code.

    An ``.npy`` file holds an array with a row for each observation. An ``.npz`` file holds one for
    each key of a Dict, or, where ``numpy.savez`` was given no names, for each part of a Tuple.
    """
    try:
        with open(path, "rb") as file:
            found = np.load(file, allow_pickle=False)
            arrays = {"": found} if isinstance(found, np.ndarray) else dict(found)
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError("There is something else in it.")
    except (ValueError, EOFError, MemoryError, NotImplementedError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is not an .npy file of numbers; write one with numpy.save."
        ) from error
    if not arrays or any(not array.ndim or not len(array) for array in arrays.values()):
        raise ValueError(f"{path} should hold an array of observations, one row each.")
    unnamed = [f"arr_{place}" for place in range(len(arrays))]
    if arrays.keys() == set(unnamed):
        return tuple(arrays[name] for name in unnamed)
    return found if isinstance(found, np.ndarray) else arrays
