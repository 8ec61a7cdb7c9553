"""Convolutions as patches times a matrix, a few images at a time.

XLA's own convolutions on a CPU are twenty times slower inside a loop than outside, and all training
here is a loop. A matrix product has no such trouble, and a convolution is one: each output pixel
is the product of a patch of the image, as a row, with the kernel, as a matrix. All patches of a
batch would be a large array (26 MB for 64 images of 84 x 84 x 4 and a kernel of 8 with stride 4),
for which a program gets fresh memory from the system at every call; those of a few images stay in
the cache, and the gradient makes them again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from valuetrack.types import Array, Tree

BLOCK = 2**19
"""How many numbers the patches of a block of images may have: 2 MB of float32."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def convolve(images: Array, kernel: Array, stride: int) -> Array:
    r"""Convolve images with a square kernel, without padding.

    .. math:: y_{n,i,j,o} = \sum_{a,b,c} x_{n,\,is+a,\,js+b,\,c}\, w_{a,b,c,o}

    Differentiated in reverse only, and with respect to images if they are of floats.

    Parameters
    ----------
    images
        (images, height, width, channels), of any dtype; computed in the kernel's.
    kernel
        (size, size, channels, outputs).
    stride
        s, the same for both axes.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> convolve(jnp.ones((64, 84, 84, 4)), jnp.ones((8, 8, 4, 32)), 4).shape
    (64, 20, 20, 32)
    """
    size, outputs = kernel.shape[0], kernel.shape[-1]

    def convolve_block(nothing: Tree, block: Array) -> tuple[Tree, Array]:
        rows = patches(block, size, stride).astype(kernel.dtype)
        return nothing, rows @ kernel.reshape(-1, outputs)

    count = _images_per_block(images, size, stride)
    output: Array = _scan_blocks(convolve_block, (), images, count)[1]
    return output


def _forward(images: Array, kernel: Array, stride: int) -> tuple[Array, tuple[Array, Array]]:
    return convolve(images, kernel, stride), (images, kernel)


def _backward(stride: int, saved: tuple[Array, Array], g: Array) -> tuple[Array | None, Array]:
    images, kernel = saved
    size, outputs = kernel.shape[0], kernel.shape[-1]
    matrix = kernel.reshape(-1, outputs)
    of_floats = jnp.issubdtype(images.dtype, jnp.floating)

    def backward_block(total: Array, block: tuple[Array, Array]) -> tuple[Array, Tree]:
        x, g = block
        rows, pull_back = jax.vjp(lambda x: patches(x, size, stride).astype(kernel.dtype), x)
        # The product this way round: with rows.T on the left it takes up to three times as long.
        total = total + g.reshape(-1, outputs).T @ rows.reshape(-1, len(matrix))
        return total, pull_back(g @ matrix.T) if of_floats else ()

    total, image_gradient = _scan_blocks(
        backward_block,
        jnp.zeros((outputs, len(matrix)), kernel.dtype),
        (images, g),
        _images_per_block(images, size, stride),
    )
    return image_gradient[0] if of_floats else None, total.T.reshape(kernel.shape)


convolve.defvjp(_forward, _backward)


def patches(images: Array, size: int, stride: int) -> Array:
    """Return the patch of every output pixel: (images, rows, columns, size * size * channels).

    A patch is put together from slices of the images, as large as the stride allows: pixels that
    stand beside each other in a row, and in every patch, are one piece.
    """
    count, height, _, channels = images.shape
    rows, columns = output_sides(images.shape, size, stride)
    piece = math.gcd(size, stride)
    used = (columns - 1) * stride + size
    pieces = images[:, :, :used].reshape(count, height, used // piece, piece * channels)
    step = stride // piece
    slices = [
        pieces[:, i : i + (rows - 1) * stride + 1 : stride, j : j + (columns - 1) * step + 1 : step]
        for i in range(size)
        for j in range(size // piece)
    ]
    return jnp.concatenate(slices, axis=-1)


def output_sides(shape: tuple[int, ...], size: int, stride: int) -> tuple[int, int]:
    """Return how many rows and columns leave a convolution of images of this shape."""
    height, width = shape[-3:-1]
    return (height - size) // stride + 1, (width - size) // stride + 1


def _images_per_block(images: Array, size: int, stride: int) -> int:
    """Return the largest power of two, at least 1, whose patches fit into a block."""
    rows, columns = output_sides(images.shape, size, stride)
    numbers = rows * columns * size * size * images.shape[-1]
    fitting = max(1, BLOCK // max(1, numbers))
    return 1 << (fitting.bit_length() - 1)


def _scan_blocks(
    f: Callable[[Tree, Tree], tuple[Tree, Tree]], carry: Tree, arrays: Tree, size: int
) -> tuple[Tree, Tree]:
    """Scan f over blocks of ``size`` images and what remains; join the outputs of all images."""
    count = len(jax.tree.leaves(arrays)[0])
    whole = count - count % size
    if count <= size:
        return f(carry, arrays)
    blocks = jax.tree.map(lambda a: a[:whole].reshape(-1, size, *a.shape[1:]), arrays)
    carry, outputs = jax.lax.scan(f, carry, blocks)
    outputs = jax.tree.map(lambda a: a.reshape(whole, *a.shape[2:]), outputs)
    if whole == count:
        return carry, outputs
    carry, rest = f(carry, jax.tree.map(lambda a: a[whole:], arrays))
    return carry, jax.tree.map(lambda a, b: jnp.concatenate([a, b]), outputs, rest)
