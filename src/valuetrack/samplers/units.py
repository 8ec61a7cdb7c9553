r"""The units in which a sampler moves: its step, its noise and its preconditioner.

The paper's samplers take three numbers in the units of the rewards: the step :math:`\epsilon`, the
observation's sd :math:`\sigma` and the pseudo-population :math:`\mathcal N`. Here each can also
follow the data. With the mean gradient of a batch,
:math:`g = \frac1n \nabla h\,(r - h) + \frac{\sigma^2}{\mathcal N} \nabla\log\pi(\theta)`, and
:math:`\epsilon = 2 \ell \sigma^2 / n`, a Langevin step is

.. math:: \theta' = \theta + \ell P g + \sqrt{2 \ell \tfrac{\sigma^2}{\mathcal N} P}\; w, \qquad
          w \sim N(0, I):

an optimiser's step with the learning rate :math:`\ell` and the preconditioner P, and noise at the
temperature :math:`\sigma^2 / \mathcal N`. P is at most :math:`\ell \mathcal N / 2\sigma^2`: noise
moves no parameter further than :math:`\ell`, a preconditioned gradient's own step, even where
there is no gradient.

One unit is left, that of the values. The parameters of the last layer are in units of the values,
all others have none. So the last layer moves in steps of :math:`s\,\ell P`, and its prior is
s times as wide, where s is the scale of the values: with rewards that are c times as large, s, the
last layer and its noise are c times as large, and everything else is as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from valuetrack.priors import Prior
from valuetrack.samplers.base import check_positive, check_rate
from valuetrack.schedules import Schedule, as_schedule
from valuetrack.types import Array, Params, Scalar, Tree

Estimated = Literal["estimated"]
PRIOR_RESIDUALS = 1.0
"""How many residuals of size 1 the estimate of sigma begins with."""
MEMORY = 1_000
"""Over how many updates the estimate of sigma forgets."""
SMALLEST_SD = 1e-3
"""Where nothing is random, residuals fall to zero; sigma does not, in units of the values."""
LAST_LAYER = "head"
"""The name of the last layer among the parameters of :mod:`valuetrack.networks`."""


class Preconditioner(NamedTuple):
    """A diagonal preconditioner as two pure functions.

    Attributes
    ----------
    init : (params) -> state
        What it remembers.
    update : (state, gradient) -> (state, P)
        Takes the mean gradient of a batch, without the prior's part; returns the diagonal, in the
        shape of the parameters.
    """

    init: Callable[[Params], Tree]
    update: Callable[[Tree, Params], tuple[Tree, Params]]


class Moments(NamedTuple):
    """What :func:`rmsprop` remembers."""

    updates: Array
    squares: Params


def fixed(diagonal: Params) -> Preconditioner:
    """Return a preconditioner that is given, and under which a sampler's law is exact."""
    return Preconditioner(lambda params: (), lambda state, gradient: (state, diagonal))


def rmsprop(decay: float = 0.99, floor: float = 0.1) -> Preconditioner:
    r"""Divide by the root mean square of past gradients, with a floor.

    .. math:: v_t = \beta v_{t-1} + (1 - \beta)\, g_t^2, \qquad
              P = \frac{1}{\sqrt{\hat v_t} + \kappa \bar v_t}, \qquad
              \hat v_t = \frac{v_t}{1 - \beta^t},

    where :math:`\bar v` is the root mean square of :math:`\sqrt{\hat v}` over a layer's array.
    The floor :math:`\kappa\bar v` bounds the noise of parameters that receive no gradient, and
    scales with the gradient, so that no unit is left in the step.

    Parameters
    ----------
    decay
        :math:`\beta`, in [0, 1).
    floor
        :math:`\kappa`; the larger, the more a layer moves as under a plain step.

    References
    ----------
    Li, Chen, Carlson and Carin (2016). Preconditioned stochastic gradient Langevin dynamics for
    deep neural networks. AAAI. https://arxiv.org/abs/1512.07666
    """
    if not 0 <= decay < 1:
        raise ValueError(f"decay must lie in [0, 1), not {decay}.")
    check_positive(floor=floor)

    def init(params: Params) -> Moments:
        return Moments(jnp.int32(0), jax.tree.map(jnp.zeros_like, params))

    def update(state: Moments, gradient: Params) -> tuple[Moments, Params]:
        updates = state.updates + 1
        known = 1.0 - decay ** updates.astype(jnp.float32)

        def remember(square: Array, g: Array) -> Array:
            return (decay * square + (1 - decay) * g**2).astype(square.dtype)

        def diagonal(square: Array) -> Array:
            mean = square / known
            return 1.0 / (jnp.sqrt(mean) + floor * jnp.sqrt(jnp.mean(mean)) + 1e-12)

        squares = jax.tree.map(remember, state.squares, gradient)
        return Moments(updates, squares), jax.tree.map(diagonal, squares)

    return Preconditioner(init, update)


class UnitsState(NamedTuple):
    """What a chain knows of its own units; a part that is given is an empty tuple."""

    residuals: Tree = ()
    """The discounted sum of squared residuals, and how many they are."""
    preconditioner: Tree = ()
    squares: Tree = ()
    """The discounted sum of the squares that values would have, and how many they are."""
    guard: Tree = ()
    """What a :mod:`~valuetrack.samplers.guard` remembers, with the factor that it leaves of the
    step."""


class Batch(NamedTuple):
    r"""The units of one update."""

    step: Scalar
    r""":math:`\epsilon_t`."""
    ratio: Scalar
    r""":math:`n / \mathcal N`."""
    variance: Scalar
    r""":math:`\sigma^2`."""
    rate: Scalar
    r""":math:`\ell_t`, or infinity where the step is not a learning rate."""
    weight: Scalar
    """What the sample after this update weighs: the step in the units it was given in."""
    gradient_scale: Scalar
    r""":math:`\sigma^2 / n`, which makes the sampler's gradient the mean over a batch."""
    scale: Scalar
    """s, the scale of the values; 1 exactly where it is not estimated."""


class Units(NamedTuple):
    """How a sampler finds its units, as pure functions."""

    init: Callable[[Params], UnitsState]
    """(params) -> state."""
    look: Callable[[UnitsState, Params, Tree], tuple[UnitsState, Params]]
    """(state, params, data) -> (state, params): before an update, see the scale of the rewards.
    When it is first known the last layer is brought to it."""
    of_batch: Callable[[UnitsState, Array, int], Batch]
    """(state, updates so far, batch size) -> the units of the next update."""
    steps: Callable[[UnitsState, Params, Batch, Scalar], tuple[UnitsState, Params]]
    r"""(state, gradient, batch, :math:`\epsilon`) -> (state, :math:`\epsilon P`): a step for each
    parameter, or the same number for all parameters of an array."""
    prior: Callable[[Prior, Batch], Prior]
    """(prior, batch) -> the prior in units of the values."""
    learn: Callable[[UnitsState, Array], UnitsState]
    """(state, residual) -> state, after an update."""


def find_units(
    *,
    step_size: float | Schedule | None,
    learning_rate: float | Schedule | None,
    pseudo_population: float | Schedule,
    observation_sd: float | Estimated,
    preconditioner: Preconditioner | None,
    value_scale: Literal[1] | Estimated = 1,
    square: Callable[[Tree], Array] | None = None,
) -> Units:
    r"""Build the units of a sampler.

    Parameters
    ----------
    step_size, learning_rate
        Exactly one: :math:`\epsilon_t`, or :math:`\ell_t` with
        :math:`\epsilon_t = 2 \ell_t \sigma^2 / n`.
    pseudo_population
        :math:`\mathcal N`, a number or a schedule of the update count.
    observation_sd
        :math:`\sigma`, or ``"estimated"``: the conjugate estimate of :math:`\sigma^2` from the
        residuals, under a scaled inverse chi-squared law that starts with one residual of size 1
        and forgets over 1,000 updates.
    preconditioner
        P; the identity by default.
    value_scale
        s: 1, or ``"estimated"`` as the root mean square of ``square``.
    square : (data) -> (n,)
        That of the :class:`~valuetrack.measurement.Measurement`.
    """
    rate = step_size if learning_rate is None else learning_rate
    _check_units(step_size, learning_rate, pseudo_population, observation_sd, value_scale)
    assert rate is not None
    estimated = observation_sd == "estimated"
    scaled = value_scale == "estimated" and square is not None
    rate_at, population_at = as_schedule(rate), as_schedule(pseudo_population)

    def init(params: Params) -> UnitsState:
        return UnitsState(
            residuals=jnp.zeros(2) if estimated else (),
            preconditioner=preconditioner.init(params) if preconditioner else (),
            squares=jnp.zeros(2) if scaled else (),
        )

    def look(state: UnitsState, params: Params, data: Tree) -> tuple[UnitsState, Params]:
        if not scaled or square is None:
            return state, params
        squares = _remember(state.squares, square(data))
        after = state._replace(squares=squares)
        first = (state.squares[0] == 0) & (squares[0] > 0)
        factor = jnp.where(first, scale_of(after), 1.0)
        return after, on_last_layer(lambda leaf: factor * leaf, params)

    def scale_of(state: UnitsState) -> Scalar:
        if not scaled:
            return 1.0
        total, count = state.squares
        return jnp.where(total > 0, jnp.sqrt(total / jnp.maximum(count, 1.0)), 1.0)

    def of_batch(state: UnitsState, updates: Array, count: int) -> Batch:
        scale = scale_of(state)
        variance: Scalar
        if isinstance(observation_sd, str):
            total, residuals = state.residuals
            mean = (total + PRIOR_RESIDUALS * scale**2) / (residuals + PRIOR_RESIDUALS)
            variance = jnp.maximum(mean, (SMALLEST_SD * scale) ** 2)
        else:
            variance = observation_sd**2
        ratio, rate = count / population_at(updates), rate_at(updates)
        if state and state.guard:  # a state made by hand has no units
            rate = rate * state.guard.factor
        if learning_rate is None:
            return Batch(rate, ratio, variance, jnp.inf, rate, variance / count, scale)
        step = 2 * rate * variance / count
        return Batch(step, ratio, variance, rate, rate, variance / count, scale)

    def steps(
        state: UnitsState, gradient: Params, batch: Batch, eps: Scalar
    ) -> tuple[UnitsState, Params]:
        unit = jax.tree.map(lambda g: 1.0, gradient)
        if scaled:
            unit = on_last_layer(lambda one: batch.scale * one, unit)
        if preconditioner is None:
            return state, jax.tree.map(lambda u: eps * u, unit)
        mean = jax.tree.map(lambda g: batch.gradient_scale * g, gradient)
        memory, diagonal = preconditioner.update(state.preconditioner, mean)

        def step(g: Array, d: Array, u: Scalar) -> Array:
            farthest = (batch.rate * u) ** 2 / batch.ratio
            return jnp.minimum(eps * u * d, farthest).astype(g.dtype)

        each = jax.tree.map(step, gradient, diagonal, unit)
        return state._replace(preconditioner=memory), each

    def prior_of(prior: Prior, batch: Batch) -> Prior:
        if not scaled:
            return prior

        def gradient(params: Params, count: Scalar = 0) -> Params:
            relative = on_last_layer(lambda leaf: leaf / batch.scale, params)
            pulled = prior.gradient(relative, count)
            return on_last_layer(lambda leaf: leaf / batch.scale, pulled)

        return prior._replace(gradient=gradient)

    def learn(state: UnitsState, residual: Array) -> UnitsState:
        if not estimated:
            return state
        return state._replace(residuals=_remember(state.residuals, residual**2))

    return Units(init, look, of_batch, steps, prior_of, learn)


def _check_units(
    step_size: float | Schedule | None,
    learning_rate: float | Schedule | None,
    pseudo_population: float | Schedule,
    observation_sd: float | str,
    value_scale: float | str,
) -> None:
    """Refuse what makes no sense, in one sentence."""
    given = {"step_size": step_size, "learning_rate": learning_rate}
    rates = {name: rate for name, rate in given.items() if rate is not None}
    if len(rates) != 1:
        raise ValueError("A sampler takes either a step_size or a learning_rate.")
    check_rate(**rates, pseudo_population=pseudo_population)
    if not isinstance(observation_sd, str):
        check_positive(observation_sd=observation_sd)
    elif observation_sd != "estimated":
        raise ValueError(f"observation_sd is a number or 'estimated', not {observation_sd!r}.")
    if value_scale not in (1, "estimated"):
        raise ValueError(f"value_scale is 1 or 'estimated', not {value_scale!r}.")


def on_last_layer(change: Callable[[Array], Array], params: Params) -> Params:
    """Apply a function to the arrays of the last layer; to all where no layer is called so.

    Examples
    --------
    >>> on_last_layer(lambda leaf: 10 * leaf, {"body": 1, "head": {"w": 2, "b": 3}})
    {'body': 1, 'head': {'b': 30, 'w': 20}}
    """
    if not (isinstance(params, dict) and LAST_LAYER in params):
        return jax.tree.map(change, params)
    return {**params, LAST_LAYER: jax.tree.map(change, params[LAST_LAYER])}


def _remember(sums: Array, new: Array) -> Array:
    """Add numbers to a discounted sum and count."""
    return (1 - 1 / MEMORY) * sums + jnp.stack([jnp.sum(new), jnp.float32(new.size)])
