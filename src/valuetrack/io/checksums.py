"""Checksums: a changed bit in a file is noticed, never computed with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import numpy as np

from valuetrack.types import NDArray

DIGEST = "digest"
"""The key under which a JSON document holds the checksum of its own text."""


def checksum(data: bytes) -> str:
    """Return the SHA-256 of some bytes, as text."""
    return hashlib.sha256(data).hexdigest()


def array_checksum(name: str, array: NDArray) -> str:
    """Return the SHA-256 of an array's name, dtype, shape and bytes, as text.

    The array must be C-contiguous.
    """
    head = json.dumps([name, array.dtype.str, array.dtype.name, list(array.shape)])
    found = hashlib.sha256(head.encode())
    found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def seal(content: Mapping[str, object]) -> str:
    """Return a JSON document that also holds the checksum of its own text.

    The checksum is taken over the text in which it is still empty. There is one text for each
    content, so a reader seals what it has read and compares: see :func:`is_sealed`. JSON has no
    NaN and no infinity, so that content with these is refused.
    """
    open_text = _document(content, "")
    return _document(content, checksum(open_text.encode()))


def is_sealed(text: str, content: Mapping[str, object]) -> bool:
    """Return whether a text is what :func:`seal` wrote, given the content parsed from it.

    Examples
    --------
    >>> text = seal({"seeds": 3})
    >>> is_sealed(text, json.loads(text)), is_sealed(text.replace("3", "4"), {"seeds": 4})
    (True, False)
    """
    try:
        return seal(content) == text
    except (TypeError, ValueError, RecursionError):
        return False


def _document(content: Mapping[str, object], digest: str) -> str:
    rest = {key: value for key, value in content.items() if key != DIGEST}
    return json.dumps({**rest, DIGEST: digest}, indent=2, allow_nan=False) + "\n"
