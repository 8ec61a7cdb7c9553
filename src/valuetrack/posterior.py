r"""A pool of posterior samples, and what can be said from it.

The pool is a ring of the last samples, of parameters or of values at chosen states, and works
inside ``jit``, ``vmap`` and ``scan``. All summaries count only the slots that have been filled.

Two kinds of interval are offered, and they are not the same thing:

* the **credible** interval, from quantile to quantile of the pool: where the value lies, given
  the data and the model;
* the **one-step prediction** interval, centred on the *latest* sample with half the width of the
  credible one on either side: where the paper's coverage rates come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack.policies import greedy, masked_values
from valuetrack.types import Array

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


def add(pool: Pool, sample: Any, weight: Any = 1.0) -> Pool:
    """Put in one sample, in place of the oldest once the pool is full."""

    def write(stored: Array, new: Any) -> Array:
        new = jnp.asarray(new, stored.dtype)[None]
        return jax.lax.dynamic_update_slice_in_dim(stored, new, pool.position, axis=0)

    return Pool(
        samples=jax.tree.map(write, pool.samples, sample),
        weights=write(pool.weights, weight),
        position=(pool.position + 1) % pool.size,
        filled=jnp.minimum(pool.filled + 1, pool.size),
    )


def latest(pool: Pool) -> Any:
    """Return the sample that was put in last."""
    return jax.tree.map(lambda x: x[(pool.position - 1) % pool.size], pool.samples)


def mean(pool: Pool) -> Any:
    """Return the plain average of the samples."""
    return _average(pool, _is_filled(pool).astype(pool.weights.dtype))


def weighted_mean(pool: Pool) -> Any:
    r"""Return :math:`\sum_k \epsilon_k \phi_k / \sum_k \epsilon_k`, the estimator of Remark 1.

    With decreasing steps the late samples lie closer together in the sampler's own time; the
    weights undo that.
    """
    return _average(pool, pool.weights)


def variance(pool: Pool) -> Any:
    """Return the samples' variance, with the number of samples minus one below the bar.

    Fewer than two samples have none: NaN.
    """
    centre = mean(pool)

    def leaf(x: Array, m: Array) -> Array:
        squares = jnp.where(_column(_is_filled(pool), x), (x - m) ** 2, 0.0)
        return jnp.sum(squares, axis=0) / jnp.maximum(pool.filled - 1, 0)

    return jax.tree.map(leaf, pool.samples, centre)


def quantile(pool: Pool, q: Any) -> Any:
    """Return the q-quantiles of the samples, interpolated linearly as NumPy does.

    ``q`` is a number or a vector; a vector gives each leaf a leading axis. As in NumPy, a NaN
    among the samples makes every quantile NaN; so does an empty pool.
    """
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


def credible_interval(pool: Pool, level: float = 0.95) -> Interval:
    """Return the equal-tailed interval between two quantiles of the pool."""
    if not 0 < level < 1:
        raise ValueError(f"The level of an interval lies between 0 and 1, so it is not {level}.")
    ends = quantile(pool, jnp.array([(1 - level) / 2, (1 + level) / 2]))
    return Interval(jax.tree.map(lambda x: x[0], ends), jax.tree.map(lambda x: x[1], ends))


def prediction_interval(pool: Pool, level: float = 0.95) -> Interval:
    """Return the one-step prediction interval: the same width, around the latest sample."""
    credible = credible_interval(pool, level)
    half = jax.tree.map(lambda low, high: (high - low) / 2, credible.low, credible.high)
    centre = latest(pool)
    return Interval(jax.tree.map(jnp.subtract, centre, half), jax.tree.map(jnp.add, centre, half))


def interval(pool: Pool, level: float = 0.95, kind: IntervalKind = "credible") -> Interval:
    """Return the interval of the kind named."""
    kinds: dict[str, Callable[[Pool, float], Interval]] = {
        "credible": credible_interval,
        "prediction": prediction_interval,
    }
    if kind not in kinds:
        raise ValueError(f"An interval is 'credible' or 'prediction', not {kind!r}.")
    return kinds[kind](pool, level)


def policy_probabilities(pool: Pool, mask: Array | None = None) -> Array:
    r"""Return how often each action is the greedy one, the paper's mean policy probability.

    .. math:: p(a \mid s) = \frac{1}{|\varrho|} \sum_{\rho \in \varrho} 1\{\rho(s) = a\}

    The samples are one array of Q-values with the actions on the last axis; ``mask`` marks the
    legal ones. A state without a legal action gets zeros. A NaN among a state's legal values has
    no greedy action, and makes the state's probabilities NaN.
    """
    (values,) = jax.tree.leaves(pool.samples)
    chosen = jax.nn.one_hot(greedy(values, mask), values.shape[-1])
    unknown = jnp.any(jnp.isnan(masked_values(values, mask)), axis=-1, keepdims=True)
    chosen = jnp.where(unknown, jnp.nan, chosen)
    if mask is not None:
        chosen = jnp.where(mask, chosen, 0.0)
    filled = _column(_is_filled(pool), chosen)
    return jnp.sum(jnp.where(filled, chosen, 0.0), axis=0) / pool.filled


def in_order(pool: Pool) -> Any:
    """Return the samples as NumPy arrays from the oldest to the latest, empty slots left out."""
    filled, position = int(pool.filled), int(pool.position)
    start = position if filled == pool.size else 0
    return jax.tree.map(lambda x: np.roll(np.asarray(x), -start, axis=0)[:filled], pool.samples)


def to_arviz(pools: Pool | Sequence[Pool], name: str = "theta") -> arviz.InferenceData:
    """Export one pool a chain as ArviZ ``InferenceData`` (needs the extra ``arviz``).

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


def _is_filled(pool: Pool) -> Array:
    return jnp.arange(pool.size) < pool.filled


def _average(pool: Pool, weights: Array) -> Any:
    total = jnp.sum(weights)

    def leaf(x: Array) -> Array:
        return jnp.tensordot(weights, x.astype(weights.dtype), axes=1) / total

    return jax.tree.map(leaf, pool.samples)


def _column(mask: Array, like: Array) -> Array:
    """Give a mask over samples the axes that it needs to act on ``like``."""
    return mask.reshape(-1, *(1,) * (like.ndim - 1))
