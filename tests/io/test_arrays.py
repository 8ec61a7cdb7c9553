"""Pytrees as arrays with names, and back."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from valuetrack import rng
from valuetrack.io.arrays import from_arrays, pack_text, to_arrays, unpack_text


class Old(NamedTuple):
    params: Any
    updates: Any


class New(NamedTuple):
    params: Any
    momentum: Any
    updates: Any


def params(value: float) -> dict[str, Any]:
    return {"body": [{"w": jnp.full((2, 3), value), "b": jnp.full(3, value)}], "head": jnp.ones(1)}


def test_names_are_paths():
    names = to_arrays(Old(params(1.0), jnp.int32(3)), "learner").keys()
    assert names == {
        "learner.params.body.0.w",
        "learner.params.body.0.b",
        "learner.params.head",
        "learner.updates",
    }


@pytest.mark.parametrize(
    "tree",
    [
        Old(params(2.0), jnp.int32(7)),
        {"empty": (), "none": None, "tuple": (jnp.arange(2), jnp.zeros(()))},
        jnp.bfloat16(1.5),
        [rng.key(3), jax.random.key(4)],
    ],
    ids=["NamedTuple", "containers", "leaf", "keys"],
)
def test_trees_come_back_to_the_bit(tree):
    like = jax.tree.map(lambda leaf: leaf, tree)
    back = from_arrays(to_arrays(tree, "x"), like, "x")
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for ours, theirs in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
        assert ours.dtype == theirs.dtype
    for name, array in to_arrays(tree, "x").items():
        np.testing.assert_array_equal(to_arrays(back, "x")[name], array)


def test_a_new_field_keeps_its_fresh_value():
    saved = to_arrays(Old(params(1.0), jnp.int32(3)), "learner")
    fresh = New(params(0.0), params(5.0), jnp.int32(0))
    back = from_arrays(saved, fresh, "learner")
    assert int(back.updates) == 3
    assert float(back.params["body"][0]["w"].sum()) == 6.0
    assert float(back.momentum["body"][0]["w"].sum()) == 30.0


@pytest.mark.parametrize("name", ["x.params.body.0.w", "x.params.head", "x.momentum.body.0.b"])
def test_a_missing_leaf_is_an_error_that_names_it(name):
    tree = New(params(1.0), params(2.0), jnp.int32(3))
    saved = to_arrays(tree, "x")
    del saved[name]
    with pytest.raises(ValueError, match=f"'{name}'"):
        from_arrays(saved, tree, "x")


def test_nothing_saved_is_an_error():
    with pytest.raises(ValueError, match="nothing was saved under 'y'"):
        from_arrays(to_arrays(params(1.0), "x"), params(1.0), "y")
    with pytest.raises(ValueError, match="nothing was saved under 'y'"):
        from_arrays({}, Old(params(1.0), jnp.int32(0)), "y")


@pytest.mark.parametrize(
    "other", [np.zeros(4, np.float32), np.zeros(3, np.int32), np.zeros((1, 3))]
)
def test_another_shape_or_dtype_is_an_error_that_names_the_leaf(other):
    saved = {**to_arrays(params(1.0), "x"), "x.body.0.b": other}
    with pytest.raises(ValueError, match=r"'x.body.0.b' should be float32 of shape \(3,\)"):
        from_arrays(saved, params(1.0), "x")


def test_text_becomes_numbers_and_text_again():
    arrays = {"row": np.array(["a", "längere"]), "x": np.zeros(2), "empty": np.zeros(0, "U3")}
    packed = pack_text(arrays)
    assert {array.dtype.kind for array in packed.values()} <= {"u", "f"}
    back = unpack_text(packed)
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype
