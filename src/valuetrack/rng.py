"""Random keys that are fast on a CPU: Threefry, with the cipher written out.

On a CPU, JAX keeps the cipher's rounds in a loop, which XLA runs as dozens of small kernels, and
uses one of the two words that each encrypted counter yields. Here the rounds are written out, so
that XLA fuses them with what uses the numbers, and both words are used.

    key = valuetrack.rng.key(0)
    jax.random.normal(key, (3,))

All functions of ``jax.random`` take these keys. ``split`` and ``fold_in`` agree with those of
JAX's own keys; the numbers drawn are others.

A sampler draws a normal number for each parameter in each iteration, so :func:`normal` is here as
well: it turns the two words of a counter into two normal numbers at once.

References
----------
Box and Muller (1958). A note on the generation of random normal deviates. Ann. Math. Stat. 29.

Salmon, Moraes, Dror and Shaw (2011). Parallel random numbers: as easy as 1, 2, 3. SC.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.extend.random import define_prng_impl
from jax.typing import DTypeLike

from valuetrack.types import Array, DType, Scalar

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA

# sin(pi t) / t and cos(pi t) as polynomials in t^2, interpolated at the Chebyshev points of
# |t| <= 1/2; in single precision they are right to 2e-7.
SINE = (3.14159264, -5.16771008, 2.55007739, -0.598290411, 0.0776559122)
COSINE = (1.0, -4.93480214, 4.05870915, -1.33521195, 0.234937068, -0.024395932)

BLOCKS = 2


def key(seed: Scalar) -> Array:
    """Return the random key of a seed, an integer of up to 32 bits (traced or not)."""
    return jax.random.key(seed, impl=THREEFRY)


def is_own(dtype: DType) -> bool:
    """Return whether this is the dtype of the keys made here."""
    return bool(dtype == key(0).dtype)


@jax.jit  # so that a program that calls it often is traced and lowered faster
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


def normal(key: Array, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32) -> Array:
    r"""Draw standard normal numbers, in pairs, by the method of Box and Muller.

    .. math:: (z_1, z_2) = \pm\sqrt{-2 \log u}\,(\cos \pi t, \sin \pi t), \qquad
              u \in (0, 1], \; t \in [-\tfrac12, \tfrac12)

    One word of a counter gives u; the other t and the sign, so that half a circle, on which sine
    and cosine are short polynomials, is enough.

    Keys of another generator than Threefry and other dtypes go to ``jax.random.normal``.
    """
    raw = jax.random.key_data(key)
    if dtype != jnp.float32 or raw.shape != (2,):
        return jax.random.normal(key, shape, dtype)
    size = math.prod(shape)
    block = -(-size // (2 * BLOCKS))
    starts = jnp.arange(BLOCKS, dtype=jnp.uint32) * jnp.uint32(block)

    def draw(start: Array) -> Array:
        counters = start + jax.lax.iota(jnp.uint32, block)
        return _normal_pair(*threefry(raw[0], raw[1], jnp.zeros_like(counters), counters))

    # XLA would compute a pair anew for each of its two members, wherever they are used. The end of
    # a loop is what it does not fuse across, and a complex number what holds a pair together.
    pairs = jax.lax.map(draw, starts).reshape(-1)
    return jnp.concatenate([pairs.real, pairs.imag])[:size].reshape(shape)


def _normal_pair(first: Array, second: Array) -> Array:
    """Turn two random words into a complex number of independent normal parts."""
    u = 2.0 - _from_one_to_two(first)
    t = _from_one_to_two(second) - 1.5
    radius = jnp.sqrt(-2.0 * jnp.log(u))
    # The lowest bit, of which t makes no use, becomes the sign.
    signed = jax.lax.bitcast_convert_type(radius, jnp.uint32) | (second << jnp.uint32(31))
    radius = jax.lax.bitcast_convert_type(signed, jnp.float32)
    square = t * t
    return jax.lax.complex(
        radius * _polynomial(COSINE, square), radius * t * _polynomial(SINE, square)
    )


def _from_one_to_two(word: Array) -> Array:
    """Return a uniform number in [1, 2), whose mantissa is the upper 23 bits of a word."""
    mantissa = (word >> jnp.uint32(9)) | jnp.uint32(0x3F80_0000)
    return jax.lax.bitcast_convert_type(mantissa, jnp.float32)


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    value = jnp.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + coefficient
    return value


def _encrypt_counters(raw: Array, size: int) -> tuple[Array, Array]:
    """Encrypt 0, 1, 2, ..., size - 1."""
    if size >= 2**32:
        raise ValueError(f"One draw encrypts fewer than 2^32 counters, not {size}; draw in parts.")
    counters = jax.lax.iota(jnp.uint32, size)
    words: tuple[Array, Array] = threefry(raw[0], raw[1], jnp.zeros_like(counters), counters)
    return words


def _seed(seed: Scalar) -> Array:
    seed = jnp.asarray(seed)
    low = seed.astype(jnp.uint32)
    wide = seed.dtype.itemsize > 4
    high = jax.lax.shift_right_logical(seed, seed.dtype.type(32)) if wide else jnp.uint32(0)
    return jnp.stack([high.astype(jnp.uint32), low])


def _split(raw: Array, shape: tuple[int, ...]) -> Array:
    words = _encrypt_counters(raw, math.prod(shape))
    return _computed_once(jnp.stack(words, axis=-1).reshape(*shape, 2))


def _random_bits(raw: Array, width: int, shape: tuple[int, ...]) -> Array:
    size = math.prod(shape)
    if width == 64:
        high, low = (word.astype(jnp.uint64) for word in _encrypt_counters(raw, size))
        return jnp.reshape((high << jnp.uint64(32)) | low, shape)
    words = _encrypt_counters(raw, -(-size // 2))
    return jnp.concatenate(words)[:size].reshape(shape).astype(f"uint{width}")


def _fold_in(raw: Array, data: Scalar) -> Array:
    high, low = _seed(data)
    return _computed_once(jnp.stack(threefry(raw[0], raw[1], high, low)))


def _computed_once(keys: Array) -> Array:
    """Keep XLA from writing the cipher out again wherever one of these keys is used."""
    kept: Array = jax.lax.optimization_barrier(keys)  # type: ignore[no-untyped-call]
    return kept


THREEFRY = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="valuetrack_threefry",
    tag="vtf",
)
