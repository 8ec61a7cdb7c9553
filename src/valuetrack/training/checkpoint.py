"""A pytree of arrays as named plain arrays and back, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from valuetrack import rng


def to_arrays(tree: Any, prefix: str) -> dict[str, npt.NDArray[Any]]:
    """Return the leaves as NumPy arrays under the names ``prefix0``, ``prefix1``, ..."""
    return {
        f"{prefix}{i}": np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        for i, leaf in enumerate(jax.tree.leaves(tree))
    }


def from_arrays(arrays: Mapping[str, npt.NDArray[Any]], like: Any, prefix: str) -> Any:
    """Return the pytree with the structure of ``like`` and the leaves that were saved.

    Raises ``ValueError`` if a leaf is missing or has another shape or dtype.
    """
    leaves, structure = jax.tree.flatten(like)
    restored = [_restore(arrays.get(f"{prefix}{i}"), leaf) for i, leaf in enumerate(leaves)]
    return jax.tree.unflatten(structure, restored)


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
