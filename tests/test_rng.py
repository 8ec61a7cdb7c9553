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
