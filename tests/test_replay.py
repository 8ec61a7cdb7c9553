from __future__ import annotations

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tests.conftest import as_users_compile
from valuetrack import replay

add = jax.jit(replay.add)
sample = jax.jit(replay.sample, static_argnums=2)


def numbered(start: int, count: int) -> dict:
    """Items that know their number, in several dtypes and shapes."""
    numbers = np.arange(start, start + count)
    return {
        "number": numbers.astype(np.int32),
        "image": np.broadcast_to(numbers[:, None, None] % 256, (count, 2, 3)).astype(np.uint8),
        "legal": (numbers % 2 == 0)[:, None].repeat(2, axis=1),
        "reward": numbers.astype(np.float32) / 2,
    }


EXAMPLE = jax.tree.map(lambda x: x[0], numbered(0, 1))


def contents(ring: replay.Replay) -> list[int]:
    """The numbers in the ring from the oldest to the newest."""
    numbers, size, position = np.asarray(ring.storage["number"]), int(ring.size), int(ring.position)
    return [int(numbers[(position - size + i) % ring.capacity]) for i in range(size)]


@pytest.mark.parametrize("capacity", [1, 6])
def test_ring_is_a_deque(capacity):
    rng = np.random.default_rng(capacity)
    ring, twin, start = replay.init(EXAMPLE, capacity), deque(maxlen=capacity), 0
    sizes = [1, capacity, *rng.integers(0, capacity + 1, 20).tolist()]
    for count in sizes:
        ring = add(ring, numbered(start, count))
        twin.extend(range(start, start + count))
        start += count
        assert contents(ring) == list(twin)
        assert int(ring.size) == len(twin)
    for leaf, expected in zip(
        jax.tree.leaves(ring.storage),
        jax.tree.leaves(jax.tree.map(lambda *xs: np.concatenate(xs), *map(one, twin))),
        strict=True,
    ):
        np.testing.assert_array_equal(np.roll(leaf, -int(ring.position), axis=0), expected)


def one(number: int) -> dict:
    return numbered(number, 1)


def test_dtypes_and_shapes_are_kept():
    ring = add(replay.init(EXAMPLE, 4), numbered(250, 3))
    batch = sample(jax.random.key(0), ring, 6)
    for name, leaf in EXAMPLE.items():
        assert ring.storage[name].dtype == leaf.dtype
        assert batch[name].dtype == leaf.dtype
        assert batch[name].shape == (6, *leaf.shape)


@pytest.mark.parametrize(("added", "present"), [(1, [0]), (3, [0, 1, 2]), (13, list(range(3, 13)))])
def test_sampling_is_uniform_over_what_is_there(added, present):
    ring = replay.init(EXAMPLE, 10)
    for number in range(added):
        ring = add(ring, one(number))
    batch = sample(jax.random.key(0), ring, 20_000)
    numbers, counts = np.unique(batch["number"], return_counts=True)
    assert numbers.tolist() == present
    if len(present) > 1:  # one item leaves nothing to test
        assert stats.chisquare(counts).pvalue > 1e-4


def test_an_item_stays_in_one_piece():
    ring = add(replay.init(EXAMPLE, 50), numbered(0, 50))
    batch = sample(jax.random.key(0), ring, 100)
    items = numbered(0, 50)
    for name, leaf in batch.items():
        np.testing.assert_array_equal(leaf, items[name][batch["number"]])


def test_keys_decide_the_batch():
    ring = add(replay.init(EXAMPLE, 50), numbered(0, 50))
    first, again, other = (
        sample(jax.random.key(seed), ring, 30)["number"].tolist() for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


# -- in place ---------------------------------------------------------------------------------

CAPACITY, WIDTH = 2**16, 256
RING_BYTES = CAPACITY * WIDTH * 4  # 64 MiB of float32
SMALL = RING_BYTES // 64


def ring_of_64_megabytes() -> replay.Replay:
    return replay.init({"x": jnp.zeros(WIDTH), "n": jnp.int32(0)}, CAPACITY)


def steps(ring: replay.Replay, key: jax.Array, count: int):
    """Add and sample a hundred times; each batch decides what is added next."""

    def step(carry, step_key):
        ring, value = carry
        items = {"x": jnp.full((count, WIDTH), value), "n": jnp.full(count, 1)}
        ring = replay.add(ring, items)
        batch = replay.sample(step_key, ring, 32)
        return (ring, value + jnp.mean(batch["x"])), jnp.sum(batch["n"])

    return jax.lax.scan(step, (ring, jnp.float32(1.0)), jax.random.split(key, 100))


def copied(ring: replay.Replay, key: jax.Array, count: int):
    """A loop that cannot work in place, to show that the measurement sees a copy."""
    (after, value), out = steps(ring, key, count)
    return (after, value + jnp.sum(ring.storage["x"] * after.storage["x"])), out


def memory(function, *arguments, donate: bool):
    lowered = jax.jit(function, donate_argnums=0 if donate else ()).lower(*arguments)
    return lowered.compile(as_users_compile()).memory_analysis()


@pytest.mark.parametrize("count", [1, 16])
def test_a_donated_ring_is_updated_in_place(count):
    shapes = jax.eval_shape(ring_of_64_megabytes)
    used = memory(lambda r, k: steps(r, k, count), shapes, jax.random.key(0), donate=True)
    assert used.alias_size_in_bytes >= RING_BYTES
    assert used.temp_size_in_bytes < SMALL
    assert used.output_size_in_bytes - used.alias_size_in_bytes < SMALL


@pytest.mark.parametrize("count", [1, 16])
def test_a_ring_born_inside_the_loop_exists_once(count):
    used = memory(
        lambda k: steps(ring_of_64_megabytes(), k, count)[0][1], jax.random.key(0), donate=False
    )
    assert RING_BYTES <= used.temp_size_in_bytes < RING_BYTES + SMALL


@pytest.mark.parametrize("count", [1, 16])
def test_one_donated_add_is_in_place(count):
    shapes = jax.eval_shape(ring_of_64_megabytes)
    items = {"x": jnp.zeros((count, WIDTH)), "n": jnp.zeros(count, jnp.int32)}
    used = memory(replay.add, shapes, items, donate=True)
    assert used.alias_size_in_bytes >= RING_BYTES
    assert used.temp_size_in_bytes < SMALL


def test_the_measurement_of_memory_sees_a_copy():
    shapes = jax.eval_shape(ring_of_64_megabytes)
    used = memory(lambda r, k: copied(r, k, 1), shapes, jax.random.key(0), donate=True)
    total = used.temp_size_in_bytes + used.output_size_in_bytes - used.alias_size_in_bytes
    assert total >= RING_BYTES


# -- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [0, -3])
def test_capacity_is_positive(capacity):
    with pytest.raises(ValueError, match="capacity of at least 1"):
        replay.init(EXAMPLE, capacity)


def test_more_items_than_fit():
    with pytest.raises(ValueError, match="6 items do not fit into a replay memory of 5"):
        replay.add(replay.init(EXAMPLE, 5), numbered(0, 6))


@pytest.mark.parametrize(("a", "b"), [(1, 3), (3, 1), (2, 3)])
def test_items_of_unequal_length(a, b):
    ring = replay.init({"a": 0.0, "b": 0.0}, 8)
    with pytest.raises(ValueError, match="same length"):
        replay.add(ring, {"a": jnp.ones(a), "b": jnp.ones(b)})
