"""The quantile Huber loss and its derivative."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import as_users_compile
from valuetrack.losses import midpoint_levels
from valuetrack.losses import quantile_huber as huber_of_levels


def quantile_huber(current, target):
    return huber_of_levels(current, target, midpoint_levels(current))


def plain(current, target):
    """The formula, to be differentiated by JAX."""
    count = current.shape[-1]
    levels = (jnp.arange(count) + 0.5) / count
    error = target[..., None, :] - current[..., :, None]
    size = jnp.abs(error)
    huber = jnp.where(size <= 1.0, 0.5 * error**2, size - 0.5)
    return jnp.mean(jnp.abs(levels[:, None] - (error < 0)) * huber, axis=-1)


def example(shape=(6,), quantiles=5, targets=7):
    keys = jax.random.split(jax.random.key(0), 2)
    sizes = (quantiles, targets)
    return [
        2 * jax.random.normal(key, (*shape, size)) for key, size in zip(keys, sizes, strict=True)
    ]


@pytest.mark.parametrize("shape", [(), (6,), (2, 3)])
@pytest.mark.parametrize("quantiles", [1, 5])
def test_value_and_gradient_are_those_of_the_formula(shape, quantiles):
    current, target = example(shape, quantiles)
    np.testing.assert_allclose(
        quantile_huber(current, target), plain(current, target), rtol=1e-5, atol=1e-7
    )
    weights = 1.0 + jnp.arange(current.size).reshape(current.shape)
    ours, theirs = (
        jax.grad(lambda q, f=f: jnp.sum(weights * f(q, target)))(current)
        for f in (quantile_huber, plain)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert np.abs(ours).max() > 0.1


def test_forward_mode_and_batches_of_seeds():
    current, target = example()
    direction = jnp.cos(jnp.arange(current.size, dtype=jnp.float32)).reshape(current.shape)
    ours, theirs = (
        jax.jvp(lambda q, f=f: f(q, target), (current,), (direction,))[1]
        for f in (quantile_huber, plain)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    seeds = [jnp.stack([x, 2 * x]) for x in (current, target)]
    gradient = jax.vmap(jax.grad(lambda q, y: quantile_huber(q, y).sum()))(*seeds)
    alone = jax.grad(lambda q: quantile_huber(q, 2 * target).sum())(2 * current)
    np.testing.assert_allclose(gradient[1], alone, rtol=1e-6)


def test_levels_may_differ_from_row_to_row():
    current, target = example()
    levels = jax.random.uniform(jax.random.key(3), current.shape)
    by_row = [huber_of_levels(*row) for row in zip(current, target, levels, strict=True)]
    np.testing.assert_allclose(
        huber_of_levels(current, target, levels), np.stack(by_row), rtol=1e-5, atol=1e-7
    )


def test_no_pair_of_quantiles_is_kept():
    """The memory of the gradient grows with n M, not with n M^2."""

    def temporary(quantiles):
        current, target = example((64,), quantiles, quantiles)
        gradient = jax.jit(jax.grad(lambda q, y: quantile_huber(q, y).mean()))
        program = gradient.lower(current, target).compile(as_users_compile())
        return program.memory_analysis().temp_size_in_bytes

    assert temporary(200) < 64 * 200 * 4 * 10
