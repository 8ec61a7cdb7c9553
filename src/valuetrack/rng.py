"""Random keys that are fast on a CPU: Threefry, with the cipher written out.

On a CPU, JAX keeps the cipher's rounds in a loop, which XLA runs as dozens of small kernels, and
uses one of the two words that each encrypted counter yields. Here the rounds are written out, so
that XLA fuses them, and both words are used, which shows in the few thousand numbers of an update.

    key = valuetrack.rng.key(0)
    jax.random.normal(key, (3,))

All functions of ``jax.random`` take these keys. ``split`` and ``fold_in`` agree with those of
JAX's own keys; the numbers drawn are others.

References
----------
Salmon, Moraes, Dror and Shaw (2011). Parallel random numbers: as easy as 1, 2, 3. SC.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.random import define_prng_impl

from valuetrack.types import Array

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def key(seed: Any) -> Array:
    """Return the random key of a seed, an integer of up to 32 bits (traced or not)."""
    return jax.random.key(seed, impl=THREEFRY)


def is_own(dtype: Any) -> bool:
    """Return whether this is the dtype of the keys made here."""
    return bool(dtype == key(0).dtype)


def threefry(k0: Array, k1: Array, x0: Array, x1: Array) -> tuple[Array, Array]:
    """Encrypt the counter (x0, x1) under the key (k0, k1): Threefry-2x32 with 20 rounds."""
    schedule = (k0, k1, k0 ^ k1 ^ jnp.uint32(PARITY))
    x0, x1 = x0 + k0, x1 + k1
    for group in range(5):
        for bits in ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << jnp.uint32(bits)) | (x1 >> jnp.uint32(32 - bits)))
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return x0, x1


def _encrypt_counters(raw: Array, size: int) -> tuple[Array, Array]:
    """Encrypt 0, 1, 2, ..., size - 1."""
    if size >= 2**32:
        raise ValueError(f"One draw encrypts fewer than 2^32 counters, not {size}; draw in parts.")
    counters = jax.lax.iota(jnp.uint32, size)
    return threefry(raw[0], raw[1], jnp.zeros_like(counters), counters)


def _seed(seed: Array) -> Array:
    seed = jnp.asarray(seed)
    low = seed.astype(jnp.uint32)
    wide = seed.dtype.itemsize > 4
    high = jax.lax.shift_right_logical(seed, seed.dtype.type(32)) if wide else jnp.uint32(0)
    return jnp.stack([high.astype(jnp.uint32), low])


def _split(raw: Array, shape: tuple[int, ...]) -> Array:
    words = _encrypt_counters(raw, math.prod(shape))
    return jnp.stack(words, axis=-1).reshape(*shape, 2)


def _random_bits(raw: Array, width: int, shape: tuple[int, ...]) -> Array:
    size = math.prod(shape)
    if width == 64:
        high, low = (word.astype(jnp.uint64) for word in _encrypt_counters(raw, size))
        return jnp.reshape((high << jnp.uint64(32)) | low, shape)
    words = _encrypt_counters(raw, -(-size // 2))
    return jnp.concatenate(words)[:size].reshape(shape).astype(f"uint{width}")


def _fold_in(raw: Array, data: Any) -> Array:
    high, low = _seed(data)
    return jnp.stack(threefry(raw[0], raw[1], high, low))


THREEFRY = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="valuetrack_threefry",
    tag="vtf",
)
