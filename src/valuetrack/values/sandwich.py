r"""The solution of the temporal-difference equation, and its covariance, a sandwich.

With :math:`\sigma^2` the mean of :math:`\delta_i^2` and a prior of variance :math:`\tau^2` per
parameter around the agent's own, which has the weight :math:`\rho = \sigma^2 / \tau^2`,

.. math:: A &= \sum_i J_i (J_i - \gamma_i J'_i)^\top + \rho I, \qquad
          \theta^* = \theta + A^{-1} \sum_i J_i \delta_i, \\
          B &= \sum_i \delta_{(i)}^2 J_i J_i^\top + \sigma^2 \rho I, \qquad
          V = A^{-1} B A^{-\top}.

:math:`\delta_{(i)}` is the temporal difference at the solution without the i-th transition. What
was seen once is fitted exactly and would seem to be free of noise; left out, it shows its own. The
prior counts in B as data do. Where the memory holds nothing, V is :math:`\tau^2 I`: the value
of a state that was never seen stays the agent's own, and its interval is wide.

The mean of posterior samples has learned from more than the memory holds now: from w times as many
transitions, of which the memory is a part (:mod:`~valuetrack.values.turnover`). If it solves the
equation of all of them, then its error has the covariance V / w, and the step
:math:`A^{-1} \sum J \delta` is noise, of covariance (1 - 1/w) V and independent of that error. How
large the step is beside this noise says whether the mean has arrived
(:func:`share_of_step`). A share s of the step is taken, none if it is no larger than its noise:

.. math:: \theta^* = \theta + s A^{-1} \sum_i J_i \delta_i, \qquad
          \operatorname{Cov} = \left(\tfrac1w + \left(1 - \tfrac1w\right) s\right) V,

with :math:`\rho / w` in place of :math:`\rho`. For w = 1 the whole step is taken.

References
----------
Bradtke and Barto (1996). Linear least-squares algorithms for temporal difference learning. Machine
Learning 22. https://doi.org/10.1007/BF00114723

White (1982). Maximum likelihood estimation of misspecified models. Econometrica 50.
https://doi.org/10.2307/1912526

MacKinnon and White (1985). Some heteroskedasticity-consistent covariance matrix estimators with
improved finite sample properties. Journal of Econometrics 29.
https://doi.org/10.1016/0304-4076(85)90158-7

James and Stein (1961). Estimation with quadratic loss. Proceedings of the Fourth Berkeley
Symposium on Mathematical Statistics and Probability.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, special

from valuetrack.posterior import Interval
from valuetrack.types import Floats
from valuetrack.values import misfit
from valuetrack.values.equations import (
    Equations,
    Rows,
    add_noise,
    after_step,
    empty,
    gradients_of,
    some_of,
    without_itself,
)
from valuetrack.values.misfit import Factors

SMALLEST_NOISE = 1e-6
"""The least root mean square of delta, as a share of that of the values: single precision."""
PRIOR_SHARE = 0.25
"""The prior's variance of a typical value, as a share of its square: an sd of half the value."""
LEAST_LEFT = 0.01
"""The least noise that a misfit leaves, as a share of what it was."""
PROBED = 500
"""At how many transitions, at least, the step is compared with its noise."""


Batches = Callable[[], Iterable[Rows]]
"""Returns the transitions from the first to the last, in batches."""


class Values(NamedTuple):
    """Values and their standard errors."""

    mean: Floats
    sd: Floats
    df: float = math.inf
    """Degrees of freedom of the standard errors, for Student's t; infinite for a normal law."""
    bound: float | Floats = math.inf
    """How large a value can be at all, in size; of all alike, or of each."""

    def interval(self, level: float = 0.95) -> Interval:
        """Return mean -+ t sd, with t the quantile of Student's law, or of the normal one.

        What no value can be is left out.

        Examples
        --------
        >>> low, high = Values(np.zeros(1), np.ones(1)).interval(0.95)
        >>> round(float(high[0]), 2)
        1.96
        """
        if not 0 < level < 1:
            raise ValueError(f"The level of an interval lies between 0 and 1; {level} does not.")
        half = float(special.stdtrit(self.df, (1 + level) / 2)) * self.sd
        low, high = self.mean - half, self.mean + half
        return Interval(*(np.clip(end, -self.bound, self.bound) for end in (low, high)))

    def at(self, where: Any) -> Values:
        """Return some of the values, by an index of their arrays."""
        bound = self.bound[where] if isinstance(self.bound, np.ndarray) else self.bound
        return self._replace(mean=self.mean[where], sd=self.sd[where], bound=bound)


def bound_of(rewards: Floats, discounts: Floats) -> float:
    r"""Return how large a value can be with rewards and discounts such as these.

    .. math:: |Q| \le \frac{\max |r|}{1 - \max \gamma}

    As long as there was no reward, or where nothing is discounted, nothing is known.

    Examples
    --------
    >>> round(bound_of(np.ones(3), np.array([0.99, 0.99, 0.0])))
    100
    >>> bound_of(np.zeros(3), np.full(3, 0.99)), bound_of(np.ones(3), np.ones(3))
    (inf, inf)
    """
    reward, discount = (float(np.max(np.abs(part), initial=0.0)) for part in (rewards, discounts))
    return reward / (1 - discount) if reward > 0 and discount < 1 else math.inf


class Solution(NamedTuple):
    """The solved equation."""

    step: Floats
    """theta* - theta, (p,)."""
    share: float
    """s, how much of the way to the memory's own solution it goes."""
    factors: Factors
    """A as LU."""
    noise: Floats
    """B, (blocks, k, k), times what the covariance is of V."""
    waves: int = 0
    """How many columns of each block are waves (:mod:`~valuetrack.values.misfit`)."""
    amplitude: float = 0.0
    """By what they are multiplied; without a misfit they are left out."""
    rounding: float = 0.0
    """What no standard error is below."""

    def covariance(self) -> Floats:
        """Return V, (p, p)."""
        inverse = linalg.lu_solve(self.factors, np.eye(len(self.step)), check_finite=False)
        return np.asarray(inverse @ linalg.block_diag(*self.noise) @ inverse.T)

    def change(self, gradients: Floats) -> Floats:
        """Return how far values of these gradients, (n, p), move, to first order."""
        return np.asarray(self._scaled(gradients) @ self.step)

    def sd(self, gradients: Floats) -> Floats:
        r"""Return :math:`\sqrt{J^\top V J}` for gradients (n, p), and no less than rounding."""
        x = self._solved(self._scaled(gradients))
        variance = np.sum(x * np.matmul(self.noise, x), axis=(0, 1))
        return np.asarray(np.sqrt(np.maximum(variance, 0.0) + self.rounding**2))

    def _scaled(self, gradients: Floats) -> Floats:
        return scaled_blocks(gradients, len(self.noise), self.waves, self.amplitude)

    def _solved(self, gradients: Floats) -> Floats:
        """Return A^-T J, (blocks, k, n)."""
        blocks, k, _ = self.noise.shape
        x = linalg.lu_solve(self.factors, gradients.T, trans=1, check_finite=False)
        return np.asarray(x.reshape(blocks, k, -1))

    def among(self, gradients: Floats) -> Floats:
        r"""Return :math:`J V J^\top`, (n, n), for gradients whose waves have their amplitude."""
        x = self._solved(gradients)
        return np.asarray(np.einsum("bkn,bkm->nm", x, np.matmul(self.noise, x), optimize=True))


def solve(
    batches: Batches,
    blocks: int,
    k: int,
    prior_variance: float | None = None,
    seen: float = 1.0,
    waves: int = 0,
) -> Solution:
    r"""Solve the equation over all transitions, which are gone through several times.

    Parameters
    ----------
    batches
        Returns the transitions from the first to the last, in batches.
    blocks, k
        The number of blocks and their size; see :mod:`~valuetrack.values.equations`.
    prior_variance
        :math:`\tau^2`. By default it gives a typical value the sd of half the value:
        :math:`\tau^2 = \overline{Q^2} / (4 \overline{|J|^2})` over the memory, with the present
        values or the solved ones, whichever are larger, and :math:`\sigma^2` is that at the
        solution. With a given one it is that of the present values.
    seen
        w, from how many times as many transitions the present values were learned.
    waves
        How many columns follow on the k of each block: waves for a misfit.

    Examples
    --------
    Rewards of a single state that is left at once are averaged:

    >>> one = np.ones((4, 1), np.float32)
    >>> reward = np.array([1.0, 2.0, 3.0, 2.0], np.float32)
    >>> rows = Rows(np.zeros(4, int), one, one, 0 * one, reward, reward)
    >>> solution = solve(lambda: [rows], 1, 1, prior_variance=1e9)
    >>> solution.change(np.ones((1, 1))).round(3), solution.sd(np.ones((1, 1))).round(3)
    (array([2.]), array([0.471]))
    """
    sums, probes = empty(blocks, k + waves), list[Rows]()
    for rows in batches():
        sums = sums.plus(rows, waves)
        probes.append(some_of(rows, PROBED))
    probed = some_of(Rows(*map(np.concatenate, zip(*probes, strict=True))), PROBED)
    amplitude = 0.0
    found = _solved(sums, probed, waves, amplitude, seen, prior_variance)
    if waves:
        amplitude = _amplitude(batches, sums, waves, blocks, found)
    if amplitude:
        found = _solved(sums, probed, waves, amplitude, seen, found.prior_variance, found.noise)
        # Part of what seemed to be noise was misfit: once more, with what is left of it.
        noise = _noise_left(_columns(probed, waves, amplitude), found)
        found = _solved(sums, probed, waves, amplitude, seen, found.prior_variance, noise)
    spread = np.tile(np.eye(found.step.size // blocks), (blocks, 1, 1))
    spread *= found.noise**2 / found.prior_variance / seen
    for rows in batches():
        own = _columns(rows, waves, amplitude)
        add_noise(spread, own, without_itself(own, after_step(own, found.step), found.inverse))
    solution = Solution(found.step, 1.0, found.factors, spread, waves, amplitude, sums.rounding)
    share = share_of_step(solution, gradients_of(_columns(probed, waves, amplitude)), seen)
    scale = 1 / seen + (1 - 1 / seen) * share
    return solution._replace(step=share * found.step, share=share, noise=scale * spread)


class _Found(NamedTuple):
    """The memory's own solution."""

    step: Floats
    factors: Factors
    inverse: Floats
    """Of A, in single precision."""
    noise: float
    """sigma^2."""
    prior_variance: float
    """tau^2."""


def _solved(
    sums: Equations,
    probed: Rows,
    waves: int,
    amplitude: float,
    seen: float,
    prior_variance: float | None,
    noise: float | None = None,
) -> _Found:
    """Solve the equation of the memory, with waves or, if they have no amplitude, without."""
    blocks = probed.weights.shape[1]
    left = scaled_blocks(sums.left, blocks, waves, amplitude)
    left = scaled_blocks(left.T, blocks, waves, amplitude).T
    right = scaled_blocks(sums.right[None], blocks, waves, amplitude)[0]
    sums = sums._replace(left=left, right=right)
    if noise is None or prior_variance is None:
        noise, ridge = weight_of_prior(sums, prior_variance)
    else:
        ridge = noise / prior_variance
    factors, step = _factorised(sums, ridge / seen)
    if prior_variance is None:
        # Once more, with the noise that is left and values as large as they come out: the present
        # ones may be far from both.
        own = _columns(probed, waves, amplitude)
        solved = _solved_sums(sums, own, gradients_of(own) @ step, after_step(own, step))
        noise, ridge = weight_of_prior(solved, None)
        factors, step = _factorised(sums, ridge / seen)
    inverse = linalg.lu_solve(factors, np.eye(len(step)), check_finite=False).astype(np.float32)
    return _Found(step, factors, inverse, noise, noise / ridge)


def _amplitude(batches: Batches, sums: Equations, waves: int, blocks: int, found: _Found) -> float:
    """Return by what to multiply the waves, from what a solution without them leaves."""
    of = misfit.leftover(sums.left, sums.right, blocks, waves, found.factors)
    for rows in batches():
        own = _columns(rows, waves, 0.0)
        of.add_noise(rows, without_itself(own, after_step(own, found.step), found.inverse))
    nu2 = misfit.variance(of, found.noise, PRIOR_SHARE * sums.value / sums.transitions)
    return math.sqrt(nu2 / found.prior_variance)


def _noise_left(probed: Rows, found: _Found) -> float:
    """Return the mean of delta^2 at a solution, of each transition without itself.

    It is never more than the noise was, and no less than a hundredth of it: only the prior, whose
    weight goes by the noise, holds directions that the memory leaves open.
    """
    alone = without_itself(probed, after_step(probed, found.step), found.inverse)
    left = float(np.mean(np.square(alone, dtype=np.float64)))
    return float(np.clip(left, LEAST_LEFT * found.noise, found.noise))


def _columns(rows: Rows, waves: int, amplitude: float) -> Rows:
    """Return rows whose waves have their amplitude."""
    if not waves:
        return rows
    now, following = (scaled(part, waves, amplitude) for part in (rows.now, rows.following))
    return rows._replace(now=now, following=following)


def scaled(gradients: Floats, waves: int, amplitude: float) -> Floats:
    """Return gradients with their last columns times an amplitude, and without them if it is 0."""
    if not waves:
        return gradients
    if not amplitude:
        return gradients[:, :-waves]
    factors = np.ones(gradients.shape[1], gradients.dtype)
    factors[factors.size - waves :] = amplitude
    return np.asarray(gradients * factors)


def scaled_blocks(gradients: Floats, blocks: int, waves: int, amplitude: float) -> Floats:
    """Return the same for gradients by all parameters, (n, blocks * (k + waves))."""
    if not waves:
        return gradients
    count = len(gradients)
    each = np.ascontiguousarray(gradients).reshape(count * blocks, -1)
    return scaled(each, waves, amplitude).reshape(count, -1)


def _solved_sums(sums: Equations, probed: Rows, change: Floats, delta: Floats) -> Equations:
    """Return the sums with the squares of values and temporal differences at the solution.

    They are estimated at some transitions. Values count as the larger of what they were and are.
    """
    value = max(sums.value / sums.transitions, float(np.mean((probed.value + change) ** 2)))
    ratio = float(np.mean(delta**2)) / max(float(np.mean(probed.delta**2)), 1e-30)
    return sums._replace(value=sums.transitions * value, delta=sums.delta * min(ratio, 1.0))


def _factorised(sums: Equations, ridge: float) -> tuple[Factors, Floats]:
    """Return A as LU, and the step to the solution."""
    left = sums.left.copy()
    left[np.diag_indices_from(left)] += ridge
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", linalg.LinAlgWarning)  # the values will be NaN
        factors = linalg.lu_factor(left, overwrite_a=True, check_finite=False)
        return factors, linalg.lu_solve(factors, sums.right, check_finite=False)


def share_of_step(whole: Solution, gradients: Floats, seen: float) -> float:
    r"""Return s, the share of the step that is taken, by the estimate of James and Stein.

    .. math:: s = \max\left(0, 1 - \frac{1 - 2 / d}{\overline{z^2}}\right),

    where z is the change of a value by the whole step over the sd of its noise. A mean that has
    arrived has :math:`\overline{z^2} = 1` on average; one that is off by as much again as the
    noise, 2. Values of different states move together: their z count as d independent ones,
    :math:`d = n^2 / \sum_{ij} \rho_{ij}^2` with the correlations :math:`\rho` of their noise.
    Whether two or fewer have arrived cannot be told, and the whole step is taken.
    """
    if seen <= 1:
        return 1.0
    change = np.asarray(gradients @ whole.step)
    covariance = whole.among(gradients)
    sd = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    some = sd > 0
    if not np.any(change[some]):
        return 0.0
    sd, correlation = sd[some], covariance[np.ix_(some, some)] / np.outer(sd[some], sd[some])
    independent = len(sd) ** 2 / float(np.sum(correlation**2))
    z2 = float(np.mean((change[some] / sd) ** 2)) / (1 - 1 / seen)
    return float(np.clip(1 - max(1 - 2 / independent, 0.0) / z2, 0.0, 1.0))


def weight_of_prior(sums: Equations, prior_variance: float | None) -> tuple[float, float]:
    r"""Return :math:`\sigma^2` and :math:`\rho`."""
    value, gradient = (
        max(total / sums.transitions, 1e-30) for total in (sums.value, sums.gradient)
    )
    noise = max(sums.delta / sums.transitions, SMALLEST_NOISE**2 * value, 1e-30)
    prior = PRIOR_SHARE * max(value, noise) / gradient if prior_variance is None else prior_variance
    return noise, noise / prior
