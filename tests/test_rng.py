"""The package's random keys: a sound generator behind the functions of ``jax.random``."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from valuetrack import rng

SEEDS = [0, 1, 12345, 2**31 - 1]


def data(key: jax.Array) -> np.ndarray:
    return np.asarray(jax.random.key_data(key))


def test_the_cipher_gives_the_published_vectors() -> None:
    # Salmon et al., known-answer tests of Threefry-2x32 with 20 rounds.
    ones = 0xFFFFFFFF
    vectors = [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((ones, ones), (ones, ones), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ]
    for key, counter, expected in vectors:
        words = rng.threefry(*(jnp.uint32(word) for word in (*key, *counter)))
        assert tuple(int(word) for word in words) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_keys_derive_as_those_of_jax(seed: int) -> None:
    ours, theirs = rng.key(seed), jax.random.key(seed)
    assert np.array_equal(data(ours), data(theirs))
    split = [jax.random.split(key, (2, 3)) for key in (ours, theirs)]
    assert np.array_equal(*map(data, split))
    folded = [jax.random.fold_in(key, 7) for key in (ours, theirs)]
    assert np.array_equal(*map(data, folded))


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_both_words_of_every_counter_are_used(size: int) -> None:
    key = rng.key(3)
    bits = np.asarray(jax.random.bits(key, (size,), "uint32"))
    counters = jnp.arange((size + 1) // 2, dtype=jnp.uint32)
    words = rng.threefry(*data(key), jnp.zeros_like(counters), counters)
    assert np.array_equal(bits, np.concatenate([np.asarray(word) for word in words])[:size])


@pytest.mark.parametrize(("dtype", "bits"), [("uint8", 8), ("uint16", 16), ("uint32", 32)])
def test_every_bit_is_fair(dtype: str, bits: int) -> None:
    draws = np.asarray(jax.random.bits(rng.key(5), (400, 50), dtype), np.int64)
    ones = np.array([((draws >> bit) & 1).sum() for bit in range(bits)])
    assert np.all(np.abs(ones - 10_000) < 5 * np.sqrt(20_000 / 4))


def test_normal_numbers_are_normal_and_independent() -> None:
    draws = np.asarray(jax.random.normal(rng.key(11), (200_000,)), np.float64)
    assert stats.kstest(draws, "norm").pvalue > 1e-3
    for lag in (1, 2, 100_000):  # the two words of one counter lie half the array apart
        correlation = np.corrcoef(draws[:-lag], draws[lag:])[0, 1]
        assert abs(correlation) < 5 / np.sqrt(200_000 - lag)


NORMALS = 2_000_000


@pytest.fixture(scope="module")
def normals() -> np.ndarray:
    return np.asarray(rng.normal(rng.key(7), (NORMALS,)), np.float64)


def test_the_normal_law(normals: np.ndarray) -> None:
    assert stats.kstest(normals, "norm").pvalue > 1e-3
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        error = (normals**power).mean() - moment
        assert abs(error) < 4.5 * np.sqrt(variance / NORMALS), power


def test_the_tails_of_the_normal_law(normals: np.ndarray) -> None:
    for limit in (3.0, 4.0, 4.5):
        expected = NORMALS * stats.norm.sf(limit)
        for count in ((normals > limit).sum(), (normals < -limit).sum()):
            assert abs(count - expected) < 5 * np.sqrt(expected), limit
    assert 4.9 < np.abs(normals).max() < 6


def test_the_two_of_a_pair_are_independent(normals: np.ndarray) -> None:
    one, other = normals.reshape(2, -1)
    bound = 5 / np.sqrt(len(one))
    for f in (lambda z: z, np.abs, np.square, np.sign):
        for g in (lambda z: z, np.abs, np.square, np.sign):
            assert abs(np.corrcoef(f(one), g(other))[0, 1]) < bound
    angle, radius = np.arctan2(other, one), np.hypot(one, other)
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3
    assert stats.kstest(radius, "rayleigh").pvalue > 1e-3


@pytest.mark.parametrize("lag", [1, 2, NORMALS // 4, NORMALS // 2 - 1])
def test_normal_numbers_of_other_counters_are_independent(normals: np.ndarray, lag: int) -> None:
    assert abs(np.corrcoef(normals[:-lag], normals[lag:])[0, 1]) < 5 / np.sqrt(NORMALS - lag)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3,), (4,), (5,), (2, 3), (7, 1), (0,)])
def test_normal_numbers_in_any_shape(shape: tuple[int, ...]) -> None:
    draws = np.asarray(rng.normal(rng.key(1), shape))
    assert draws.shape == shape
    assert draws.dtype == np.float32
    assert len(np.unique(draws)) == draws.size


def test_normal_numbers_are_those_of_the_formula() -> None:
    key, size = rng.key(9), 10
    counters = jnp.arange(6, dtype=jnp.uint32)  # two blocks of three pairs
    words = rng.threefry(*data(key), jnp.zeros_like(counters), counters)
    first, second = (np.asarray(word, np.uint32) for word in words)
    u = 1 - (first >> 9) / 2**23
    t = (second >> 9) / 2**23 - 0.5
    radius = np.where(second & 1, -1, 1) * np.sqrt(-2 * np.log(u))
    expected = np.concatenate([radius * np.cos(np.pi * t), radius * np.sin(np.pi * t)])[:size]
    np.testing.assert_allclose(rng.normal(key, (size,)), expected, rtol=2e-6, atol=1e-6)


def test_normal_numbers_alone_beside_others_and_compiled_are_the_same() -> None:
    keys = jax.random.split(rng.key(0), 4)
    together = jax.jit(jax.vmap(lambda key: rng.normal(key, (9,))))(keys)
    alone = np.stack([rng.normal(key, (9,)) for key in keys])
    np.testing.assert_allclose(together, alone, rtol=1e-6)
    assert len(np.unique(alone)) == alone.size


def test_other_keys_and_dtypes_take_the_functions_of_jax() -> None:
    key = jax.random.key(0, impl="rbg")
    np.testing.assert_array_equal(rng.normal(key, (5,)), jax.random.normal(key, (5,)))
    half = rng.normal(rng.key(0), (5,), jnp.float16)
    np.testing.assert_array_equal(half, jax.random.normal(rng.key(0), (5,), jnp.float16))


def test_a_key_gives_the_same_numbers_alone_and_beside_others() -> None:
    keys = jax.random.split(rng.key(0), 4)
    together = jax.vmap(lambda key: jax.random.bits(key, (9,)))(keys)
    alone = [jax.random.bits(key, (9,)) for key in keys]
    assert np.array_equal(np.stack(alone), together)
    assert len(np.unique(np.asarray(together))) == together.size


def test_64_bit_numbers_use_both_words() -> None:
    with jax.enable_x64(True):
        draws = np.asarray(jax.random.uniform(rng.key(2), (50_000,), "float64"))
    assert draws.dtype == np.float64
    assert stats.kstest(draws, "uniform").pvalue > 1e-3
    assert len(np.unique(draws)) == draws.size


def test_keys_cannot_be_mixed_up_with_those_of_jax() -> None:
    assert rng.is_own(rng.key(1).dtype)
    assert not rng.is_own(jax.random.key(1).dtype)
    saved = jax.random.wrap_key_data(data(rng.key(4)), impl=rng.THREEFRY)
    assert np.array_equal(jax.random.bits(saved, (5,)), jax.random.bits(rng.key(4), (5,)))
