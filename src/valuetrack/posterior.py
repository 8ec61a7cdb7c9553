r"""A pool of posterior samples, and everything that is computed from one.

The pool is a ring of the last samples, of parameters or of values at chosen states. It works
inside ``jit``, ``vmap`` and ``scan``. Every summary counts only the slots that have been filled.

A pool of NumPy arrays is summarised in NumPy, one of JAX arrays in JAX. That matters for
quantiles: NumPy sorts a pool of 3000 samples of 400 values in 8 ms, whereas XLA's sort takes some
200 ms on a CPU, as long as a thousand updates.

There are two kinds of interval, and they are not the same thing:

* the **credible** interval, from quantile to quantile of the pool: where the value lies, given
  the data and the model;
* the **one-step prediction** interval, centred on the *latest* sample with half the width of the
  credible one on either side: where the paper's coverage rates come from.

Examples
--------
>>> pool = from_samples(np.array([[1.0, 4.0], [3.0, 2.0]]))
>>> mean(pool)
array([2., 3.])
>>> policy_probabilities(pool)
array([0.5, 0.5])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack.arviz_data import InferenceData, inference_data
from valuetrack.io.arrays import to_arrays
from valuetrack.types import Array, NDArray, Scalar, Tree

IntervalKind = Literal["credible", "prediction"]
Levels = float | Sequence[float] | NDArray
"""One level, or several of which each gets an axis of its own."""


class Pool(NamedTuple):
    """A ring of weighted samples.

    Attributes
    ----------
    samples
        The pytree of a sample, each leaf with a leading axis of the pool's size.
    weights
        The weight of each sample, the step size it was drawn with; zero in an empty slot.
    position
        Where the next sample goes.
    filled
        How many slots hold a sample.
    """

    samples: Tree
    weights: Array
    position: Array
    filled: Array

    @property
    def size(self) -> int:
        """How many samples fit."""
        return int(self.weights.shape[0])


class Interval(NamedTuple):
    """Lower and upper ends, in the structure of a sample."""

    low: Tree
    high: Tree


def init(example: Tree, size: int) -> Pool:
    """Make an empty pool for samples with the structure, shapes and dtypes of ``example``."""
    if size < 1:
        raise ValueError(f"A pool needs room for at least one sample, not {size}.")
    samples = jax.tree.map(lambda x: jnp.zeros((size, *jnp.shape(x)), jnp.result_type(x)), example)
    return Pool(samples, jnp.zeros(size), jnp.int32(0), jnp.int32(0))


def add(pool: Pool, sample: Tree, weight: Scalar = 1.0, slot: Scalar | None = None) -> Pool:
    """Put in one sample, in place of the oldest once the pool is full.

    Parameters
    ----------
    pool, sample, weight
        The sample, and what it weighs in :func:`weighted_mean`: the step size it was drawn with.
    slot
        Where to put it; by default behind the last one. Whoever maps this over many pools gives
        the slot as one number for all, so that they are written by one slice and not by a scatter.
        Slots are filled in their order; writing the last one again replaces its sample.
    """
    at = pool.position if slot is None else slot

    def write(stored: Array, new: Scalar) -> Array:
        new = jnp.asarray(new, stored.dtype)[None]
        return jax.lax.dynamic_update_slice_in_dim(stored, new, at, axis=0)

    return Pool(
        samples=jax.tree.map(write, pool.samples, sample),
        weights=write(pool.weights, weight),
        position=jnp.asarray((at + 1) % pool.size, jnp.int32),
        filled=jnp.maximum(pool.filled, at + 1),
    )


def from_samples(samples: Tree, weights: Array | NDArray | None = None) -> Pool:
    """Wrap samples, from the oldest to the latest along the leading axis, as a full pool.

    NumPy arrays stay NumPy arrays. Without weights all samples weigh the same.
    """
    lengths = {len(leaf) for leaf in jax.tree.leaves(samples)}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            f"The leaves of a pool hold equally many samples, at least one; these hold {lengths}."
        )
    (count,) = lengths
    xp = _module_of(samples)
    given = xp.ones(count, np.float32) if weights is None else xp.asarray(weights)
    if given.shape != (count,):
        raise ValueError(f"{count} samples have {count} weights, not weights of {given.shape}.")
    return Pool(samples, given, xp.int32(0), xp.int32(count))


def from_updates(values: NDArray, size: int | None = None) -> Pool:
    """Make a pool of the last ``size`` samples of values that were recorded after every update.

    ``values`` has the shape (updates, heads, ...), as :meth:`valuetrack.training.trainer.Trainer.
    run` returns it for one seed. Every head counts as a sample, so the pool holds ``heads``
    samples per update.
    """
    updates, heads, *rest = values.shape
    size = updates * heads if size is None else size
    if size % heads:
        raise ValueError(
            f"A pool of {size} samples does not hold whole updates of {heads} heads; choose a "
            f"multiple of {heads}."
        )
    return from_samples(values.reshape(updates * heads, *rest)[-size:])


def latest(pool: Pool) -> Tree:
    """Return the sample that was put in last."""
    return jax.tree.map(lambda x: x[(pool.position - 1) % pool.size], pool.samples)


def mean(pool: Pool) -> Tree:
    """Return the plain average of the samples."""
    if _module_of(pool.samples) is jnp:
        return _average(pool, _is_filled(pool).astype(pool.weights.dtype))
    with np.errstate(invalid="ignore"):
        return jax.tree.map(
            lambda x: x[: pool.filled].sum(axis=0, dtype=np.float64) / pool.filled, pool.samples
        )


def weighted_mean(pool: Pool) -> Tree:
    r"""Return :math:`\sum_k \epsilon_k \phi_k / \sum_k \epsilon_k`, the estimator of Remark 1.

    With decreasing steps the late samples lie closer together in the sampler's own time; the
    weights undo that. Samples that all have the weight zero, as after a step size has fallen to
    zero, count the same.
    """
    xp = _module_of(pool.samples)
    weights = xp.asarray(pool.weights)
    equal = _is_filled(pool).astype(weights.dtype)
    return _average(pool, xp.where(xp.any(weights != 0), weights, equal))


def _average(pool: Pool, weights: Array) -> Tree:
    xp = _module_of(pool.samples)
    dtype = np.float64 if xp is np else weights.dtype
    weights = xp.asarray(weights, dtype)
    with np.errstate(invalid="ignore"):
        return jax.tree.map(
            lambda x: xp.tensordot(weights, x.astype(dtype), axes=1) / xp.sum(weights),
            pool.samples,
        )


def variance(pool: Pool) -> Tree:
    """Return the samples' variance, with the number of samples minus one below the bar.

    Fewer than two samples have none: NaN.
    """
    xp = _module_of(pool.samples)

    def leaf(x: Array, centre: Array) -> Tree:
        squares = xp.where(_column(_is_filled(pool), x), (x - centre) ** 2, 0.0)
        with np.errstate(invalid="ignore"):
            return squares.sum(axis=0) / xp.maximum(pool.filled - 1, 0)

    return jax.tree.map(leaf, pool.samples, mean(pool))


def std(pool: Pool) -> Tree:
    """Return the samples' standard deviation, the square root of :func:`variance`."""
    return jax.tree.map(_module_of(pool.samples).sqrt, variance(pool))


def quantile(pool: Pool, q: Levels) -> Tree:
    """Return the q-quantiles of the samples, interpolated linearly as NumPy does.

    ``q`` is a number or an array; an array gives each leaf leading axes of its shape, all from
    one sort. As in NumPy, a NaN among the samples makes every quantile NaN; so does an empty pool.
    """
    xp = _module_of(pool.samples)
    wanted = xp.asarray(q, float)
    rank = wanted * (pool.filled - 1)
    below, above = (end.astype(np.int32) for end in (xp.floor(rank), xp.ceil(rank)))
    share = (rank - below)[..., None]

    def leaf(x: Array) -> Tree:
        # Empty slots sort to the end, where no rank reaches them, and a NaN behind them.
        rows = xp.where(_column(_is_filled(pool), x), x, xp.inf).reshape(pool.size, -1)
        ordered = xp.sort(rows.T.copy()).T  # along memory, which is fastest
        dtype = xp.result_type(ordered, np.float32)
        with np.errstate(invalid="ignore"):
            value = ordered[below] * (1 - share).astype(dtype) + ordered[above] * share.astype(
                dtype
            )
        undefined = xp.isnan(ordered[-1]) | (pool.filled == 0)
        return xp.where(undefined, xp.nan, value).reshape(wanted.shape + x.shape[1:])

    return jax.tree.map(leaf, pool.samples)


def samples_needed(level: float) -> int:
    """Return how many samples an interval of this level needs: one beyond each of its ends.

    Examples
    --------
    >>> samples_needed(0.95), samples_needed(0.5)
    (40, 4)
    """
    if not 0 < level < 1:
        raise ValueError(f"The level of an interval lies between 0 and 1; {level} does not.")
    return math.ceil(2 / (1 - level) - 1e-9)


def credible_interval(pool: Pool, level: Levels = 0.95) -> Interval:
    """Return the equal-tailed interval between two quantiles of the pool.

    A sequence of levels gives each end a leading axis, all from one sort.
    """
    levels = np.asarray(level, np.float64)
    if not np.all((levels > 0) & (levels < 1)):
        raise ValueError(f"The level of an interval lies between 0 and 1; {level} does not.")
    ends = quantile(pool, np.stack([(1 - levels) / 2, (1 + levels) / 2]))
    return Interval(*(jax.tree.map(lambda x, end=end: x[end], ends) for end in (0, 1)))


def prediction_interval(pool: Pool, level: Levels = 0.95, centre: Tree | None = None) -> Interval:
    """Return the one-step prediction interval: the same width, around the latest sample.

    ``centre`` takes the place of the latest sample, such as the mean over the heads of the last
    update.
    """
    low, high = credible_interval(pool, level)
    half = jax.tree.map(lambda low, high: (high - low) / 2, low, high)
    middle = latest(pool) if centre is None else centre
    low = jax.tree.map(lambda x, h: x - h, middle, half)
    return Interval(low, jax.tree.map(lambda x, h: x + h, middle, half))


def interval(
    pool: Pool, level: Levels = 0.95, kind: IntervalKind = "credible", centre: Tree | None = None
) -> Interval:
    """Return the interval of the kind named; ``centre`` is that of a prediction interval."""
    if kind == "credible":
        return credible_interval(pool, level)
    if kind == "prediction":
        return prediction_interval(pool, level, centre)
    raise ValueError(f"An interval is 'credible' or 'prediction', not {kind!r}.")


def policy_probabilities(pool: Pool, mask: Array | NDArray | None = None) -> Tree:
    r"""Return how often each action is the greedy one, the paper's mean policy probability.

    .. math:: p(a \mid s) = \frac{1}{|\varrho|} \sum_{\rho \in \varrho} 1\{\rho(s) = a\}

    The samples are one array of Q-values with the actions on the last axis; ``mask`` marks the
    legal ones. A state without a legal action gets zeros. A NaN among a state's legal values has
    no greedy action, and makes the state's probabilities NaN.
    """
    xp = _module_of(pool.samples)
    (values,) = jax.tree.leaves(pool.samples)
    legal = values if mask is None else xp.where(mask, values, -xp.inf)
    is_greedy = xp.argmax(legal, axis=-1)[..., None] == xp.arange(values.shape[-1])
    filled = _column(_is_filled(pool), values)
    unknown = (xp.isnan(legal) & filled).any(axis=(0, -1))[..., None]
    with np.errstate(invalid="ignore"):
        share = (is_greedy & filled).sum(axis=0) / pool.filled
    share = xp.where(unknown, xp.nan, share)
    return share if mask is None else xp.where(mask, share, 0.0)


def order(pool: Pool) -> NDArray:
    """Return the filled slots from the oldest sample to the latest."""
    filled, position = int(pool.filled), int(pool.position)
    start = position if filled == pool.size else 0
    return (start + np.arange(filled)) % pool.size


def in_order(pool: Pool) -> Tree:
    """Return the samples as NumPy arrays from the oldest to the latest, empty slots left out."""
    slots = order(pool)
    return jax.tree.map(lambda x: np.asarray(x)[slots], pool.samples)


def to_arviz(pools: Pool | Sequence[Pool], name: str = "theta") -> InferenceData:
    """Export one pool per chain for ArviZ (needs the extra ``arviz``).

    Leaves of a pytree become variables named after their path, for instance
    ``theta.body.0.w``; a pool of plain arrays becomes the one variable ``name``. Chains must hold
    equally many samples.
    """
    chains = [pools] if isinstance(pools, Pool) else list(pools)
    lengths = {int(pool.filled) for pool in chains}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            f"Chains must hold equally many samples, at least one; they hold {lengths}."
        )
    stacked = jax.tree.map(lambda *xs: np.stack(xs), *[in_order(pool) for pool in chains])
    return inference_data(to_arrays(stacked, name))


def _module_of(samples: Tree) -> ModuleType:
    """Return NumPy for samples that are NumPy arrays, and JAX's for all others."""
    on_host = all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(samples))
    return np if on_host else jnp


def _is_filled(pool: Pool) -> Array:
    """Return which slots hold a sample."""
    filled: Array = _module_of(pool.samples).arange(pool.size) < pool.filled
    return filled


def _column(mask: Array, like: Array) -> Array:
    """Give a mask over samples the axes that it needs to act on ``like``."""
    return mask.reshape(-1, *(1,) * (like.ndim - 1))
