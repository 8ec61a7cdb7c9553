r"""The solution of the temporal-difference equation, and its covariance, a sandwich.

With :math:`\sigma^2` the mean of :math:`\delta_i^2` and a prior of variance :math:`\tau^2` per
parameter around the agent's own, which has the weight :math:`\rho = \sigma^2 / \tau^2`,

.. math:: A &= \sum_i J_i (J_i - \gamma_i J'_i)^\top + \rho I, \qquad
          \theta^* = \theta + A^{-1} \sum_i J_i \delta_i, \\
          B &= \sum_i \delta_i^{*2} J_i J_i^\top + \sigma^2 \rho I, \qquad
          V = A^{-1} B A^{-\top}.

The prior counts in B as data do. Where the memory holds nothing, V is :math:`\tau^2 I`: the value
of a state that was never seen stays the agent's own, and its interval is wide.

References
----------
Bradtke and Barto (1996). Linear least-squares algorithms for temporal difference learning. Machine
Learning 22. https://doi.org/10.1007/BF00114723

White (1982). Maximum likelihood estimation of misspecified models. Econometrica 50.
https://doi.org/10.2307/1912526
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import linalg, special

from valuetrack.posterior import Interval
from valuetrack.types import Floats
from valuetrack.values.equations import Equations, Rows, add_noise, after_step, empty

SMALLEST_NOISE = 1e-6
"""The least root mean square of delta, as a share of that of the values: single precision."""


class Values(NamedTuple):
    """Values and their standard errors."""

    mean: Floats
    sd: Floats
    df: float = math.inf
    """Degrees of freedom of the standard errors, for Student's t; infinite for a normal law."""

    def interval(self, level: float = 0.95) -> Interval:
        """Return mean -+ t sd, with t the quantile of Student's law, or of the normal one.

        Examples
        --------
        >>> low, high = Values(np.zeros(1), np.ones(1)).interval(0.95)
        >>> round(float(high[0]), 2)
        1.96
        """
        if not 0 < level < 1:
            raise ValueError(f"The level of an interval lies between 0 and 1; {level} does not.")
        half = float(special.stdtrit(self.df, (1 + level) / 2)) * self.sd
        return Interval(self.mean - half, self.mean + half)

    def at(self, where: Any) -> Values:
        """Return some of the values, by an index of their arrays."""
        return Values(self.mean[where], self.sd[where], self.df)


class Solution(NamedTuple):
    """The solved equation."""

    step: Floats
    """theta* - theta, (p,)."""
    factors: tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]
    """A as LU."""
    noise: Floats
    """B, (blocks, k, k)."""

    def covariance(self) -> Floats:
        """Return V, (p, p)."""
        inverse = linalg.lu_solve(self.factors, np.eye(len(self.step)), check_finite=False)
        return np.asarray(inverse @ linalg.block_diag(*self.noise) @ inverse.T)

    def change(self, gradients: Floats) -> Floats:
        """Return how far values of these gradients, (n, p), move, to first order."""
        return np.asarray(gradients @ self.step)

    def sd(self, gradients: Floats) -> Floats:
        r"""Return :math:`\sqrt{J^\top V J}` for gradients (n, p)."""
        blocks, k, _ = self.noise.shape
        x = linalg.lu_solve(self.factors, gradients.T, trans=1, check_finite=False)
        x = x.reshape(blocks, k, -1)
        variance = np.sum(x * np.matmul(self.noise, x), axis=(0, 1))
        return np.asarray(np.sqrt(np.maximum(variance, 0.0)))


def solve(
    batches: Callable[[], Iterable[Rows]], blocks: int, k: int, prior_variance: float | None = None
) -> Solution:
    r"""Solve the equation over all transitions, which are gone through twice.

    Parameters
    ----------
    batches
        Returns the transitions from the first to the last, in batches.
    blocks, k
        The number of blocks and their size; see :mod:`~valuetrack.values.equations`.
    prior_variance
        :math:`\tau^2`. By default it gives a typical value the variance
        :math:`\overline{Q^2}`: :math:`\tau^2 = \overline{Q^2} / \overline{|J|^2}` over the memory.

    Examples
    --------
    Rewards of a single state that is left at once are averaged:

    >>> one = np.ones((4, 1), np.float32)
    >>> reward = np.array([1.0, 2.0, 3.0, 2.0], np.float32)
    >>> rows = Rows(np.zeros(4, int), one, one, 0 * one, reward, reward)
    >>> solution = solve(lambda: [rows], 1, 1, prior_variance=1e9)
    >>> solution.change(np.ones((1, 1))).round(3), solution.sd(np.ones((1, 1))).round(3)
    (array([2.]), array([0.354]))
    """
    sums = empty(blocks, k)
    for rows in batches():
        sums = sums.plus(rows)
    noise_variance, ridge = weight_of_prior(sums, prior_variance)
    left = sums.left
    left[np.diag_indices_from(left)] += ridge
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", linalg.LinAlgWarning)  # the values will be NaN
        factors = linalg.lu_factor(left, overwrite_a=True, check_finite=False)
        step = linalg.lu_solve(factors, sums.right, check_finite=False)
    noise = np.zeros((blocks, k, k))
    for rows in batches():
        add_noise(noise, rows, after_step(rows, step))
    noise += noise_variance * ridge * np.eye(k)
    return Solution(step, factors, noise)


def weight_of_prior(sums: Equations, prior_variance: float | None) -> tuple[float, float]:
    r"""Return :math:`\sigma^2` and :math:`\rho`."""
    value, gradient = (
        max(total / sums.transitions, 1e-30) for total in (sums.value, sums.gradient)
    )
    noise = max(sums.delta / sums.transitions, SMALLEST_NOISE**2 * value, 1e-30)
    prior = max(value, noise) / gradient if prior_variance is None else prior_variance
    return noise, noise / prior
