"""A pytree of arrays as named plain arrays and back, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from valuetrack import rng

CLOCK = "clock"
"""The name of the counters among a trainer's arrays."""
COUNT_LIMIT = 2**31
"""Counters stay below it: the compiled loop has them as int32."""


def to_arrays(tree: Any, prefix: str) -> dict[str, npt.NDArray[Any]]:
    """Return the leaves as NumPy arrays under the names ``prefix0``, ``prefix1``, ..."""
    return {
        f"{prefix}{i}": np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        for i, leaf in enumerate(jax.tree.leaves(tree))
    }


def from_arrays(
    arrays: Mapping[str, npt.NDArray[Any]], like: Any, prefix: str, first: int = 0
) -> Any:
    """Return the pytree with the structure of ``like`` and the leaves that were saved.

    ``first`` is the number of its first leaf. Raises ``ValueError`` if a leaf is missing or has
    another shape or dtype.
    """
    leaves, structure = jax.tree.flatten(like)
    restored = [_restore(arrays.get(f"{prefix}{first + i}"), leaf) for i, leaf in enumerate(leaves)]
    return jax.tree.unflatten(structure, restored)


def read_clock(arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[int, int, int]:
    """Return the saved cycles, updates, and the cycle from which on the memory remembers.

    Raises ``ValueError`` if they are missing or cannot be.
    """
    saved = arrays.get(CLOCK)
    if saved is None or saved.dtype.kind not in "iu" or saved.shape != (3,):
        raise ValueError("the saved clock is not three whole numbers")
    cycles, updates, emptied = (int(count) for count in saved)
    if not (0 <= emptied <= cycles < COUNT_LIMIT and 0 <= updates < COUNT_LIMIT):
        raise ValueError("the saved clock shows a time that cannot be")
    return cycles, updates, emptied


def _restore(saved: npt.NDArray[Any] | None, like: Any) -> Any:
    expected = jax.eval_shape(jax.random.key_data, like) if _is_key(like) else like
    if saved is None or saved.shape != expected.shape or saved.dtype != expected.dtype:
        raise ValueError("the saved state does not fit this experiment")
    array = jax.numpy.asarray(saved)
    if not _is_key(like):
        return array
    return jax.random.wrap_key_data(array, impl=rng.THREEFRY if rng.is_own(like.dtype) else None)


def _is_key(leaf: Any) -> bool:
    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
