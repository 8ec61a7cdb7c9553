"""The losses of the two baselines that are not a plain measurement model."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from valuetrack.measurement import TargetBatch
from valuetrack.policies import greedy, select
from valuetrack.types import Apply, Array, Params, Transition


class BootstrapBatch(NamedTuple):
    """A target batch, and which head learns from which transition: booleans (heads, n)."""

    batch: TargetBatch
    mask: Array


def bootstrapped_mask(
    heads: int, probability: float
) -> Callable[[Array, TargetBatch], BootstrapBatch]:
    """Return the function that draws a Bernoulli mask for every head and transition."""
    if not 0 < probability <= 1:
        raise ValueError(f"mask_probability must lie in (0, 1], not {probability}.")

    def prepare(key: Array, batch: TargetBatch) -> BootstrapBatch:
        n = batch.transitions.reward.shape[0]
        return BootstrapBatch(batch, jax.random.bernoulli(key, probability, (heads, n)))

    return prepare


def bootstrapped_loss(apply: Apply, *, double: bool) -> Callable[[Params, BootstrapBatch], Array]:
    r"""Return the mean over heads of each head's mean squared error on its own transitions.

    Head h is compared with :math:`y_h = r + \gamma Q^-_h(s', a^*_h)`, where :math:`a^*_h` is the
    legal argmax of the head itself (with ``double``) or of its target.
    """

    def loss(params: Params, data: BootstrapBatch) -> Array:
        t = data.batch.transitions
        target = _next_value(apply, params, data.batch, double=double, axis=-2)  # (n, heads)
        target = t.reward[:, None] + t.discount[:, None] * target
        q = apply(params, t.observation)  # (n, heads, actions)
        chosen = select(q, jnp.broadcast_to(t.action[:, None], q.shape[:-1]))
        used = data.mask.T.astype(q.dtype)
        squares = jnp.sum(used * (chosen - target) ** 2, axis=0)
        return jnp.mean(squares / jnp.maximum(jnp.sum(used, axis=0), 1.0))

    return loss


def quantile_loss(apply: Apply, *, double: bool) -> Callable[[Params, TargetBatch], Array]:
    r"""Return the quantile Huber loss, summed over the predicted quantiles.

    .. math:: \frac1n \sum_{\text{batch}} \sum_{i=1}^M \frac1M \sum_{j=1}^M
              |\tau_i - 1\{u_{ij} < 0\}|\, \operatorname{Huber}_1(u_{ij}), \qquad
              u_{ij} = y_j - \theta_i(s, a), \quad \tau_i = \frac{i - 1/2}{M}

    References
    ----------
    Dabney, Rowland, Bellemare and Munos (2018). Distributional reinforcement learning with
    quantile regression. AAAI.
    """

    def loss(params: Params, data: TargetBatch) -> Array:
        t = data.transitions
        best = _greedy_next(apply, params, data, double=double)
        target = _of_action(apply(data.target_params, t.next_observation), best)
        target = jax.lax.stop_gradient(t.reward[:, None] + t.discount[:, None] * target)
        current = _of_action(apply(params, t.observation), t.action)  # (n, M)
        return jnp.mean(jnp.sum(quantile_huber(current, target), axis=-1))

    return loss


@jax.custom_jvp
def quantile_huber(current: Array, target: Array) -> Array:
    r"""Return :math:`\frac1M \sum_j |\tau_i - 1\{u_{ij} < 0\}| \operatorname{Huber}_1(u_{ij})`.

    ``current`` is (..., M) and ``target`` (..., M'), a constant. The derivative is written down
    below, and the sum over the targets is a loop, so that the M x M' pairs are never kept.
    """
    return _quantile_huber_and_slope(current, target)[0]


@quantile_huber.defjvp
def _quantile_huber_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    value, slope = _quantile_huber_and_slope(*primals)
    return value, slope * tangents[0]


def _quantile_huber_and_slope(current: Array, target: Array) -> tuple[Array, Array]:
    """Return the mean over the targets, and its derivative by ``current``."""
    count = current.shape[-1]
    level = (jnp.arange(count, dtype=current.dtype) + 0.5) / count

    def add(sums: tuple[Array, Array], one_target: Array) -> tuple[tuple[Array, Array], None]:
        error = one_target[..., None] - current
        size = jnp.abs(error)
        tilt = jnp.where(error < 0, 1.0 - level, level)
        value = tilt * jnp.where(size <= 1.0, 0.5 * error**2, size - 0.5)
        slope = -tilt * jnp.clip(error, -1.0, 1.0)
        return (sums[0] + value, sums[1] + slope), None

    none = (jnp.zeros_like(current), jnp.zeros_like(current))
    targets = jnp.moveaxis(target, -1, 0)
    (value, slope), _ = jax.lax.scan(add, none, targets, unroll=min(8, len(targets)))
    return value / len(targets), slope / len(targets)


def _greedy_next(apply: Apply, params: Params, data: TargetBatch, *, double: bool) -> Array:
    """Return the legal next action of the largest mean over quantiles."""
    chooser = params if double else data.target_params
    q = jnp.mean(apply(chooser, data.transitions.next_observation), axis=-1)
    return greedy(q, data.transitions.next_mask)


def _of_action(quantiles: Array, action: Array) -> Array:
    """Pick an action's quantiles from (n, actions, M)."""
    return select(jnp.swapaxes(quantiles, -1, -2), action[:, None])


def _next_value(
    apply: Apply, params: Params, data: TargetBatch, *, double: bool, axis: int
) -> Array:
    """Return every head's value of its own greedy legal next action, without gradient."""
    t: Transition = data.transitions
    target_q = apply(data.target_params, t.next_observation)
    chooser_q = apply(params, t.next_observation) if double else target_q
    mask = jnp.expand_dims(t.next_mask, axis)
    return jax.lax.stop_gradient(select(target_q, greedy(chooser_q, mask)))
