"""Array files: arrays by name and a description in JSON, every bit of it checked.

Models and checkpoints are array files. Such a file is a safetensors file: a header in JSON, then
the arrays' bytes. Its metadata has one entry, ``valuetrack``: a JSON document
``{"format": 2, "description": {...}, "checksums": {...}, "digest": "..."}`` with the checksum of
each array and that of its own text. Nothing in such a file can become code, and any reader of
safetensors can read the arrays.
"""

from __future__ import annotations

import errno
import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, deserialize

from valuetrack.io.atomic import write_atomically
from valuetrack.io.checksums import array_checksum, is_sealed, seal
from valuetrack.io.errors import (
    ModelFileError,
    StrPath,
    check_format,
    file_error,
    reason,
    shortened,
)
from valuetrack.types import Arrays, DType, Json, NDArray

__all__ = ["DTYPES", "FORMAT", "ModelFileError", "load", "save"]

FORMAT = 2
"""The layout of the JSON document; a file with a higher number is from a newer valuetrack."""

METADATA = "valuetrack"

DTYPES: dict[str, DType] = {
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
"""The dtypes that a file can hold, by their names in the file."""

FOREIGN = {
    b"PK\x03\x04": "a zip archive, as NumPy and PyTorch write them",
    b"PK\x05\x06": "a zip archive, as NumPy and PyTorch write them",
    b"\x80": "a pickle, as PyTorch and joblib write them",
    b"\x93NUMPY": "a NumPy array",
    b"\x89HDF": "an HDF5 file",
}
"""How files begin that are easily mistaken for models, and what they are."""

LENGTH_BYTES = 8
"""The file begins with the length of its header as a little-endian unsigned integer."""

HEADER_LIMIT = 100_000_000
"""The longest header in bytes that safetensors reads."""

ANOTHER_COPY = "take another copy or save the model again"
ANOTHER_FILE = "name a file that it saved"


def save(path: StrPath, arrays: Arrays, description: Mapping[str, object]) -> None:
    """Write an array file; an existing one is replaced only when the new one is complete.

    Its folder must exist. Arrays have dtypes in :data:`DTYPES`. The description is what JSON can
    hold, without NaN and infinity; tuples come back as lists. Anything else is a
    :class:`ModelFileError`.
    """
    file_path = _path(path)
    data = _serialise(file_path, arrays, description)
    try:
        if file_path.is_dir():
            raise file_error(file_path, "is a folder", "name a file in it")
        if not file_path.parent.is_dir():
            problem = "cannot be written: its folder does not exist"
            raise file_error(file_path, problem, "make it first")
        write_atomically(file_path, lambda file: file.write(data))
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        cure = "free some space" if is_full else "choose another place"
        raise file_error(file_path, f"cannot be written: {reason(error)}", cure) from error


def load(path: StrPath, *, what: str = "model") -> tuple[dict[str, NDArray], Json]:
    """Read an array file and verify its checksums: its arrays by name, and its description.

    If it is not an array file of this format, or any bit of it has changed, a
    :class:`ModelFileError` tells so and calls it a ``what``.
    """
    file_path = _path(path)
    data = _read(file_path, what)
    try:
        tensors = deserialize(data)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise _damaged(file_path, "its header does not fit its content") from error
    # The library has checked the header, but does not hand out the metadata of bytes.
    end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
    header = json.loads(data[LENGTH_BYTES:end].decode("utf-8"))
    document = _document(file_path, header.get("__metadata__") or {}, what)
    arrays = {name: _array(file_path, name, **tensor) for name, tensor in tensors}
    _verify(file_path, arrays, document.get("checksums"))
    return arrays, document["description"]


def _path(path: StrPath) -> Path:
    """Return the path if a file can have such a name."""
    if "\0" in str(path):  # the system's functions raise a bare ValueError
        raise file_error(
            path, "cannot be a file: its name holds a null character", "check the name"
        )
    return Path(path)


def _serialise(path: Path, arrays: Arrays, description: Mapping[str, object]) -> bytes:
    ready = {name: _ready(path, name, array) for name, array in arrays.items()}
    checksums = {name: array_checksum(name, array) for name, array in ready.items()}
    document = {"format": FORMAT, "description": dict(description), "checksums": checksums}
    try:
        text = seal(document)
    except (TypeError, ValueError, RecursionError) as error:
        problem = "cannot hold this description: JSON takes finite numbers, text, lists and dicts"
        raise file_error(path, problem) from error
    try:
        return safetensors.numpy.save(ready, metadata={METADATA: text})
    except (SafetensorError, TypeError, ValueError) as error:
        raise file_error(path, "cannot hold these arrays: a name is not valid text") from error


def _ready(path: Path, name: str, value: NDArray) -> NDArray:
    """Return an array as it lies in the file."""
    # Not ascontiguousarray, which gives a 0-d array an axis. safetensors copies memory as it
    # lies, so the order matters.
    array = np.asarray(value, order="C")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype not in DTYPES.values():
        known = ", ".join(str(dtype) for dtype in DTYPES.values())
        problem = f"cannot hold the array {name!r} of dtype {array.dtype}, only {known}"
        raise file_error(path, problem)
    if name == "__metadata__":
        raise file_error(path, f"cannot hold an array named {name!r}", "choose another name")
    return array


def _read(path: Path, what: str) -> bytes:
    """Return the bytes of what is, by its beginning and size, a safetensors file."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise file_error(path, "is a folder", f"name the {what}'s file in it")
        if not stat.S_ISREG(status.st_mode):  # a pipe or a device may have no end
            raise file_error(path, "is not a regular file", f"copy the {what} into one")
        with open(path, "rb") as file:
            _check_beginning(path, file.read(LENGTH_BYTES + 1), status.st_size, what)
            file.seek(0)
            return file.read(status.st_size)
    except FileNotFoundError as error:
        raise file_error(path, "does not exist", "check the name") from error
    except OSError as error:
        cure = "check its permissions"
        raise file_error(path, f"cannot be read: {reason(error)}", cure) from error
    except MemoryError as error:
        raise file_error(path, "does not fit into memory", "name a smaller file") from error


def _check_beginning(path: Path, beginning: bytes, size: int, what: str) -> None:
    if not beginning:
        raise _damaged(path, "it is empty")
    for magic, kind in FOREIGN.items():
        # A header may be as long as a magic number says, but it begins with a brace.
        if beginning.startswith(magic) and beginning[LENGTH_BYTES:] != b"{":
            raise file_error(path, f"is {kind}, and not a {what} of valuetrack", ANOTHER_FILE)
    if len(beginning) <= LENGTH_BYTES:
        raise _damaged(path, "it is cut short")
    length = int.from_bytes(beginning[:LENGTH_BYTES], "little")
    if beginning[LENGTH_BYTES:] != b"{" or length > HEADER_LIMIT:
        raise file_error(path, f"is not a {what} of valuetrack", ANOTHER_FILE)
    if LENGTH_BYTES + length > size:
        raise _damaged(path, "it is cut short")


def _document(path: Path, metadata: Mapping[str, str], what: str) -> Json:
    """Return the JSON document in the header's metadata, once its checksum is verified."""
    if METADATA not in metadata:
        problem = f"is a safetensors file, but not a {what} of valuetrack"
        raise file_error(path, problem, ANOTHER_FILE)
    text = metadata[METADATA]
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "its description is not valid JSON") from error
    version = document.get("format") if isinstance(document, dict) else None
    if type(version) is not int or version < 1:
        raise _damaged(path, "its description has no format number")
    check_format(ModelFileError, path, version, FORMAT, "train again and save it again")
    if not is_sealed(text, document):
        raise _damaged(path, "its description is not what its digest says")
    if not isinstance(document.get("description"), dict):
        raise _damaged(path, "its description is missing")
    return dict(document)


def _array(path: Path, name: str, dtype: str, shape: list[int], data: bytes) -> NDArray:
    told = shortened(repr(name))
    if dtype not in DTYPES:
        problem = f"holds the array {told} of dtype {dtype}, which valuetrack does not write"
        raise file_error(path, problem, "save the model again")
    try:
        flat = np.frombuffer(data, np.uint8)
        if dtype == "BOOL" and (flat > 1).any():
            raise ValueError("no boolean")
        return flat.view(DTYPES[dtype]).reshape(shape).copy()
    except ValueError as error:
        raise _damaged(path, f"the array {told} is not as its header says") from error


def _verify(path: Path, arrays: Arrays, checksums: object) -> None:
    if not isinstance(checksums, dict) or checksums.keys() != arrays.keys():
        raise _damaged(path, "its arrays are not those that its description names")
    for name, array in sorted(arrays.items()):  # so that the message is always the same
        if array_checksum(name, array) != checksums[name]:
            told = shortened(repr(name))
            raise _damaged(path, f"the array {told} is not what its checksum says")


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _damaged(path: Path, problem: str) -> ModelFileError:
    return file_error(path, f"is damaged: {problem}", ANOTHER_COPY)
