r"""What the network cannot express: its size, from the temporal differences that it leaves.

A network of a few units can come near to the values of a policy, and no nearer. The equation then
has a solution that is off by something that more data do not mend, and that the noise of the data
does not show. So values are solved as :math:`Q(s, a) + u(s, a)`, where u is a random function of
short range, independent for every action,

.. math:: u(s, a) = \sum_r \omega_{r, a} \phi_r(s), \qquad \omega_{r, a} \sim N(0, \nu^2), \qquad
          \phi_r(s) = \sqrt{2 / R} \cos(d_r^\top \tilde s + p_r),

waves in random directions: u is nearly a Gaussian process with a Gaussian kernel of length
:math:`\ell = 0.2 \sqrt{\dim s}`, with observations :math:`\tilde s` in units of their sd over the
memory. :func:`variance` estimates :math:`\nu^2` by the method of moments: what the temporal
differences show beyond their noise.

Large networks need it as much as small ones. Their last layer has more weights than there are
states in a small world, and yet does not tell them apart: on a lake of 16 states, features of 256
units that were learned from rewards span 9 dimensions.

References
----------
Rahimi and Recht (2007). Random features for large-scale kernel machines. NeurIPS.

DerSimonian and Laird (1986). Meta-analysis in clinical trials. Controlled Clinical Trials 7.
https://doi.org/10.1016/0197-2456(86)90046-2
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy import linalg

from valuetrack.types import AnyArray, Array, Floats, NDArray
from valuetrack.values.equations import Rows

Factors = tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]
"""A matrix as LU."""

COUNT = 100
"""R, the number of waves, where observations hardly come again."""
MOST_STATES = 500
"""Up to how many different observations the memory may hold for a wave to each of them."""
RANGE = 0.2
"""Their length, times the root of the dimension."""
MOST_NUMBERS = 20_000_000
"""Of how many numbers, at most, the spread of observations is taken: those of some images."""
ROUNDS = 20
"""How many times the variance is estimated at most."""
CLOSE, SMALLEST = 0.02, 1e-12
"""Rounds end when the estimate changes by a smaller share than the first; the second is the
least estimate that weighs the prior, as a share of the largest."""


class Waves(NamedTuple):
    """Random waves over observations."""

    directions: AnyArray
    """(dim, R), in the units of the observation."""
    phases: AnyArray
    """(R,)."""

    @property
    def number(self) -> int:
        """R."""
        return len(self.phases)

    def at(self, observations: AnyArray) -> Array:
        """Return the waves at observations, (n, ...), as (n, R)."""
        flat = jnp.reshape(jnp.asarray(observations, jnp.float32), (len(observations), -1))
        return jnp.sqrt(2 / self.number) * jnp.cos(flat @ self.directions + self.phases)

    def of(self, observations: AnyArray, chances: Array) -> Array:
        """Return the waves of all actions, (n, actions * R), weighted by (n, actions)."""
        every = chances[:, :, None] * self.at(observations)[:, None, :]
        return jnp.reshape(every, (len(observations), -1))


def waves(observations: NDArray, most: int) -> Waves:
    """Draw waves that are short beside the spread of these observations; always the same ones.

    A world of a few hundred states has about as many waves, so that each state can have an error of
    its own. There are never more than ``most``.

    Examples
    --------
    >>> corridor, line = np.eye(300)[np.arange(3_000) % 300], np.linspace(0, 1, 3_000)[:, None]
    >>> waves(corridor, most=1_000).number, waves(line, most=1_000).number
    (300, 100)
    """
    every = -(-observations.size // MOST_NUMBERS)
    flat = np.reshape(observations[::every], (len(observations[::every]), -1)).astype(np.float64)
    spread = np.std(flat, axis=0)
    states = len(np.unique(flat @ np.random.default_rng(1).standard_normal(flat.shape[1])))
    # In whole hundreds: every other number is another program to compile.
    count = COUNT * max(round(states / COUNT), 1) if states <= MOST_STATES else COUNT
    count = min(count, most)
    generator = np.random.default_rng(0)
    directions = generator.standard_normal((flat.shape[1], count))
    directions /= RANGE * np.sqrt(flat.shape[1]) * np.where(spread > 0, spread, 1.0)[:, None]
    phases = generator.uniform(0, 2 * np.pi, count) - np.mean(flat, axis=0) @ directions
    return Waves(directions.astype(np.float32), phases.astype(np.float32))


class Leftover(NamedTuple):
    r"""The equation that is left for the waves when all other parameters are solved for.

    With the sums over transitions in parts, of the gradients J and of the waves F of the action
    taken, :math:`G = A_{FJ} A_{JJ}^{-1}` gives :math:`S = A_{FF} - G A_{JF}` and
    :math:`b = \sum_i (F_i - G J_i)\, \delta_i`. If u has the weights :math:`\omega`, then
    :math:`b = S \omega + \text{noise}`, and :math:`\delta`, without its own transition, shows
    the noise: N.
    """

    left: Floats
    """S, (q, q), with q = blocks * waves."""
    right: Floats
    """b, (q,)."""
    others: Floats
    """G, (q, blocks, k)."""
    noise: Floats
    """N, (q, q)."""

    def add_noise(self, rows: Rows, alone: Floats) -> None:
        """Add a batch, with its waves, to the noise, which is changed in place."""
        blocks, k = self.others.shape[1:]
        waves = len(self.left) // blocks
        for b in range(blocks):
            mine = rows.block == b
            now = rows.now[mine] * alone[mine, None]
            rest = now[:, :k] @ -self.others[:, b].T.astype(np.float32)
            rest[:, b * waves : (b + 1) * waves] += now[:, k:]
            self.noise[...] += rest.T @ rest


def leftover(left: Floats, right: Floats, blocks: int, waves: int, factors: Factors) -> Leftover:
    """Return the equation of the waves, still without noise.

    Parameters
    ----------
    left, right
        The sums over all transitions, whose last columns in each block are waves.
    factors
        Of the matrix of all other parameters, with their prior, as LU.
    """
    p = len(right)
    is_wave = np.arange(p) % (p // blocks) >= p // blocks - waves
    own, cross = left[np.ix_(is_wave, is_wave)], left[np.ix_(is_wave, ~is_wave)]
    others = linalg.lu_solve(factors, cross.T, trans=1, check_finite=False).T
    return Leftover(
        own - others @ left[np.ix_(~is_wave, is_wave)],
        right[is_wave] - others @ right[~is_wave],
        np.ascontiguousarray(others).reshape(len(own), blocks, -1),
        np.zeros_like(own),
    )


def variance(of: Leftover, noise: float, largest: float) -> float:
    r"""Return :math:`\nu^2`, an estimate that is not negative.

    With the prior's weight :math:`\lambda = \sigma^2 / \nu^2` the waves come out as
    :math:`\hat\omega = M b`, where :math:`M = (S + \lambda I)^{-1}`, of

    .. math:: E |\hat\omega|^2 = \nu^2 \|M S\|^2 + \operatorname{tr} M N M^\top,

    which is solved for :math:`\nu^2`: first with :math:`\lambda \to \infty`, where every
    transition counts alike, then anew with its own :math:`\lambda` until it stays. So
    directions count by what the data say of them, and not by how often they were seen: a network
    fits best where the agent has been most.

    Parameters
    ----------
    of
        The equation.
    noise
        :math:`\sigma^2`.
    largest
        The estimate is never larger.

    Examples
    --------
    One state, seen a hundred times with temporal differences of 1 and no noise to speak of:

    >>> seen = Leftover(np.full((1, 1), 100.0), np.full(1, 100.0), np.zeros((1, 1, 1)), np.eye(1))
    >>> round(variance(seen, noise=1e-4, largest=4.0), 3)
    1.0
    """
    nu2 = 0.0
    for _ in range(ROUNDS if largest > 0 else 0):
        # Times lambda, M is the identity where no misfit is known of yet.
        ridge = noise / max(nu2, SMALLEST * largest)
        inverse = np.linalg.inv(of.left / ridge + np.eye(len(of.right)))
        noise_alone = float(np.sum((inverse @ of.noise) * inverse))
        excess = float(np.sum((inverse @ of.right) ** 2)) - noise_alone
        size = float(np.sum((inverse @ of.left) ** 2))
        if not excess > 0:
            return nu2
        before, nu2 = nu2, min(excess / size, largest)
        if abs(nu2 - before) <= CLOSE * nu2:
            break
    return nu2
