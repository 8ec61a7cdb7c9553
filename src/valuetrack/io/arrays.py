"""Pytrees as arrays with names, and back, bit for bit.

A leaf is named after its path, ``learned.learner.sampler.params.body.0.w``, so that a file can be
read by people and other programs, and a new field does not move the others.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import numpy as np

from valuetrack import rng
from valuetrack.types import Arrays, NDArray

__all__ = ["Arrays", "from_arrays", "pack_text", "to_arrays", "unpack_text"]

TEXT = ":text"
"""Marks the name of an array that holds the code points of text."""


def to_arrays(tree: object, name: str) -> dict[str, NDArray]:
    """Return the leaves of a pytree as NumPy arrays, each under its path below ``name``.

    Examples
    --------
    >>> sorted(to_arrays({"w": np.zeros(2), "layers": [np.ones(1)]}, "net"))
    ['net.layers.0', 'net.w']
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        _leaf_name(name, path): np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        for path, leaf in leaves
    }


def from_arrays(arrays: Arrays, like: Any, name: str) -> Any:
    """Return a pytree with the structure of ``like`` and the leaves saved under ``name``.

    A field that an older version of the library did not have keeps its value in ``like``: if
    nothing at all was saved below a field of a NamedTuple, the field is new. Any other leaf that is
    missing or has another shape or dtype is a ``ValueError``.
    """
    if not _holds(arrays, name) and jax.tree.leaves(like):
        raise ValueError(f"nothing was saved under {name!r}")
    if hasattr(like, "_fields"):  # a NamedTuple
        saved = [field for field in like._fields if _holds(arrays, f"{name}.{field}")]
        fields = {key: from_arrays(arrays, getattr(like, key), f"{name}.{key}") for key in saved}
        return like._replace(**fields)
    if jax.tree_util.all_leaves([like]):
        return _restored(name, arrays.get(name), like)
    children, structure = jax.tree_util.tree_flatten_with_path(
        like, is_leaf=lambda x: x is not like
    )
    leaves = [from_arrays(arrays, child, _leaf_name(name, path)) for path, child in children]
    return jax.tree.unflatten(structure, leaves)


def pack_text(arrays: Arrays) -> dict[str, NDArray]:
    """Return the arrays with every text as its code points, which an array file can hold.

    Examples
    --------
    >>> {name: array.tolist() for name, array in pack_text({"row": np.array(["a", "b"])}).items()}
    {'row:text': [[97], [98]]}
    """
    packed = {}
    for name, array in arrays.items():
        if array.dtype.kind == "U":
            width = max(1, array.dtype.itemsize // 4)
            native = array.astype(f"=U{width}", order="C")
            packed[name + TEXT] = native.view(np.uint32).reshape(*array.shape, width)
        else:
            packed[name] = array
    return packed


def unpack_text(arrays: Arrays) -> dict[str, NDArray]:
    """Return the arrays that :func:`pack_text` was given; refuse numbers that are no text."""
    return {
        name.removesuffix(TEXT): _text(name, array) if name.endswith(TEXT) else array
        for name, array in arrays.items()
    }


def _text(name: str, array: NDArray) -> NDArray:
    width = array.shape[-1] if array.ndim else 0
    if array.dtype != np.uint32 or not width or (array > sys.maxunicode).any():
        raise ValueError(f"{name!r} is not text")
    return np.ascontiguousarray(array).view(f"U{width}").reshape(array.shape[:-1])


def _leaf_name(name: str, path: tuple[object, ...]) -> str:
    """Return the name of what lies at a path below ``name``."""
    return ".".join([name, *(jax.tree_util.keystr((entry,), simple=True) for entry in path)])


def _is_key(leaf: Any) -> bool:
    """Return whether a leaf is a random key, which is saved as its words."""
    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _holds(arrays: Arrays, name: str) -> bool:
    return name in arrays or any(other.startswith(f"{name}.") for other in arrays)


def _restored(name: str, saved: NDArray | None, like: Any) -> Any:
    if saved is None:
        raise ValueError(f"{name!r} is missing")
    expected = jax.eval_shape(jax.random.key_data, like) if _is_key(like) else like
    if saved.shape != expected.shape or saved.dtype != expected.dtype:
        raise ValueError(
            f"{name!r} should be {expected.dtype} of shape {expected.shape}, "
            f"and is {saved.dtype} of shape {saved.shape}"
        )
    array = jax.numpy.asarray(saved)
    if not _is_key(like):
        return array
    return jax.random.wrap_key_data(array, impl=rng.THREEFRY if rng.is_own(like.dtype) else None)
