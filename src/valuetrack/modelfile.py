"""One file a model: arrays, and a description of them in JSON.

The file is a safetensors file: a header in JSON, then the arrays' bytes. Its metadata holds one
entry, ``valuetrack``, a JSON document ``{"format": 1, "description": {...}}``. Nothing in such a
file can become code, and every reader of safetensors can read the arrays.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import safetensors.numpy
from safetensors import SafetensorError, deserialize

from valuetrack.files import write_atomically

FORMAT = 1
"""The layout of the JSON document; a file with a higher number is of a newer valuetrack."""

METADATA = "valuetrack"

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "U16": np.dtype(np.uint16),
    "U32": np.dtype(np.uint32),
    "U64": np.dtype(np.uint64),
    "I8": np.dtype(np.int8),
    "I16": np.dtype(np.int16),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
    "BF16": np.dtype(jnp.bfloat16),
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
}
"""The dtypes of a model's arrays, by their names in the file."""

FOREIGN = {
    b"PK\x03\x04": "a zip archive, as NumPy and PyTorch write them",
    b"PK\x05\x06": "a zip archive, as NumPy and PyTorch write them",
    b"\x80": "a pickle, as PyTorch and joblib write them",
    b"\x93NUMPY": "an array of NumPy's",
    b"\x89HDF": "an HDF5 file",
}
"""How files begin that are easily taken for models, and what they are."""

LENGTH_BYTES = 8
"""The file begins with the length of its header as an unsigned integer, little end first."""

HEADER_LIMIT = 100_000_000
"""The longest header in bytes that safetensors reads."""

ECHO = 80
"""How many characters of a file an error repeats."""

CUT = " ... "
"""What stands for the characters that it does not."""


class ModelFileError(ValueError):
    """A model's file cannot be written or read; the message says why and what to do."""


def save(
    path: str | os.PathLike[str],
    arrays: Mapping[str, npt.NDArray[Any]],
    description: Mapping[str, Any],
) -> None:
    """Write a model's file; one that is there already stays whole until the new one is.

    Parameters
    ----------
    path
        The file. Its folder must be there.
    arrays
        Arrays of the dtypes in :data:`DTYPES`, by name.
    description
        What JSON can hold, without NaN and infinity. Tuples come back as lists.
    """
    file_path = _path(path)
    data = _serialise(file_path, arrays, description)
    try:
        if file_path.is_dir():
            raise file_error(file_path, "is a folder; name a file in it")
        if not file_path.parent.is_dir():
            raise file_error(file_path, "cannot be written: its folder is not there; make it first")
        write_atomically(file_path, lambda file: file.write(data))
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        cure = "free some space" if is_full else "choose another place"
        reason = error.strerror or type(error).__name__
        raise file_error(file_path, f"cannot be written: {reason}; {cure}") from error


def load(path: str | os.PathLike[str]) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Read a model's file: its arrays by name, and its description."""
    file_path = _path(path)
    data = _read(file_path)
    try:
        tensors = deserialize(data)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise _damaged(file_path, "its header does not fit its content") from error
    # The library has checked the header, but does not hand out the metadata of bytes.
    end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
    header = json.loads(data[LENGTH_BYTES:end].decode("utf-8"))
    description = _description(file_path, header.get("__metadata__") or {})
    arrays = {name: _array(file_path, name, **tensor) for name, tensor in tensors}
    return arrays, description


def _path(path: str | os.PathLike[str]) -> Path:
    """Return the path, if a file can have such a name."""
    if "\0" in str(path):  # the system's functions raise a bare ValueError
        raise file_error(path, "cannot be a file: its name holds a null character; check the name")
    return Path(path)


def _serialise(
    path: Path, arrays: Mapping[str, npt.NDArray[Any]], description: Mapping[str, Any]
) -> bytes:
    ready = {}
    for name, value in arrays.items():
        # Not ascontiguousarray, which gives a 0-d array an axis. safetensors copies memory as it
        # lies, so that the order matters.
        array = np.asarray(value, order="C")
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        if array.dtype not in DTYPES.values():
            known = ", ".join(str(dtype) for dtype in DTYPES.values())
            problem = f"cannot hold the array {name!r} of dtype {array.dtype}, only {known}"
            raise file_error(path, problem)
        if name == "__metadata__":
            raise file_error(path, f"cannot hold an array named {name!r}; choose another name")
        ready[name] = array
    try:
        document = {"format": FORMAT, "description": dict(description)}
        text = json.dumps(document, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        problem = "cannot hold this description: JSON takes finite numbers, text, lists and dicts"
        raise file_error(path, problem) from error
    try:
        return safetensors.numpy.save(ready, metadata={METADATA: text})
    except (SafetensorError, TypeError, ValueError) as error:
        raise file_error(path, "cannot hold these arrays: a name is not valid text") from error


def _read(path: Path) -> bytes:
    """Return the bytes of what is, by its beginning and size, a safetensors file."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise file_error(path, "is a folder; name the model's file in it")
        if not stat.S_ISREG(status.st_mode):  # a pipe or a device may have no end
            raise file_error(path, "is not a regular file; copy the model into one")
        with open(path, "rb") as file:
            _check_beginning(path, file.read(LENGTH_BYTES + 1), status.st_size)
            file.seek(0)
            return file.read(status.st_size)
    except FileNotFoundError as error:
        raise file_error(path, "is not there; check the name") from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise file_error(path, f"cannot be read: {reason}; check its permissions") from error
    except MemoryError as error:
        raise file_error(path, "does not fit into memory; name a smaller file") from error


def _check_beginning(path: Path, beginning: bytes, size: int) -> None:
    if not beginning:
        raise _damaged(path, "it is empty")
    for magic, kind in FOREIGN.items():
        # A header may be as long as a magic number says, but it begins with a brace.
        if beginning.startswith(magic) and beginning[LENGTH_BYTES:] != b"{":
            problem = f"is {kind}, and not a model of valuetrack; name a file that it saved"
            raise file_error(path, problem)
    if len(beginning) <= LENGTH_BYTES:
        raise _damaged(path, "it is cut short")
    length = int.from_bytes(beginning[:LENGTH_BYTES], "little")
    if beginning[LENGTH_BYTES:] != b"{" or length > HEADER_LIMIT:
        raise file_error(path, "is not a model of valuetrack; name a file that it saved")
    if LENGTH_BYTES + length > size:
        raise _damaged(path, "it is cut short")


def _description(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the description in the header's metadata, whose format is checked."""
    if METADATA not in metadata:
        problem = "is a safetensors file, but not a model of valuetrack; name a file that it saved"
        raise file_error(path, problem)
    try:
        document = json.loads(metadata[METADATA], parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "its description is not valid JSON") from error
    version = document.get("format") if isinstance(document, dict) else None
    if type(version) is not int or version < 1:
        raise _damaged(path, "its description has no format number")
    if version > FORMAT:
        told = shortened(str(version))
        problem = f"was written by a newer valuetrack in format {told}; update valuetrack"
        raise file_error(path, problem)
    description = document.get("description")
    if not isinstance(description, dict):
        raise _damaged(path, "its description is not there")
    return description


def _array(path: Path, name: str, dtype: str, shape: list[int], data: bytes) -> npt.NDArray[Any]:
    if dtype not in DTYPES:
        told = shortened(repr(name))
        problem = f"holds the array {told} of dtype {dtype}, which valuetrack does not write"
        raise file_error(path, f"{problem}; save the model again")
    try:
        flat = np.frombuffer(data, np.uint8)
        if dtype == "BOOL" and (flat > 1).any():
            raise ValueError("no boolean")
        return flat.view(DTYPES[dtype]).reshape(shape).copy()
    except ValueError as error:
        told = shortened(repr(name))
        raise _damaged(path, f"the array {told} is not as its header says") from error


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _damaged(path: Path, problem: str) -> ModelFileError:
    return file_error(path, f"is damaged: {problem}; take another copy or save the model again")


def file_error(path: Any, problem: str) -> ModelFileError:
    """Return the error that says in one sentence what is wrong with a file."""
    name = str(path)
    end = "" if problem.endswith("?") else "."
    return ModelFileError(f"{name if name.isprintable() else repr(name)} {problem}{end}")


def shortened(text: str, most: int = ECHO) -> str:
    """Return a text of a file in one line of so many characters; what is too much is cut out."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    half = (most - len(CUT)) // 2
    return f"{line[:half]}{CUT}{line[-half:]}"
