from __future__ import annotations

import errno
import io
import json
import os
import pickle
import struct
import tempfile
import tracemalloc
import zipfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from valuetrack.io.array_file import DTYPES, ModelFileError, load, save
from valuetrack.io.checksums import array_checksum, seal

ARRAYS = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(3, np.int32)}
DESCRIPTION = {"agent": "lktd", "sizes": [1, 2], "nested": {"ä\n": None, "x": 0.1}}
DOCUMENT = {"format": 2, "description": {}, "checksums": {}}


def file_of(header: bytes, body: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + body


def file_with(entry: object, tensors: object = None, body: bytes = b"") -> bytes:
    """A safetensors file whose metadata holds our entry, JSON or text, and any tensors."""
    text = seal(entry) if isinstance(entry, dict) else entry
    text = text if isinstance(text, str) else json.dumps(text)
    header = {"__metadata__": {"valuetrack": text}, **(tensors or {})}
    return file_of(json.dumps(header).encode(), body)


def tensor(dtype: str, shape: list[int], *offsets: int) -> dict:
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}}


def archive(*names: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name in names:
            file.writestr(name, b"content")
    return stream.getvalue()


class Bomb:
    """A pickle of this makes a folder when it is read."""

    def __reduce__(self):
        return os.mkdir, ("executed",)


def small_file(path: Path) -> bytes:
    save(path, ARRAYS, DESCRIPTION)
    return path.read_bytes()


def message(error: pytest.ExceptionInfo[ModelFileError], path: Path) -> str:
    text = str(error.value)
    assert text.startswith(f"{path} ")
    assert text.endswith(".")
    assert "\n" not in text
    return text


def bits(array: np.ndarray) -> tuple:
    return array.dtype, array.shape, array.tobytes()


# -- what is written comes back -----------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3)], ids=repr)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_arrays_come_back_to_the_bit(tmp_path, dtype, shape):
    rng = np.random.default_rng(0)
    size = int(np.prod(shape)) * dtype.itemsize
    # Any bits, NaNs with a payload among them; a boolean has only two.
    raw = rng.integers(0, 2 if dtype == np.bool_ else 256, size, dtype=np.uint8)
    array = raw.view(dtype).reshape(shape)
    save(tmp_path / "m", {"x": array}, {})
    arrays, _ = load(tmp_path / "m")
    assert bits(arrays["x"]) == bits(array)
    assert arrays["x"].flags.writeable


CUBE = np.arange(24, dtype=np.float64).reshape(2, 3, 4)


@pytest.mark.parametrize(
    "array",
    [CUBE.T, CUBE[:, ::2], CUBE[::-1], CUBE[..., 1], np.broadcast_to(CUBE, (2, 2, 3, 4))],
    ids=["transposed", "strided", "reversed", "sliced", "broadcast"],
)
def test_arrays_that_do_not_lie_in_a_row(tmp_path, array):
    save(tmp_path / "m", {"x": array}, {})
    assert bits(load(tmp_path / "m")[0]["x"]) == bits(array)


def test_arrays_of_the_other_byte_order_and_of_jax(tmp_path):
    save(tmp_path / "m", {"big": np.array([1, 2], ">f4"), "jax": jnp.arange(3)}, {})
    arrays, _ = load(tmp_path / "m")
    assert bits(arrays["big"]) == bits(np.array([1, 2], np.float32))
    assert bits(arrays["jax"]) == bits(np.arange(3, dtype=np.int32))


@pytest.mark.parametrize("description", [{}, DESCRIPTION, {"format": 7, "description": "\ud800"}])
def test_the_description_comes_back(tmp_path, description):
    save(str(tmp_path / "m"), {}, description)
    assert load(str(tmp_path / "m")) == ({}, description)


def test_the_file_is_plain_safetensors(tmp_path):
    small_file(tmp_path / "m")
    arrays = safetensors.numpy.load_file(tmp_path / "m")
    assert {name: bits(array) for name, array in arrays.items()} == {
        name: bits(array) for name, array in ARRAYS.items()
    }
    with safetensors.safe_open(tmp_path / "m", framework="np") as file:
        assert file.metadata().keys() == {"valuetrack"}
        text = file.metadata()["valuetrack"]
    checksums = {name: array_checksum(name, array) for name, array in ARRAYS.items()}
    document = {"format": 2, "description": DESCRIPTION, "checksums": checksums}
    assert text == seal(document)
    assert json.loads(text).items() > document.items()


def test_the_same_model_is_the_same_file(tmp_path):
    assert small_file(tmp_path / "a") == small_file(tmp_path / "b")


# -- what cannot be written ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrays", "description", "said"),
    [
        ({"x": np.zeros(2, complex)}, {}, "'x' of dtype complex128"),
        ({"x": np.array([None])}, {}, "'x' of dtype object"),
        ({"x": np.array(["a"])}, {}, "'x' of dtype <U1"),
        ({"x": np.zeros(2, "f4,i4")}, {}, "'x' of dtype"),
        ({"__metadata__": np.zeros(2)}, {}, "another name"),
        ({"\ud800": np.zeros(2)}, {}, "name is not valid text"),
        ({}, {"x": float("nan")}, "finite numbers"),
        ({}, {"x": np.zeros(2)}, "JSON takes"),
    ],
)
def test_what_the_file_cannot_hold_is_one_sentence(tmp_path, arrays, description, said):
    with pytest.raises(ModelFileError, match=said) as error:
        save(tmp_path / "m", arrays, description)
    message(error, tmp_path / "m")
    assert not any(tmp_path.iterdir())


def failing(code: int):
    def fail(*_args, **_options):
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize(
    ("module", "function", "code", "said"),
    [
        (os, "fsync", errno.ENOSPC, "No space left on device; free some space"),
        (os, "replace", errno.EIO, "error; choose another place"),
        (tempfile, "mkstemp", errno.EACCES, "Permission denied; choose another place"),
        (tempfile, "mkstemp", errno.EROFS, "Read-only file system; choose another place"),
    ],
)
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, module, function, code, said):
    path = tmp_path / "m"
    old = small_file(path)
    monkeypatch.setattr(module, function, failing(code))
    with pytest.raises(ModelFileError, match=said) as error:
        save(path, {"x": np.zeros(100)}, {})
    message(error, path)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_no_folder_is_made(tmp_path):
    path = tmp_path / "absent" / "m"
    with pytest.raises(ModelFileError, match="folder does not exist; make it") as error:
        save(path, ARRAYS, {})
    message(error, path)
    assert not any(tmp_path.iterdir())


def test_a_folder_is_not_overwritten(tmp_path):
    with pytest.raises(ModelFileError, match="is a folder") as error:
        save(tmp_path, ARRAYS, {})
    message(error, tmp_path)


# -- what cannot be read ------------------------------------------------------------------------

DEEP = 200_000
X = json.dumps(DOCUMENT)

HOSTILE = {
    "empty": (b"", "is empty"),
    "random": (np.random.default_rng(0).bytes(1000), "is not a model of valuetrack"),
    "text": (b"Dear Sir or Madam,\n", "is not a model of valuetrack"),
    "pickle": (pickle.dumps(Bomb()), "is a pickle"),
    "short pickle": (pickle.dumps(1), "is a pickle"),
    "old pickle": (pickle.dumps(Bomb(), 0), "is not a model of valuetrack"),
    "PyTorch": (archive("archive/data.pkl", "archive/data/0", "archive/version"), "zip archive"),
    "npz": (archive("../../evil.npy", "/etc/evil.npy", "w.npy"), "zip archive"),
    "empty zip": (archive(), "zip archive"),
    "npy": (b"\x93NUMPY\x01\x00v\x00{'descr': '<f8'}", "NumPy"),
    "HDF5": (b"\x89HDF\r\n\x1a\n" + bytes(40), "HDF5"),
    "huge header": (file_of(b"{}", length=2**62), "is not a model of valuetrack"),
    "largest header": (file_of(b"{}", length=2**64 - 1), "is not a model of valuetrack"),
    "header beyond the file": (file_of(b"{}", length=1000), "cut short"),
    "no header": (file_of(b""), "cut short"),
    "no JSON": (file_of(b"{]"), "is damaged"),
    "no text": (file_of(b'{"\xff": 1}'), "is damaged"),
    "header bomb": (file_of(b'{"a":' * DEEP + b"1" + b"}" * DEEP), "is damaged"),
    "foreign": (safetensors.numpy.save(ARRAYS), "safetensors file, but not a model"),
    "foreign metadata": (
        safetensors.numpy.save({}, {"format": "pt"}),
        "is a safetensors file, but",
    ),
    "no metadata": (file_of(b"{}"), "safetensors file, but not a model"),
    "empty metadata": (file_of(b'{"__metadata__": null}'), "safetensors file, but not a model"),
    "metadata no text": (file_of(b'{"__metadata__": {"valuetrack": 1}}'), "is damaged"),
    "damaged JSON": (file_with(X[:-1]), "not valid JSON"),
    "NaN": (file_with(X.replace("2", "NaN")), "not valid JSON"),
    "huge number": (file_with(X.replace("2", "2" * 5000)), "not valid JSON"),
    "JSON bomb": (file_with("[" * DEEP), "not valid JSON"),
    "closed JSON bomb": (file_with('{"a":' * DEEP + "1" + "}" * DEEP), "not valid JSON"),
    "list": (file_with([1]), "no format number"),
    "no format": (file_with({"description": {}}), "no format number"),
    "format 0": (file_with(DOCUMENT | {"format": 0}), "no format number"),
    "format true": (file_with(DOCUMENT | {"format": True}), "no format number"),
    "format text": (file_with(DOCUMENT | {"format": "2"}), "no format number"),
    "newer": (file_with({"format": 3}), "newer valuetrack in format 3; update"),
    "older": (file_with({"format": 1}), "earlier development version of valuetrack (format 1); tr"),
    "no description": (file_with({"format": 2}), "description is missing"),
    "description a list": (file_with(DOCUMENT | {"description": []}), "description is missing"),
    "no digest": (file_with(X), "its description is not what its digest says"),
    "another digest": (
        file_with(X[:-1] + ', "digest": "0"}'),
        "its description is not what its digest says",
    ),
    "no checksums": (file_with(DOCUMENT | {"checksums": None}), "its arrays are not those that"),
    "an array more": (file_with(DOCUMENT, tensor("U8", [1], 0, 1), b"1"), "not those that"),
    "an array less": (file_with(DOCUMENT | {"checksums": {"x": "0"}}), "not those that"),
    "another array": (
        file_with(DOCUMENT | {"checksums": {"x": "0"}}, tensor("U8", [1], 0, 1), b"1"),
        "the array 'x' is not what its checksum says",
    ),
    "offsets beyond": (file_with(DOCUMENT, tensor("F32", [4], 0, 16), bytes(8)), "is damaged"),
    "offsets reversed": (file_with(DOCUMENT, tensor("F32", [4], 16, 0), bytes(16)), "is damaged"),
    "offsets negative": (file_with(DOCUMENT, tensor("F32", [4], -16, 0), bytes(16)), "is damaged"),
    "offsets with a gap": (file_with(DOCUMENT, tensor("F32", [1], 4, 8), bytes(8)), "is damaged"),
    "offsets overflow": (file_with(DOCUMENT, tensor("U8", [1], 2**64 - 1, 2**64)), "is damaged"),
    "more bytes": (file_with(DOCUMENT, tensor("F32", [1], 0, 4), bytes(5)), "is damaged"),
    "size": (file_with(DOCUMENT, tensor("F32", [5], 0, 16), bytes(16)), "is damaged"),
    "huge size": (file_with(DOCUMENT, tensor("F32", [2**40], 0, 16), bytes(16)), "is damaged"),
    "size overflow": (file_with(DOCUMENT, tensor("F32", [2**32] * 2, 0, 0)), "is damaged"),
    "shape beyond NumPy": (file_with(DOCUMENT, tensor("U8", [1] * 99, 0, 1), b"1"), "is damaged"),
    "empty and huge": (file_with(DOCUMENT, tensor("F64", [0, 2**62], 0, 0)), "is damaged"),
    "unknown dtype": (file_with(DOCUMENT, tensor("F99", [1], 0, 1), b"1"), "is damaged"),
    "other dtype": (file_with(DOCUMENT, tensor("F8_E5M2", [1], 0, 1), b"1"), "dtype F8_E5M2"),
    "no booleans": (file_with(DOCUMENT, tensor("BOOL", [1], 0, 1), b"\x02"), "is damaged"),
}


@pytest.mark.parametrize(("content", "said"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_one_sentence(tmp_path, monkeypatch, content, said):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelFileError) as error:
        load(path)
    assert said in message(error, path)
    assert list(tmp_path.iterdir()) == [path]


def test_the_builder_of_hostile_files_can_build_a_good_one(tmp_path):
    path = tmp_path / "m"
    array = np.float32([1, 2])
    document = DOCUMENT | {"checksums": {"x": array_checksum("x", array)}}
    path.write_bytes(file_with(document, tensor("F32", [2], 0, 8), array.tobytes()))
    arrays, description = load(path)
    assert bits(arrays["x"]) == bits(np.float32([1, 2]))
    assert description == {}


def test_a_file_cut_at_any_byte_is_damaged(tmp_path):
    content = small_file(tmp_path / "whole")
    path = tmp_path / "m"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError, match="is damaged") as error:
            load(path)
        message(error, path)


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_a_wrong_byte_anywhere_is_refused(tmp_path, flip):
    content = small_file(tmp_path / "whole")
    path = tmp_path / "m"
    for i in range(len(content)):
        path.write_bytes(content[:i] + bytes([content[i] ^ flip]) + content[i + 1 :])
        with pytest.raises(ModelFileError) as error:
            load(path)
        message(error, path)


def test_a_lying_header_takes_no_memory(tmp_path):
    path = tmp_path / "m"
    tracemalloc.start()
    try:
        for name in ("huge header", "huge size", "empty and huge", "header beyond the file"):
            path.write_bytes(HOSTILE[name][0])
            with pytest.raises(ModelFileError):
                load(path)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ModelFileError, match="does not exist; check") as error:
        load(tmp_path / "m")
    message(error, tmp_path / "m")


def test_a_folder_is_no_model(tmp_path):
    with pytest.raises(ModelFileError, match="is a folder") as error:
        load(tmp_path)
    message(error, tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "m")
    with pytest.raises(ModelFileError, match="not a regular file") as error:
        load(tmp_path / "m")
    message(error, tmp_path / "m")


def test_a_file_that_the_system_withholds(tmp_path, monkeypatch):
    small_file(tmp_path / "m")
    monkeypatch.setattr("builtins.open", failing(errno.EACCES))
    with pytest.raises(ModelFileError, match="cannot be read: Permission denied") as error:
        load(tmp_path / "m")
    message(error, tmp_path / "m")


@pytest.mark.parametrize("use", [load, lambda path: save(path, ARRAYS, {})], ids=["load", "save"])
def test_a_name_with_a_null_character(tmp_path, use):
    for path in ("a\0b", tmp_path / "a\0b"):
        with pytest.raises(ModelFileError, match="its name holds a null character") as error:
            use(path)
        assert str(error.value).isprintable()
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content",
    [
        file_with(DOCUMENT | {"format": 10**4000}),
        file_with(DOCUMENT, {"x" * 5000: tensor("BOOL", [1], 0, 1)["x"]}, b"\x02"),
        file_with(DOCUMENT, {"x\n" * 5000: tensor("F8_E5M2", [1], 0, 1)["x"]}, b"1"),
    ],
    ids=["format", "values", "dtype"],
)
def test_what_a_file_says_is_repeated_in_short(tmp_path, content):
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(ModelFileError) as error:
        load(tmp_path / "m")
    assert len(message(error, tmp_path / "m")) <= 300


def test_a_name_with_a_line_break_does_not_break_the_line(tmp_path):
    with pytest.raises(ModelFileError, match="does not exist") as error:
        load(tmp_path / "a\nb")
    assert "\n" not in str(error.value)
