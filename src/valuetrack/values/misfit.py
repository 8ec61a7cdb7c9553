r"""What the network cannot express: its size, from the temporal differences that it leaves.

A network of a few units can come near to the values of a policy, and no nearer. The equation then
has a solution that is off by something that more data do not mend, and that the noise of the data
does not show. So values are solved as :math:`Q(s, a) + u(s, a)`, where u is a random function of
short range, independent for every action,

.. math:: u(s, a) = \sum_r \omega_{r, a} \phi_r(s), \qquad \omega_{r, a} \sim N(0, \nu^2), \qquad
          \phi_r(s) = \sqrt{2 / R} \cos(d_r^\top \tilde s + p_r),

waves in random directions: u is nearly a Gaussian process with a Gaussian kernel of length
:math:`\ell = 0.2 \sqrt{\dim s}`, with observations :math:`\tilde s` in units of their sd over the
memory. :func:`variance` says how large :math:`\nu^2` may be, by the method of moments and its
standard error: what the temporal differences show, and what their noise could hide.

References
----------
Rahimi and Recht (2007). Random features for large-scale kernel machines. NeurIPS.

DerSimonian and Laird (1986). Meta-analysis in clinical trials. Controlled Clinical Trials 7.
https://doi.org/10.1016/0197-2456(86)90046-2
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from valuetrack.types import AnyArray, Array, Floats, NDArray

COUNT = 100
"""R, the number of waves."""
RANGE = 0.2
"""Their length, times the root of the dimension."""


class Waves(NamedTuple):
    """Random waves over observations."""

    directions: AnyArray
    """(dim, R), in the units of the observation."""
    phases: AnyArray
    """(R,)."""

    def at(self, observations: AnyArray) -> Array:
        """Return the waves at observations, (n, ...), as (n, R)."""
        flat = jnp.reshape(jnp.asarray(observations, jnp.float32), (len(observations), -1))
        return jnp.sqrt(2 / COUNT) * jnp.cos(flat @ self.directions + self.phases)

    def of(self, observations: AnyArray, chances: Array) -> Array:
        """Return the waves of all actions, (n, actions * R), weighted by (n, actions)."""
        every = chances[:, :, None] * self.at(observations)[:, None, :]
        return jnp.reshape(every, (len(observations), -1))


def waves(observations: NDArray) -> Waves:
    """Draw waves that are short beside the spread of these observations; always the same ones."""
    flat = np.reshape(np.asarray(observations, np.float64), (len(observations), -1))
    spread = np.std(flat, axis=0)
    generator = np.random.default_rng(0)
    directions = generator.standard_normal((flat.shape[1], COUNT))
    directions /= RANGE * np.sqrt(flat.shape[1]) * np.where(spread > 0, spread, 1.0)[:, None]
    phases = generator.uniform(0, 2 * np.pi, COUNT) - np.mean(flat, axis=0) @ directions
    return Waves(directions.astype(np.float32), phases.astype(np.float32))


class Moments(NamedTuple):
    """Sums over transitions of F, the waves of the action taken."""

    right: Floats
    """Sum of F delta."""
    noise: Floats
    """Sum of delta^2 F F^T, with the temporal difference without its own transition."""
    squares: Floats
    """Sum of F F^T."""
    discount: float
    """Sum of the squared discounts."""
    transitions: int

    def plus(self, waves: Floats, delta: Floats, alone: Floats, discount: Floats) -> Moments:
        """Add a batch: F, delta at the solution, the same without itself, and discounts."""
        weighted = waves * alone[:, None].astype(waves.dtype)
        return Moments(
            self.right + waves.T @ delta,
            self.noise + weighted.T @ weighted,
            self.squares + waves.T @ waves,
            self.discount + float(np.sum(np.square(discount, dtype=np.float64))),
            self.transitions + len(delta),
        )


def nothing(count: int) -> Moments:
    """Return the moments of no transitions."""
    empty = np.zeros((count, count))
    return Moments(np.zeros(count), empty, empty, 0.0, 0)


def variance(moments: Moments) -> float:
    r"""Return :math:`\nu^2`: an estimate that is not negative, and one standard error on top.

    If every transition leaves :math:`\delta_i = F_i^\top \omega + \text{noise}`, then with
    :math:`K = \sum_i F_i F_i^\top` and :math:`N = \sum_i E \delta_i^2 F_i F_i^\top`

    .. math:: E \Bigl|\sum_i F_i \delta_i\Bigr|^2 = \nu_\delta^2 \|K\|^2 + \operatorname{tr} N,

    which is solved for :math:`\nu_\delta^2`; without a misfit it has the standard error
    :math:`\sqrt{2} \|N\| / \|K\|^2`. A misfit below that is not seen, but is there as well as
    not. A short-ranged u has :math:`\delta = \gamma u(s', a') - u(s, a)`, of variance
    :math:`(1 + \gamma^2) \nu^2`.

    Examples
    --------
    One state, seen a hundred times with temporal differences of 1:

    >>> one = np.ones((100, 1))
    >>> seen = nothing(1).plus(one, 1 + 0 * one[:, 0], 1 + 0 * one[:, 0], 0 * one[:, 0])
    >>> round(variance(seen), 3)
    1.004
    """
    excess = float(moments.right @ moments.right) - float(np.trace(moments.noise))
    size = float(np.sum(moments.squares**2)) * (1 + moments.discount / moments.transitions)
    error = math.sqrt(2.0) * float(np.linalg.norm(moments.noise))
    return (max(excess, 0.0) + error) / size if size > 0 else 0.0
