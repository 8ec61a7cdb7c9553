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
    rng = np.random.default_rng(0)
    sizes = (quantiles, targets)
    return [2 * rng.normal(size=(*shape, size)).astype(np.float32) for size in sizes]


@pytest.mark.parametrize("shape", [(), (6,), (2, 3)])
@pytest.mark.parametrize("quantiles", [1, 5])
def test_value_and_gradient_are_those_of_the_formula(shape, quantiles):
    current, target = example(shape, quantiles)
    weights = np.arange(1.0, 1.0 + current.size, dtype=np.float32).reshape(current.shape)

    def value_and_gradient(loss):
        def weighted(q):
            value = loss(q, target)
            return jnp.sum(weights * value), value

        (_, value), gradient = jax.jit(jax.value_and_grad(weighted, has_aux=True))(current)
        return value, gradient

    (value, ours), (formula, theirs) = map(value_and_gradient, (quantile_huber, plain))
    np.testing.assert_allclose(value, formula, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert np.abs(ours).max() > 0.1


def test_forward_mode_and_batches_of_seeds():
    current, target = example()
    direction = np.cos(np.arange(current.size, dtype=np.float32)).reshape(current.shape)
    ours, theirs = (
        jax.jit(lambda q, t, f=f: jax.jvp(lambda q: f(q, target), (q,), (t,))[1])(
            current, direction
        )
        for f in (quantile_huber, plain)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    seeds = [np.stack([x, 2 * x]) for x in (current, target)]
    slope = jax.grad(lambda q, y: quantile_huber(q, y).sum())
    gradient = jax.jit(jax.vmap(slope))(*seeds)
    alone = jax.jit(slope)(2 * current, 2 * target)
    np.testing.assert_allclose(gradient[1], alone, rtol=1e-6)


def test_levels_may_differ_from_row_to_row():
    current, target = example()
    levels = np.random.default_rng(3).random(current.shape, np.float32)
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
