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

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack.policies import greedy, masked_values
from valuetrack.types import Array, NDArray

if TYPE_CHECKING:
    import arviz

IntervalKind = Literal["credible", "prediction"]


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

    samples: Any
    weights: Array
    position: Array
    filled: Array

    @property
    def size(self) -> int:
        """How many samples fit."""
        return int(self.weights.shape[0])


class Interval(NamedTuple):
    """Lower and upper ends, in the structure of a sample."""

    low: Any
    high: Any


def init(example: Any, size: int) -> Pool:
    """Make an empty pool for samples with the structure, shapes and dtypes of ``example``."""
    if size < 1:
        raise ValueError(f"A pool needs room for at least one sample, not {size}.")
    samples = jax.tree.map(lambda x: jnp.zeros((size, *jnp.shape(x)), jnp.result_type(x)), example)
    return Pool(samples, jnp.zeros(size), jnp.int32(0), jnp.int32(0))


def add(pool: Pool, sample: Any, weight: Any = 1.0, slot: Any = None) -> Pool:
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

    def write(stored: Array, new: Any) -> Array:
        new = jnp.asarray(new, stored.dtype)[None]
        return jax.lax.dynamic_update_slice_in_dim(stored, new, at, axis=0)

    return Pool(
        samples=jax.tree.map(write, pool.samples, sample),
        weights=write(pool.weights, weight),
        position=jnp.asarray((at + 1) % pool.size, jnp.int32),
        filled=jnp.maximum(pool.filled, at + 1),
    )


def from_samples(samples: Any, weights: Any = None) -> Pool:
    """Wrap samples, from the oldest to the latest along the leading axis, as a full pool.

    NumPy arrays stay NumPy arrays. Without weights all samples weigh the same.
    """
    lengths = {len(leaf) for leaf in jax.tree.leaves(samples)}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            f"The leaves of a pool hold equally many samples, at least one; these hold {lengths}."
        )
    (count,) = lengths
    xp: Any = np if _is_on_host(samples) else jnp
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


def latest(pool: Pool) -> Any:
    """Return the sample that was put in last."""
    return jax.tree.map(lambda x: x[(pool.position - 1) % pool.size], pool.samples)


def mean(pool: Pool) -> Any:
    """Return the plain average of the samples."""
    if _is_on_host(pool.samples):
        return jax.tree.map(_host_mean, _filled_rows(pool))
    return _average(pool, _is_filled(pool).astype(pool.weights.dtype))


def weighted_mean(pool: Pool) -> Any:
    r"""Return :math:`\sum_k \epsilon_k \phi_k / \sum_k \epsilon_k`, the estimator of Remark 1.

    With decreasing steps the late samples lie closer together in the sampler's own time; the
    weights undo that. Samples that all have the weight zero, as after a step size has fallen to
    zero, count the same.
    """
    xp: Any = np if _is_on_host(pool.samples) else jnp
    weights = xp.asarray(pool.weights)
    equal = xp.asarray(_is_filled(pool), weights.dtype)
    return _average(pool, xp.where(xp.any(weights != 0), weights, equal))


def variance(pool: Pool) -> Any:
    """Return the samples' variance, with the number of samples minus one below the bar.

    Fewer than two samples have none: NaN.
    """
    if _is_on_host(pool.samples):
        return jax.tree.map(_host_variance, _filled_rows(pool))

    def leaf(x: Array, m: Array) -> Array:
        squares = jnp.where(_column(_is_filled(pool), x), (x - m) ** 2, 0.0)
        return jnp.sum(squares, axis=0) / jnp.maximum(pool.filled - 1, 0)

    return jax.tree.map(leaf, pool.samples, mean(pool))


def std(pool: Pool) -> Any:
    """Return the samples' standard deviation, the square root of :func:`variance`."""
    xp: Any = np if _is_on_host(pool.samples) else jnp
    return jax.tree.map(xp.sqrt, variance(pool))


def quantile(pool: Pool, q: Any) -> Any:
    """Return the q-quantiles of the samples, interpolated linearly as NumPy does.

    ``q`` is a number or an array; an array gives each leaf leading axes of its shape, all from
    one sort. As in NumPy, a NaN among the samples makes every quantile NaN; so does an empty pool.
    """
    if _is_on_host(pool.samples):
        wanted = np.asarray(q, np.float64)
        return jax.tree.map(lambda x: _host_quantile(x, wanted), _filled_rows(pool))
    q = jnp.asarray(q)
    rank = q * (pool.filled - 1)
    below = jnp.floor(rank).astype(jnp.int32)
    above = jnp.ceil(rank).astype(jnp.int32)

    def leaf(x: Array) -> Array:
        filled = _column(_is_filled(pool), x)
        # Empty slots sort to the end, where no rank reaches them.
        ordered = jnp.sort(jnp.where(filled, x, jnp.inf), axis=0)
        share = (rank - below).reshape(q.shape + (1,) * (x.ndim - 1))
        value = ordered[below] * (1 - share) + ordered[above] * share
        undefined = jnp.any(filled & jnp.isnan(x), axis=0) | (pool.filled == 0)
        return jnp.where(undefined, jnp.nan, value)

    return jax.tree.map(leaf, pool.samples)


def credible_interval(pool: Pool, level: Any = 0.95) -> Interval:
    """Return the equal-tailed interval between two quantiles of the pool.

    A sequence of levels gives each end a leading axis, all from one sort.
    """
    levels = np.asarray(level, np.float64)
    if not np.all((levels > 0) & (levels < 1)):
        raise ValueError(f"The level of an interval lies between 0 and 1; {level} does not.")
    ends = quantile(pool, np.stack([(1 - levels) / 2, (1 + levels) / 2]))
    return Interval(jax.tree.map(lambda x: x[0], ends), jax.tree.map(lambda x: x[1], ends))


def prediction_interval(pool: Pool, level: Any = 0.95, centre: Any = None) -> Interval:
    """Return the one-step prediction interval: the same width, around the latest sample.

    ``centre`` takes the place of the latest sample, such as the mean over the heads of the last
    update.
    """
    credible = credible_interval(pool, level)
    half = jax.tree.map(lambda low, high: (high - low) / 2, credible.low, credible.high)
    middle = latest(pool) if centre is None else centre
    low = jax.tree.map(lambda x, h: x - h, middle, half)
    return Interval(low, jax.tree.map(lambda x, h: x + h, middle, half))


def interval(
    pool: Pool, level: Any = 0.95, kind: IntervalKind = "credible", centre: Any = None
) -> Interval:
    """Return the interval of the kind named; ``centre`` is that of a prediction interval."""
    if kind == "credible":
        return credible_interval(pool, level)
    if kind == "prediction":
        return prediction_interval(pool, level, centre)
    raise ValueError(f"An interval is 'credible' or 'prediction', not {kind!r}.")


def policy_probabilities(pool: Pool, mask: Any = None) -> Any:
    r"""Return how often each action is the greedy one, the paper's mean policy probability.

    .. math:: p(a \mid s) = \frac{1}{|\varrho|} \sum_{\rho \in \varrho} 1\{\rho(s) = a\}

    The samples are one array of Q-values with the actions on the last axis; ``mask`` marks the
    legal ones. A state without a legal action gets zeros. A NaN among a state's legal values has
    no greedy action, and makes the state's probabilities NaN.
    """
    if _is_on_host(pool.samples):
        (rows,) = jax.tree.leaves(_filled_rows(pool))
        return _host_votes(rows, None if mask is None else np.asarray(mask, bool))
    (values,) = jax.tree.leaves(pool.samples)
    chosen = jax.nn.one_hot(greedy(values, mask), values.shape[-1])
    unknown = jnp.any(jnp.isnan(masked_values(values, mask)), axis=-1, keepdims=True)
    chosen = jnp.where(unknown, jnp.nan, chosen)
    if mask is not None:
        chosen = jnp.where(mask, chosen, 0.0)
    filled = _column(_is_filled(pool), chosen)
    return jnp.sum(jnp.where(filled, chosen, 0.0), axis=0) / pool.filled


def order(pool: Pool) -> NDArray:
    """Return the filled slots from the oldest sample to the latest."""
    filled, position = int(pool.filled), int(pool.position)
    start = position if filled == pool.size else 0
    return (start + np.arange(filled)) % pool.size


def in_order(pool: Pool) -> Any:
    """Return the samples as NumPy arrays from the oldest to the latest, empty slots left out."""
    slots = order(pool)
    return jax.tree.map(lambda x: np.asarray(x)[slots], pool.samples)


def to_arviz(pools: Pool | Sequence[Pool], name: str = "theta") -> arviz.InferenceData:
    """Export one pool per chain as ArviZ ``InferenceData`` (needs the extra ``arviz``).

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
    leaves = jax.tree_util.tree_leaves_with_path(stacked)
    named = {".".join([name, *map(_path_part, path)]): leaf for path, leaf in leaves}
    return inference_data(named)


def inference_data(named: dict[str, Any]) -> arviz.InferenceData:
    """Return arrays (chain, draw, ...) as ArviZ ``InferenceData`` (needs the extra ``arviz``)."""
    try:
        import arviz  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError("ArviZ is not installed: pip install 'valuetrack[arviz]'.") from error
    data: arviz.InferenceData = arviz.from_dict(posterior=named)
    return data


def _path_part(entry: Any) -> str:
    return jax.tree_util.keystr((entry,), simple=True)


def _is_on_host(samples: Any) -> bool:
    """Return whether samples are NumPy arrays, which are summarised in NumPy."""
    return all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(samples))


def _filled_rows(pool: Pool) -> Any:
    filled = int(pool.filled)
    return jax.tree.map(lambda x: x[:filled], pool.samples)


def _host_mean(x: NDArray) -> NDArray:
    with np.errstate(invalid="ignore"):
        return np.asarray(x.sum(axis=0, dtype=np.float64) / len(x))


def _host_variance(x: NDArray) -> NDArray:
    with np.errstate(invalid="ignore"):
        return np.asarray(((x - _host_mean(x)) ** 2).sum(axis=0) / np.float64(max(len(x) - 1, 0)))


def _host_quantile(x: NDArray, q: NDArray) -> NDArray:
    """Return quantiles along the first axis from one sort, shape ``q.shape + x.shape[1:]``."""
    size, shape = len(x), q.shape + x.shape[1:]
    if not size:
        return np.full(shape, np.nan)
    # Sorting along memory is fastest.
    ordered = np.sort(np.ascontiguousarray(x.reshape(size, -1).T), axis=1)
    # A NaN sorts to the end and would leave the lower quantiles untouched; it must show.
    spoilt = np.isnan(ordered[:, -1])
    found = [np.where(spoilt, np.nan, _between(ordered, one)) for one in q.ravel().tolist()]
    return np.stack(found).reshape(shape)


def _between(ordered: NDArray, q: float) -> NDArray:
    """Return the q-quantile of each row of sorted numbers."""
    last = ordered.shape[1] - 1
    rank = q * last
    below = int(rank)
    share = rank - below
    above = min(below + 1, last)
    return np.asarray(ordered[:, below] * (1 - share) + ordered[:, above] * share)


def _host_votes(values: NDArray, mask: NDArray | None) -> NDArray:
    """Return the share of samples whose greedy action is each of the actions."""
    legal = values if mask is None else np.where(mask, values, -np.inf)
    chosen = np.argmax(legal, axis=-1)
    greedy_ones = chosen[..., None] == np.arange(values.shape[-1])
    with np.errstate(invalid="ignore"):
        votes = greedy_ones.sum(axis=0) / len(values)
    unknown = np.isnan(legal).any(axis=-1, keepdims=True).any(axis=0)
    votes = np.where(unknown, np.nan, votes)
    return votes if mask is None else np.where(mask, votes, 0.0)


def _is_filled(pool: Pool) -> Array:
    return jnp.arange(pool.size) < pool.filled


def _average(pool: Pool, weights: Any) -> Any:
    xp: Any = np if _is_on_host(pool.samples) else jnp
    dtype = np.float64 if xp is np else weights.dtype
    weights = xp.asarray(weights, dtype)
    with np.errstate(invalid="ignore"):
        total = xp.sum(weights)
        return jax.tree.map(
            lambda x: xp.tensordot(weights, x.astype(dtype), axes=1) / total, pool.samples
        )


def _column(mask: Array, like: Array) -> Array:
    """Give a mask over samples the axes that it needs to act on ``like``."""
    return mask.reshape(-1, *(1,) * (like.ndim - 1))
