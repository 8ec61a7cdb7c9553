from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from valuetrack import networks, rng
from valuetrack.training.seed_groups import Groups, over_seeds, seeds_together


def some_work(state, shared, key):
    noise = jax.random.normal(key, state["x"].shape)
    return {"x": state["x"] * shared + noise, "n": state["n"] + 1}, shared + 1, noise.sum()


@pytest.mark.parametrize("count", [1, 3])
def test_that_it_is_vmap_for_any_number_of_seeds(count):
    axes = {"in_axes": (0, None, 0), "out_axes": (0, None, 0)}
    state = {"x": jnp.arange(2.0 * count).reshape(count, 2), "n": jnp.arange(count)}
    keys = jax.vmap(rng.key)(jnp.arange(count, dtype=jnp.uint32))

    mapped = jax.jit(over_seeds(some_work, count, **axes))(state, 2.0, keys)
    expected = jax.jit(jax.vmap(some_work, **axes))(state, 2.0, keys)

    jax.tree.map(np.testing.assert_array_equal, mapped, expected)


def test_that_a_single_seed_is_not_mapped():
    seen = []
    over_seeds(lambda x: seen.append(x.shape) or x, 1)(jnp.zeros((1, 4)))
    assert seen == [(4,)]


def test_that_one_result_keeps_its_structure():
    result = over_seeds(lambda x: {"double": (2 * x, x)}, 1)(jnp.ones((1, 2)))
    assert result["double"][0].shape == (1, 2)


@pytest.mark.parametrize(
    ("seeds", "sizes"), [(1, (1,)), (2, (1, 1)), (7, (3, 2, 2)), (8, (3, 3, 2))]
)
def test_that_seeds_are_shared_out_evenly(seeds, sizes):
    groups = Groups(seeds, 3)
    assert groups.sizes == sizes
    tree = {"a": jnp.arange(seeds), "b": jnp.arange(2.0 * seeds).reshape(seeds, 2)}
    parts = groups.split(tree)
    assert [len(part["a"]) for part in parts] == list(sizes)
    jax.tree.map(np.testing.assert_array_equal, groups.join(parts), tree)


@pytest.mark.parametrize(
    ("seeds", "cores", "most", "sizes"),
    [
        (3, 2, 5, (2, 1)),
        (8, 2, 4, (4, 4)),
        (8, 2, 3, (2, 2, 2, 2)),
        (5, 2, 1, (1,) * 5),
        (5, 1, 2, (2, 2, 1)),
    ],
)
def test_that_large_seeds_are_cut_into_more_groups_than_cores(seeds, cores, most, sizes):
    groups = Groups(seeds, cores, most)
    assert groups.sizes == sizes
    programs = groups.compile(lambda x: 2 * x)
    numbers = jnp.arange(seeds)
    results = groups.start(programs, [(part,) for part in groups.split(numbers)])
    np.testing.assert_array_equal(groups.join(results), 2 * np.arange(seeds))


def test_that_fewer_seeds_train_together_the_larger_they_are():
    small, large = (
        jax.eval_shape(networks.mlp(4, 2, hidden).init, rng.key(0))
        for hidden in ((32, 32), (256, 256))
    )
    assert seeds_together(small, 100) > 16
    assert seeds_together(large, 64) == 4
    assert seeds_together(large, 10_000) == 1
    assert 1 <= seeds_together(small, 10_000) < seeds_together(small, 100)


def test_that_groups_give_what_one_group_gives():
    def work(key, shared):
        return jax.random.normal(key, (3,)) * shared, shared

    keys = jax.vmap(rng.key)(jnp.arange(5, dtype=jnp.uint32))
    results = []
    for count in (1, 2):
        groups = Groups(5, count)
        programs = groups.compile(work, in_axes=(0, None), out_axes=(0, None))
        started = groups.start(programs, [(part, 2.0) for part in groups.split(keys)])
        results.append(groups.join([numbers for numbers, _ in started]))
    np.testing.assert_array_equal(*results)


def test_that_a_context_of_the_caller_holds_in_all_groups():
    """Threads have contexts of their own, which must not decide what is computed."""
    groups = Groups(3, 2)  # of two sizes, so that there are two programs
    seen = []

    def look(x):
        seen.append(jax.config.jax_default_matmul_precision)
        return x

    programs = groups.compile(look)
    with jax.default_matmul_precision("highest"):
        groups.start(programs, [(part,) for part in groups.split(jnp.zeros(3))])
    assert seen == ["highest", "highest"]


def test_that_what_a_program_raises_arrives():
    def fail(x):
        raise ValueError("no such thing")

    groups = Groups(2, 2)
    with pytest.raises(ValueError, match="no such thing"):
        groups.start(groups.compile(fail), [(part,) for part in groups.split(jnp.zeros(2))])
