"""The contract that every sampler keeps, and the few helpers they share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from valuetrack import rng
from valuetrack.measurement import Measurement
from valuetrack.priors import Prior
from valuetrack.schedules import Schedule
from valuetrack.types import Array, Params, Scalar, Tree


class Info(NamedTuple):
    r"""What one update tells about itself; the same structure for every sampler.

    Attributes
    ----------
    step_size
        :math:`\epsilon_t`, the weight of this sample in the paper's weighted average.
    mean_squared_residual
        Mean of (observed - predicted)^2 over the batch, before the update. For a sampler that
        minimises a loss of its own, that loss.
    finite
        False as soon as the data, the prediction or the new state holds a NaN or an infinity.
    """

    step_size: Array
    mean_squared_residual: Array
    finite: Array
    errors: Tree = ()
    """How large the error of each transition is, where a memory asks for it."""


class Sampler(NamedTuple):
    """A pair of pure functions.

    Attributes
    ----------
    init : (params) -> state
        The state is a NamedTuple with at least ``params``, the current sample (a filter's mean),
        and ``updates``, how many there have been.
    step : (key, state, data) -> (state, info)
        One update on one batch. The state that comes in is not changed.
    """

    init: Callable[[Params], Tree]
    step: Callable[[Array, Tree, Tree], tuple[Tree, Info]]


class ChainState(NamedTuple):
    """The state of a sampler: its current sample, and what it knows of its own units."""

    params: Params
    updates: Array
    units: Tree = ()


def init_chain(params: Params) -> ChainState:
    """Start a chain at ``params``."""
    return ChainState(as_arrays(params), jnp.int32(0))


def as_arrays(params: Params) -> Params:
    """Turn the leaves into JAX arrays, and refuse a pytree that cannot be sampled."""
    # With its dtype said, a Python number becomes an array like any other; otherwise the first
    # update would give it another (weak) type than the later ones, and compile them anew.
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), params)
    leaves = jax.tree.leaves(params)
    if not leaves:
        raise ValueError("There are no parameters to sample: the pytree is empty.")
    for leaf in leaves:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(f"Parameters must be floating-point arrays, not {leaf.dtype}.")
    return params


def gaussian_like(key: Array, tree: Tree) -> Tree:
    """Draw standard normal numbers in the shape of a pytree, with one call to the generator."""
    leaves, structure = jax.tree.flatten(tree)
    dtype = jnp.result_type(*leaves)
    flat = rng.normal(key, (sum(leaf.size for leaf in leaves),), dtype)
    noise, start = [], 0
    for leaf in leaves:
        piece = jax.lax.slice_in_dim(flat, start, start + leaf.size)
        noise.append(piece.reshape(leaf.shape))
        start += leaf.size
    return jax.tree.unflatten(structure, noise)


def scaled_posterior_gradient(
    measurement: Measurement,
    prior: Prior,
    params: Params,
    data: Tree,
    observed: Array,
    *,
    count: Array,
    ratio: Scalar,
    precision: Scalar,
) -> tuple[Params, Params, Array]:
    r"""Return :math:`\frac{n}{N} \nabla_\theta \log \pi(\theta \mid z_t)`, and more.

    The second is the likelihood's part of it, the third the residual.

    .. math:: \frac{n}{N} \nabla \log \pi(\theta) + \text{precision} \cdot
              \nabla_\theta h(x_t; \theta)\,(r_t - h(x_t; \theta))

    ``ratio`` is n/N; ``precision`` the likelihood's :math:`1/\sigma^2` times its weight. One
    forward and one backward pass; the Jacobian is never formed.
    """
    predicted, pull_back = jax.vjp(lambda p: measurement.predict(p, data), params)
    residual = observed - predicted
    (likelihood_gradient,) = pull_back((precision * residual).astype(predicted.dtype))
    prior_gradient = prior.gradient(params, count)
    gradient = jax.tree.map(lambda a, b: ratio * a + b, prior_gradient, likelihood_gradient)
    return gradient, likelihood_gradient, residual


def make_info(step_size: Scalar, residual: Array, *state: Tree) -> Info:
    """Sum up an update; ``state`` is whatever must be finite after it, besides the residual."""
    mean_square = jnp.mean(residual**2)
    return Info(jnp.asarray(step_size), mean_square, all_finite((mean_square, *state)))


def all_finite(tree: Tree) -> Array:
    """Return whether every number in the pytree is finite."""
    # 0 x is 0 for finite x and NaN for the others; a sum is reduced in SIMD lanes, "and" is not.
    zeros = [jnp.sum(0.0 * leaf) for leaf in jax.tree.leaves(tree)]
    return jnp.stack(zeros).sum() == 0.0


def check_sampler_options(
    step_size: float | Schedule,
    pseudo_population: float,
    observation_sd: float,
    likelihood_weight: float = 1.0,
) -> None:
    """Refuse options under which the posterior does not exist, and steps that lead nowhere."""
    check_rate(step_size=step_size)
    check_positive(
        pseudo_population=pseudo_population,
        observation_sd=observation_sd,
        likelihood_weight=likelihood_weight,
    )


def check_positive(**values: float) -> None:
    """Refuse values that are not positive, finite numbers."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a positive number, not {value}.")


def check_rate(**rates: float | Schedule) -> None:
    """Refuse a number that is no step size; schedules and traced values pass unseen."""
    check_positive(**{name: rate for name, rate in rates.items() if isinstance(rate, int | float)})


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a name that is not one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} is one of {', '.join(map(repr, choices))}, not {value!r}.")
