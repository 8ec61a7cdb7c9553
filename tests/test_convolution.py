"""Convolutions as matrix products are XLA's own, with their gradients."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from valuetrack import convolution, networks
from valuetrack.convolution import convolve

SHAPES = [  # images, height, width, channels, size, stride, outputs
    (2, 84, 84, 4, 8, 4, 32),
    (3, 20, 20, 32, 4, 2, 64),
    (3, 9, 9, 64, 3, 1, 64),
    (4, 10, 10, 4, 3, 1, 16),  # MinAtar's
    (4, 7, 9, 3, 3, 2, 5),  # the stride divides neither the kernel nor the sides
    (4, 11, 13, 2, 6, 4, 3),  # pieces of two pixels; rows and columns remain
    (4, 8, 7, 1, 2, 3, 2),  # pixels between the patches that no patch has
    (4, 5, 6, 2, 5, 5, 3),  # one row, one column
    (1, 6, 6, 3, 1, 1, 2),
    (0, 6, 6, 3, 2, 1, 2),
]


def plain(images, kernel, stride):
    dimensions = ("NHWC", "HWIO", "NHWC")
    images = images.astype(kernel.dtype)
    return jax.lax.conv_general_dilated(
        images, kernel, (stride, stride), "VALID", dimension_numbers=dimensions
    )


def drawn(shape, seeds=()):
    count, height, width, channels, size, stride, outputs = shape
    rng = np.random.default_rng(sum(shape))
    sides = (height - size) // stride + 1, (width - size) // stride + 1
    sizes = (
        (count, height, width, channels),
        (size, size, channels, outputs),
        (count, *sides, outputs),
    )
    return [rng.normal(size=(*seeds, *each)).astype(np.float32) for each in sizes]


@functools.partial(jax.jit, static_argnums=(0, 4))
def value_and_back(f, images, kernel, g, stride):
    value, pull_back = jax.vjp(lambda x, w: f(x, w, stride), images, kernel)
    return value, *pull_back(g)


def check_equal(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        scale = np.abs(other).max(initial=1e-30)
        np.testing.assert_allclose(one / scale, other / scale, rtol=0, atol=2e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_value_and_gradients_are_those_of_a_convolution(shape):
    given = (*drawn(shape), shape[5])
    check_equal(value_and_back(convolve, *given), value_and_back(plain, *given))


@pytest.mark.parametrize("images_per_block", [1, 2, 4])
def test_blocks_and_what_remains_make_the_whole(images_per_block, monkeypatch):
    shape = (7, 7, 9, 3, 3, 2, 5)
    monkeypatch.setattr(convolution, "BLOCK", images_per_block * 3 * 4 * 27)
    given = (*drawn(shape), shape[5])
    ours = jax.jit(functools.partial(value_and_back.__wrapped__, convolve), static_argnums=3)
    text = str(jax.make_jaxpr(lambda x, w: convolve(x, w, 2))(*given[:2]))
    assert f"length={7 // images_per_block}" in text
    check_equal(ours(*given), value_and_back(plain, *given))


@pytest.mark.parametrize("block", [1, convolution.BLOCK])
def test_several_seeds_have_kernels_of_their_own(block, monkeypatch):
    monkeypatch.setattr(convolution, "BLOCK", block)
    shape = (3, 9, 8, 2, 4, 2, 3)
    images, kernel, g = drawn(shape, seeds=(5,))

    def mapped(f):
        return jax.jit(jax.vmap(lambda *given: value_and_back.__wrapped__(f, *given, 2)))

    check_equal(mapped(convolve)(images, kernel, g), mapped(plain)(images, kernel, g))
    # One batch of images for many kernels, as a pool of samples has it.
    many = jax.jit(jax.vmap(lambda w: convolve(images[0], w, 2)))(kernel)
    check_equal(many, jax.vmap(lambda w: plain(images[0], w, 2))(kernel))


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int32, np.float16])
def test_images_of_any_dtype_are_computed_in_that_of_the_kernel(dtype):
    _, kernel, g = drawn(SHAPES[3])
    images = np.random.default_rng(0).integers(0, 256, (4, 10, 10, 4)).astype(dtype)

    def gradient(f):
        value, pull_back = jax.vjp(lambda w: f(jnp.asarray(images), w, 1), kernel)
        return value, pull_back(g)[0]

    ours = jax.jit(functools.partial(gradient, convolve))()
    assert {each.dtype for each in ours} == {np.dtype(np.float32)}
    check_equal(ours, jax.jit(functools.partial(gradient, plain))())


def test_the_network_of_mnih_et_al_is_the_one_of_plain_convolutions(monkeypatch):
    network = networks.cnn((84, 84, 4), 3, hidden=(16,))
    params = network.init(jax.random.key(0))
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 84, 84, 4), dtype=np.uint8)
    weights = rng.normal(size=(6, 3)).astype(np.float32)

    called = []

    def value_and_gradient():
        return jax.jit(jax.value_and_grad(lambda p: jnp.sum(weights * network.apply(p, images))))(
            params
        )

    def noted(*given):
        called.append(given)
        return plain(*given)

    ours = value_and_gradient()
    monkeypatch.setattr(networks, "convolve", noted)
    theirs = value_and_gradient()
    assert len(called) == 3
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        scale = np.abs(other).max()
        np.testing.assert_allclose(one / scale, other / scale, rtol=0, atol=1e-5)


def test_the_patches_of_a_batch_are_never_all_in_memory():
    def loss(kernel, images):
        return jnp.sum(jnp.tanh(convolve(images, kernel, 4)))

    given = (
        jax.ShapeDtypeStruct((8, 8, 4, 32), np.float32),
        jax.ShapeDtypeStruct((64, 84, 84, 4), np.uint8),
    )
    program = jax.jit(jax.grad(loss)).lower(*given).compile()
    patches, output = 64 * 20 * 20 * 256 * 4, 64 * 20 * 20 * 32 * 4
    assert program.memory_analysis().temp_size_in_bytes < patches / 2 + output
