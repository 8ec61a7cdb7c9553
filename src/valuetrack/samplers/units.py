r"""The units in which a sampler moves: its step, its noise and its preconditioner.

The paper's samplers take three numbers in the units of the rewards: the step :math:`\epsilon`, the
observation's sd :math:`\sigma` and the pseudo-population :math:`\mathcal N`. Here each can also
follow the data. With the mean gradient of a batch,
:math:`g = \frac1n \nabla h\,(r - h) + \frac{\sigma^2}{\mathcal N} \nabla\log\pi(\theta)`, and
:math:`\epsilon = 2 \ell \sigma^2 / n`, a Langevin step is

.. math:: \theta' = \theta + \ell P g + \sqrt{2 \ell \tfrac{\sigma^2}{\mathcal N} P}\; w, \qquad
          w \sim N(0, I):

an optimiser's step with the learning rate :math:`\ell` and the preconditioner P, and noise at the
temperature :math:`\sigma^2 / \mathcal N`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from valuetrack.samplers.base import check_positive, check_rate
from valuetrack.schedules import Schedule, as_schedule
from valuetrack.types import Array, Params, Scalar, Tree

Estimated = Literal["estimated"]
PRIOR_RESIDUALS = 1.0
"""How many residuals of size 1 the estimate of sigma begins with."""
MEMORY = 1_000
"""Over how many updates the estimate of sigma forgets."""
SMALLEST_SD = 1e-3
"""Where nothing is random, residuals fall to zero; sigma does not."""


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
    gradient_scale: Scalar
    r""":math:`\sigma^2 / n`, which makes the sampler's gradient the mean over a batch."""


class Units(NamedTuple):
    """How a sampler finds its units, as pure functions."""

    init: Callable[[Params], UnitsState]
    """(params) -> state."""
    of_batch: Callable[[UnitsState, Array, int], Batch]
    """(state, updates so far, batch size) -> the units of the next update."""
    steps: Callable[[UnitsState, Params, Batch, Scalar], tuple[UnitsState, Params]]
    r"""(state, gradient, batch, :math:`\epsilon`) -> (state, :math:`\epsilon P`): a step for each
    parameter, or the same number for all parameters of an array."""
    learn: Callable[[UnitsState, Array], UnitsState]
    """(state, residual) -> state, after an update."""


def find_units(
    *,
    step_size: float | Schedule | None,
    learning_rate: float | Schedule | None,
    pseudo_population: float | Schedule,
    observation_sd: float | Estimated,
    preconditioner: Preconditioner | None,
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
    """
    if (step_size is None) == (learning_rate is None):
        raise ValueError("A sampler takes either a step_size or a learning_rate.")
    rate = step_size if learning_rate is None else learning_rate
    assert rate is not None
    check_rate(**{"step_size" if learning_rate is None else "learning_rate": rate})
    check_rate(pseudo_population=pseudo_population)
    estimated = observation_sd == "estimated"
    if not isinstance(observation_sd, str):
        check_positive(observation_sd=observation_sd)
    elif not estimated:
        raise ValueError(f"observation_sd is a number or 'estimated', not {observation_sd!r}.")
    rate_at, population_at = as_schedule(rate), as_schedule(pseudo_population)

    def init(params: Params) -> UnitsState:
        return UnitsState(
            residuals=jnp.full(2, PRIOR_RESIDUALS) if estimated else (),
            preconditioner=preconditioner.init(params) if preconditioner else (),
        )

    def of_batch(state: UnitsState, updates: Array, count: int) -> Batch:
        variance: Scalar
        if isinstance(observation_sd, str):
            variance = jnp.maximum(state.residuals[0] / state.residuals[1], SMALLEST_SD**2)
        else:
            variance = observation_sd**2
        step = rate_at(updates)
        if state.guard:
            step = step * state.guard.factor
        if learning_rate is not None:
            step = 2 * step * variance / count
        return Batch(step, count / population_at(updates), variance, variance / count)

    def steps(
        state: UnitsState, gradient: Params, batch: Batch, eps: Scalar
    ) -> tuple[UnitsState, Params]:
        if preconditioner is None:
            return state, jax.tree.map(lambda g: eps, gradient)
        mean = jax.tree.map(lambda g: batch.gradient_scale * g, gradient)
        memory, diagonal = preconditioner.update(state.preconditioner, mean)
        scaled = jax.tree.map(lambda g, d: (eps * d).astype(g.dtype), gradient, diagonal)
        return state._replace(preconditioner=memory), scaled

    def learn(state: UnitsState, residual: Array) -> UnitsState:
        if not estimated:
            return state
        new = jnp.stack([jnp.sum(residual**2), jnp.float32(residual.size)])
        return state._replace(residuals=(1 - 1 / MEMORY) * state.residuals + new)

    return Units(init, of_batch, steps, learn)
