"""How far a pool of sampled values is from values that are known exactly."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from valuetrack.types import Array


class ValueMetrics(NamedTuple):
    """Averages over the legal states of each action; every field has the shape (actions,).

    Attributes
    ----------
    mse
        Of the pool's mean: (mean Q - true Q)^2.
    coverage
        How often the one-step prediction interval covers the true value, averaged over recent
        samples as centres.
    credible_coverage
        How often the interval between the pool's quantiles covers it.
    width
        Of the interval, upper end minus lower; both kinds are equally wide.
    """

    mse: Array
    coverage: Array
    credible_coverage: Array
    width: Array


def value_metrics(
    pool: Array, recent: Array, truth: Array, legal: Array, level: float = 0.95
) -> ValueMetrics:
    """Compare a full pool with the truth.

    Parameters
    ----------
    pool
        Samples of Q-values, (size, states, actions), in any order.
    recent
        The samples around which prediction intervals are centred, (m, states, actions): usually
        the latest one, or the latest few of a pool that has hardly moved in between.
    truth, legal
        The true values and which of them count, (states, actions).
    level
        Of the intervals.
    """
    low, high = tail_quantiles(pool, level)
    half = (high - low) / 2
    predicted = jnp.mean(jnp.abs(recent - truth) < half, axis=0)
    credible = ((low < truth) & (truth < high)).astype(half.dtype)
    return ValueMetrics(
        mse=_legal_mean((jnp.mean(pool, axis=0) - truth) ** 2, legal),
        coverage=_legal_mean(predicted, legal),
        credible_coverage=_legal_mean(credible, legal),
        width=_legal_mean(high - low, legal),
    )


def calibration(
    pool: Array, recent: Array, truth: Array, legal: Array, levels: Array
) -> tuple[Array, Array]:
    """Return prediction and credible coverage at several levels, each (levels, actions)."""
    tails = (1 - levels) / 2
    ends = jnp.quantile(pool, jnp.concatenate([tails, 1 - tails]), axis=0)
    low, high = jnp.split(ends, 2)

    def at_level(low: Array, high: Array) -> tuple[Array, Array]:
        predicted = jnp.mean(jnp.abs(recent - truth) < (high - low) / 2, axis=0)
        credible = ((low < truth) & (truth < high)).astype(low.dtype)
        return _legal_mean(predicted, legal), _legal_mean(credible, legal)

    return jax.vmap(at_level)(low, high)


def tail_quantiles(pool: Array, level: float) -> tuple[Array, Array]:
    """Return the quantiles at (1 - level)/2 and (1 + level)/2 along the first axis.

    They lie near the ends, so selecting the few extreme samples does; a full sort costs ten times
    as much here. Interpolated linearly, as NumPy does.
    """
    size = pool.shape[0]
    rank = (1 - level) / 2 * (size - 1)
    below = int(rank)
    share = rank - below
    count = min(below + 2, size)
    columns = jnp.moveaxis(pool, 0, -1)

    def from_top(values: Array) -> Array:
        extremes = jax.lax.top_k(values, count)[0]
        return extremes[..., below] * (1 - share) + extremes[..., count - 1] * share

    return -from_top(-columns), from_top(columns)


def _legal_mean(values: Array, legal: Array) -> Array:
    """Average over states, the first axis, counting only where the action is legal."""
    return jnp.sum(jnp.where(legal, values, 0.0), axis=0) / jnp.sum(legal, axis=0)
