"""Step sizes and other quantities that change as training goes on.

A schedule is a function of a counter alone, ``count -> value``, with ``count`` the number of
updates already made (0, 1, 2, ...). It holds no state, works under ``jit`` and has the same shape
as an Optax schedule, so any of Optax's can be passed where one of these can.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from valuetrack.types import Array, Scalar

Schedule = Callable[[Scalar], Scalar]
"""``count -> value``."""


def as_schedule(value: float | Schedule) -> Schedule:
    """Return ``value`` itself if it is a schedule, else the constant schedule of that number."""
    return value if callable(value) else constant(value)


def constant(value: float) -> Schedule:
    """Return the schedule that never changes."""
    return lambda count: value


def linear(start: float, end: float, steps: int) -> Schedule:
    r"""Go from ``start`` to ``end`` in a straight line over ``steps`` counts, then stay.

    Used for epsilon-greedy exploration and for the phase-in of the mixture prior. With
    ``steps=0`` the value is ``end`` from the first count on.
    """
    if steps < 0:
        raise ValueError(f"A linear schedule needs steps >= 0, not {steps}.")

    def schedule(count: Scalar) -> Array:
        done = jnp.minimum(count / steps, 1.0) if steps else 1.0
        return jnp.asarray(start + (end - start) * done)

    return schedule


def polynomial(initial: float, power: float, *, offset: float = 1.0) -> Schedule:
    r"""Decay as a power of the counter, the schedule of Theorem 1.

    .. math:: \epsilon_k = \epsilon_0 \left(\frac{c}{c + k - 1}\right)^{\varpi},
              \qquad k = 1, 2, \dots

    With the default ``offset`` c = 1 this is the paper's :math:`\epsilon_0 / k^\varpi`; a larger
    one keeps the step near its initial value for about c updates. The theorem asks for
    :math:`0 < \varpi < 1`; ``power=0`` is a constant.
    """
    if power < 0 or offset <= 0:
        raise ValueError(
            f"A polynomial schedule needs power >= 0 and offset > 0, not {power} and {offset}."
        )
    return lambda count: jnp.asarray(initial * (offset / (offset + count)) ** power)


def cyclical(initial: float, cycle_length: int) -> Schedule:
    r"""Fall from ``initial`` towards zero along a cosine, again and again.

    .. math:: \epsilon_k = \frac{\epsilon_0}{2}
              \left[\cos\left(\pi \frac{(k-1) \bmod M}{M}\right) + 1\right]

    References
    ----------
    Zhang, Li, Zhang, Chen and Wilson (2020). Cyclical stochastic gradient MCMC for Bayesian deep
    learning. ICLR.
    """
    if cycle_length < 1:
        raise ValueError(f"A cyclical schedule needs cycle_length >= 1, not {cycle_length}.")

    def schedule(count: Scalar) -> Array:
        phase = (count % cycle_length) / cycle_length
        return jnp.asarray(initial / 2.0 * (jnp.cos(jnp.pi * phase) + 1.0))

    return schedule


def inner_decay(iterations: int, power: float) -> npt.NDArray[np.floating]:
    r"""Return the factors by which the step shrinks inside one update.

    .. math:: \epsilon_{t,k} = \epsilon_t / k^{d}, \qquad k = 1, \dots, \mathcal{K}

    ``power=0`` keeps the step constant, as the paper's algorithms do; 0.9 is the reference
    setting.
    """
    if iterations < 1:
        raise ValueError(f"An update needs at least one inner iteration, not {iterations}.")
    return np.arange(1, iterations + 1) ** -float(power)
