"""The quantile Huber loss, which QR-DQN and IQN minimise."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from valuetrack.types import Array


def midpoint_levels(quantiles: Array) -> Array:
    r"""Return the levels :math:`\tau_i = (i - 1/2) / M` of M quantiles on the last axis."""
    count = quantiles.shape[-1]
    return (jnp.arange(count, dtype=quantiles.dtype) + 0.5) / count


@jax.custom_jvp
def quantile_huber(current: Array, target: Array, levels: Array) -> Array:
    r"""Return the quantile Huber loss of each quantile, averaged over the targets.

    .. math:: \frac{1}{M'} \sum_{j=1}^{M'} |\tau_i - 1\{u_{ij} < 0\}|
              \operatorname{Huber}_1(u_{ij}), \qquad u_{ij} = y_j - \theta_i

    Parameters
    ----------
    current
        The quantiles :math:`\theta`, (..., M).
    target
        Samples or quantiles :math:`y` of the target, (..., M'); a constant.
    levels
        :math:`\tau`, (M,) or (..., M); a constant.

    Notes
    -----
    The derivative is written down below, and the sum over the targets is a loop, so that the
    M x M' pairs are never kept.

    References
    ----------
    Dabney, Rowland, Bellemare and Munos (2018). Distributional reinforcement learning with
    quantile regression. AAAI. https://arxiv.org/abs/1710.10044
    """
    return _value_and_slope(current, target, levels)[0]


@quantile_huber.defjvp
def _quantile_huber_jvp(
    primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    value, slope = _value_and_slope(*primals)
    return value, slope * tangents[0]


def _value_and_slope(current: Array, target: Array, levels: Array) -> tuple[Array, Array]:
    """Return the mean over the targets, and its derivative by ``current``."""

    def add(sums: tuple[Array, Array], one_target: Array) -> tuple[tuple[Array, Array], None]:
        error = one_target[..., None] - current
        size = jnp.abs(error)
        tilt = jnp.where(error < 0, 1.0 - levels, levels)
        value = tilt * jnp.where(size <= 1.0, 0.5 * error**2, size - 0.5)
        slope = -tilt * jnp.clip(error, -1.0, 1.0)
        return (sums[0] + value, sums[1] + slope), None

    none = (jnp.zeros_like(current), jnp.zeros_like(current))
    targets = jnp.moveaxis(target, -1, 0)
    (value, slope), _ = jax.lax.scan(add, none, targets, unroll=min(8, len(targets)))
    return value / len(targets), slope / len(targets)
