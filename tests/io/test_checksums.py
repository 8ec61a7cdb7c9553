"""Checksums: what they cover, and JSON documents that hold their own."""

from __future__ import annotations

import json

import numpy as np
import pytest

from valuetrack.io.array_file import ModelFileError, load, save
from valuetrack.io.checksums import array_checksum, is_sealed, seal


def test_a_checksum_covers_name_dtype_shape_and_bytes():
    array = np.arange(6, dtype=np.int32)
    others = [
        ("y", array),
        ("x", array.view(np.uint32)),
        ("x", array.reshape(2, 3)),
        ("x", array[::-1].copy()),
        ("x", array.astype(np.float32).view(np.int32)),
    ]
    checksums = {array_checksum(*other) for other in [("x", array), *others]}
    assert len(checksums) == 1 + len(others)
    assert array_checksum("x", array.copy()) in checksums


def test_arrays_that_changed_places_are_noticed(tmp_path):
    save(tmp_path / "m", {"a": np.zeros(2), "b": np.ones(2)}, {})
    content = (tmp_path / "m").read_bytes()
    head, body = content[:-32], content[-32:]
    (tmp_path / "m").write_bytes(head + body[16:] + body[:16])
    with pytest.raises(ModelFileError, match="the array 'a' is not what its checksum says"):
        load(tmp_path / "m")


@pytest.mark.parametrize("content", [{}, {"x": 1e-05, "é": ["\n", None, True]}, {"digest": "mine"}])
def test_a_sealed_document_is_as_it_was_written(content):
    text = seal(content)
    assert is_sealed(text, json.loads(text))
    assert list(json.loads(text)) == [*(key for key in content if key != "digest"), "digest"]


@pytest.mark.parametrize(
    "change",
    [
        ("1e-05", "1E-05"),  # the same number
        ("  ", "   "),
        ("seeds", "speed"),
        ('"seeds": 3,', '"seeds": 3, "seeds": 3,'),
        ("3", "4"),
    ],
)
def test_a_document_that_reads_the_same_but_was_changed_is_noticed(change):
    text = seal({"seeds": 3, "rate": 1e-05})
    other = text.replace(*change, 1)
    assert other != text
    assert not is_sealed(other, json.loads(other))


def test_what_json_cannot_hold_is_not_sealed():
    with pytest.raises(ValueError, match="JSON"):
        seal({"x": float("nan")})
    assert not is_sealed('{"x": NaN}', {"x": float("nan")})
