r"""The weighted average of Remark 1 under decreasing steps: its exact bias and mean square error.

The model is policy evaluation in a corridor of p cells that ends behind the last one. Moves are
certain, rewards are :math:`N(-1, \sigma^2)`, and :math:`h = V(s) - \gamma V(s')`, so that an
episode is the regression :math:`r = H\theta + \eta` with :math:`H = I - \gamma\,\mathrm{shift}`.
An update sees a batch of b episodes. In the eigenbasis of :math:`H^\top H` directions are
independent, and with :math:`d = \theta - m` (m the posterior mean) one update of one direction is

.. math:: d_k = a_k d_{k-1} + \beta_k + G_k y_k + e_k, \qquad e_k \sim N(0, q_k),

where y is the deviation of the batch's mean of :math:`H^\top r` from its expectation. The first two
moments of d, of the running sum :math:`A_k = \sum_{j \le k} \epsilon_j d_j` and of all stored
episodes obey a linear recursion, whatever the memory: nothing is approximated.

Examples
--------
>>> import numpy as np
>>> found = exact_errors(Setting(power=0.5), checkpoints=[10, 1000])
>>> bool(np.all(found.square_bias[1] < found.square_bias[0]))
True

References
----------
Shih and Liang (2024). Fast value tracking for deep reinforcement learning. ICLR.
https://openreview.net/forum?id=uZtpwtsxr1
Teh, Thiery and Vollmer (2016). Consistency and fluctuations for stochastic gradient Langevin
dynamics. JMLR 17(7). https://jmlr.org/papers/v17/teh16a.html
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from valuetrack.checks.cases import double_precision
from valuetrack.checks.linear_gaussian import Gaussian, LinearGaussian, Matrix, posterior
from valuetrack.types import Array

Counts = npt.NDArray[np.int64]

Memory = Literal["fresh", "ring", "fixed"]
"""New data in every update; the last R episodes; R episodes drawn once and kept."""

BATCH = 5
"""Episodes in a batch."""
INITIAL_STEP = 0.04
"""The first step; it moves the fastest direction to its mean in one update of SGLD."""
START = 2.0
"""How many posterior standard deviations off the mean a chain starts, in every direction."""
INNER_ITERATIONS = 5
ALPHA = 0.9
"""Of LKTD."""


class Setting(NamedTuple):
    r"""A sampler, a memory, and the power of :math:`\epsilon_k = \epsilon_0 / k^\varpi`.

    SGLD makes one iteration per update; LKTD is Algorithm 1, with xi restarted and K = 5.
    """

    power: float
    memory: Memory = "fresh"
    capacity: int = 0
    sampler: Literal["sgld", "lktd"] = "sgld"


class Directions(NamedTuple):
    """The model in the eigenbasis of H'H; all but ``basis`` and ``ratio`` have one entry each.

    Attributes
    ----------
    basis
        Its columns are the directions.
    curvature
        The eigenvalues of H'H.
    mean, variance
        The posterior's.
    noise
        The variance of an episode's H'r.
    push
        The expectation of H'r.
    ratio
        n / N.
    """

    basis: Matrix
    curvature: Matrix
    mean: Matrix
    variance: Matrix
    noise: Matrix
    push: Matrix
    ratio: float


class Errors(NamedTuple):
    """Exact errors of the weighted averages after as many updates as ``checkpoints`` say.

    Attributes
    ----------
    checkpoints
        The number T of updates.
    value_bias, value_mse
        Of the average of V in the first cell, about its posterior mean.
    square_bias, square_mse
        Of the average of the mean over cells of (V - posterior mean)^2, about its posterior
        expectation. The latter needs fourth moments: it is known with fresh data, else NaN.
    own_value_mse, own_square_bias
        With a fixed memory: about the posterior of that memory, averaged over memories. Else NaN.
    w2
        2-Wasserstein distance of the last sample's law to the posterior; exact where that law is
        normal, which is with fresh data, else NaN.
    move
        The last update's expected squared length, E|theta_T - theta_{T-1}|^2.
    """

    checkpoints: Counts
    value_bias: Matrix
    value_mse: Matrix
    square_bias: Matrix
    square_mse: Matrix
    own_value_mse: Matrix
    own_square_bias: Matrix
    w2: Matrix
    move: Matrix


class _Moments(NamedTuple):
    """What the recursion carries; vectors over directions, or (slots, directions)."""

    total: Array  # sum of steps
    mean: Array  # E d
    variance: Array  # Var d
    stored: Array  # Cov(d, y of a slot)
    sum_mean: Array  # E A
    sum_variance: Array  # Var A
    sum_last: Array  # Cov(A, d)
    sum_stored: Array  # Cov(A, y of a slot)
    squares: Array  # E sum eps d^2
    squares_variance: Array  # Var sum eps d^2
    squares_last: Array  # Cov(sum eps d^2, d^2)
    move: Array  # E (d_k - d_{k-1})^2


def corridor(
    cells: int = 3,
    *,
    discount: float = 0.7,
    observation_sd: float = 0.5,
    prior_sd: float = 2.0,
    pseudo_episodes: float = 50.0,
    batch: int = BATCH,
) -> LinearGaussian:
    """Return the regression of a batch whose rewards are at their expectation, -1."""
    H = np.tile(np.eye(cells) - discount * np.eye(cells, k=1), (batch, 1))
    return LinearGaussian(H, -np.ones(len(H)), observation_sd, prior_sd, pseudo_episodes * cells)


def directions(model: LinearGaussian, batch: int = BATCH) -> Directions:
    """Rotate the model into the eigenbasis of an episode's H'H."""
    H, r = (part[: len(model.r) // batch] for part in (model.H, model.r))
    curvature, basis = np.linalg.eigh(H.T @ H)
    law = posterior(model)
    return Directions(
        basis=basis,
        curvature=curvature,
        mean=basis.T @ law.mean,
        variance=np.diag(basis.T @ law.covariance @ basis).copy(),
        noise=curvature * model.observation_sd**2,
        push=basis.T @ (H.T @ r),
        ratio=model.ratio,
    )


def start(model: LinearGaussian) -> Matrix:
    """Return the parameters with which every chain starts."""
    system = directions(model)
    return system.basis @ (system.mean + START * np.sqrt(system.variance))


def exact_errors(
    setting: Setting, checkpoints: Sequence[int], model: LinearGaussian | None = None
) -> Errors:
    """Run the recursion to the last checkpoint and return the errors at all of them."""
    model = corridor() if model is None else model
    ends = np.unique(np.asarray(checkpoints, dtype=np.int64))
    with double_precision():
        moments = jax.device_get(_run(setting, model, ends))
    return _errors(setting, directions(model), ends, moments)


def _run(setting: Setting, model: LinearGaussian, ends: Counts) -> _Moments:
    system = directions(model)
    step = partial(_advance, setting, model, system)
    slots = setting.capacity if setting.memory == "ring" else 1
    zero = jnp.zeros(len(system.mean))
    none_stored = jnp.zeros((slots, len(system.mean)))
    offset = START * jnp.sqrt(jnp.asarray(system.variance))
    begin = _Moments(
        jnp.zeros(()), offset, zero, none_stored, zero, zero, zero, none_stored, zero, zero, zero,
        zero,
    )  # fmt: skip

    def stretch(moments: _Moments, bounds: Array) -> tuple[_Moments, _Moments]:
        moments = jax.lax.fori_loop(bounds[0], bounds[1], step, moments)
        return moments, moments._replace(
            # One row is enough where all slots are alike, and rings do not need theirs.
            stored=moments.stored[:1],
            sum_stored=moments.sum_stored[:1],
        )

    bounds = np.stack([np.concatenate([[1], ends[:-1] + 1]), ends + 1], axis=1)
    result: _Moments = jax.jit(lambda m, b: jax.lax.scan(stretch, m, b)[1])(begin, bounds)
    return result


def _advance(
    setting: Setting, model: LinearGaussian, system: Directions, k: Any, old: _Moments
) -> _Moments:
    """Make update k, counted from one."""
    eps = INITIAL_STEP * jnp.asarray(k, float) ** -setting.power
    a, gain, noise = coefficients(setting.sampler, model, system, eps)
    offset = (a - 1) * system.mean + gain * system.push
    old, weight, spread = _look(setting, system, k, old)
    seen, sum_seen = (weight * jnp.sum(x, axis=0) for x in (old.stored, old.sum_stored))

    mean = a * old.mean + offset
    variance = a**2 * old.variance + 2 * a * gain * seen + gain**2 * spread + noise
    stored = _share(setting, system, k, a * old.stored, gain)
    sum_last = a * old.sum_last + gain * sum_seen
    fourth = 2 * variance**2 + 4 * mean**2 * variance  # Var d^2 of a normal d
    squares_last = a**2 * old.squares_last
    return _Moments(
        total=old.total + eps,
        mean=mean,
        variance=variance,
        stored=stored,
        sum_mean=old.sum_mean + eps * mean,
        sum_variance=old.sum_variance + 2 * eps * sum_last + eps**2 * variance,
        sum_last=sum_last + eps * variance,
        sum_stored=old.sum_stored + eps * stored,
        squares=old.squares + eps * (variance + mean**2),
        squares_variance=old.squares_variance + 2 * eps * squares_last + eps**2 * fourth,
        squares_last=squares_last + eps * fourth,
        move=(1 - a) ** 2 * old.variance
        + ((a - 1) * old.mean + offset) ** 2
        + 2 * (a - 1) * gain * seen
        + gain**2 * spread
        + noise,
    )


def _look(setting: Setting, system: Directions, k: Any, old: _Moments) -> tuple[_Moments, Any, Any]:
    """Return the moments with the new episode stored, how much each slot counts, and Var y."""
    if setting.memory == "fresh":
        return old, 0.0, system.noise / BATCH
    if setting.memory == "fixed":
        return old, 1.0, system.noise * (1 / BATCH + (1 - 1 / BATCH) / setting.capacity)
    slot = (k - 1) % setting.capacity
    filled = jnp.minimum(k, setting.capacity)
    forgotten = [x.at[slot].set(0.0) for x in (old.stored, old.sum_stored)]
    spread = system.noise * (1 / BATCH + (1 - 1 / BATCH) / filled)  # two draws may coincide
    return old._replace(stored=forgotten[0], sum_stored=forgotten[1]), 1 / filled, spread


def _share(setting: Setting, system: Directions, k: Any, kept: Array, gain: Any) -> Array:
    """Return Cov(d, y of a slot) after an update that saw the slot with its share of the batch."""
    if setting.memory == "fresh":
        return jnp.zeros_like(kept)
    if setting.memory == "fixed":  # the one slot is the mean of the whole memory
        return jnp.asarray(kept + gain * system.noise / setting.capacity)
    filled = jnp.minimum(k, setting.capacity)
    in_use = (jnp.arange(setting.capacity) < filled)[:, None]
    return jnp.where(in_use, kept + gain * system.noise / filled, 0.0)


def coefficients(
    sampler: Literal["sgld", "lktd"], model: LinearGaussian, system: Directions, eps: Any
) -> tuple[Array, Array, Array]:
    """Return a, G and q of one update; LKTD's latent xi is carried through its K iterations."""
    ratio, variance = model.ratio, model.observation_sd**2
    curvature = BATCH * jnp.asarray(system.curvature)
    prior = ratio / model.prior_sd**2
    if sampler == "sgld":
        pull = prior + curvature / variance
        return 1 - eps / 2 * pull, eps / 2 * BATCH / variance, eps * ratio * jnp.ones_like(pull)
    h, kappa = jnp.sqrt(curvature), 1 / (ALPHA * variance)
    analysis = 2 * (1 - ALPHA) * variance
    kalman = eps / (eps + analysis)
    # Columns: how theta and xi depend on theta before the update and on the observation.
    theta, xi = jnp.stack([h**0, 0 * h]), jnp.stack([0 * h, h**0])
    tt = tx = xx = 0 * h  # their covariance
    to_theta, to_xi = eps / 2 * kappa * h, eps / 2 * ratio * kappa * h
    keep_theta, keep_xi = 1 - eps / 2 * (prior + kappa * h**2), 1 - eps / 2 * ratio * kappa
    for _ in range(INNER_ITERATIONS):
        theta, xi = keep_theta * theta + to_theta * xi, keep_xi * xi + to_xi * theta
        tt, tx, xx = (
            keep_theta**2 * tt + 2 * keep_theta * to_theta * tx + to_theta**2 * xx + eps * ratio,
            keep_theta * to_xi * tt + (keep_theta * keep_xi + to_theta * to_xi) * tx
            + to_theta * keep_xi * xx,
            to_xi**2 * tt + 2 * to_xi * keep_xi * tx + keep_xi**2 * xx + eps * ratio,
        )  # fmt: skip
        xi = (1 - kalman) * xi + kalman * jnp.array([[0.0], [1.0]])
        tx, xx = (1 - kalman) * tx, (1 - kalman) ** 2 * xx + kalman**2 * ratio * analysis
    # The observation is sqrt(b / curvature of an episode) times the mean of H'r.
    return theta[0], theta[1] * BATCH / h, tt


def _errors(setting: Setting, system: Directions, ends: Counts, m: Any) -> Errors:
    """Turn moments of directions into errors of the two averages."""
    p, total = len(system.mean), m.total[:, None]
    first = system.basis[0]  # V of the first cell is this combination of directions
    truth = system.variance.sum() / p
    bias = m.sum_mean @ first / m.total
    square_bias = m.squares.sum(axis=1) / m.total / p - truth
    unknown = np.full(len(ends), np.nan)
    fresh, fixed = setting.memory == "fresh", setting.memory == "fixed"
    square_mse = m.squares_variance.sum(axis=1) / (m.total * p) ** 2 + square_bias**2
    mean_gap = np.sum(m.mean**2, axis=1)
    sd_gap = np.sum((np.sqrt(m.variance) - np.sqrt(system.variance)) ** 2, axis=1)
    own_value_mse = own_square_bias = unknown
    if fixed:
        # The posterior mean of a memory is off by this much per unit of its deviation.
        shift = system.variance / (system.noise / system.curvature * system.ratio) * BATCH
        spread = shift**2 * system.noise / setting.capacity
        own = m.sum_variance - 2 * total * shift * m.sum_stored[:, 0] + total**2 * spread
        own_value_mse = own @ first**2 / m.total**2 + bias**2
        moved = spread - 2 * shift * m.sum_stored[:, 0] / total
        own_square_bias = square_bias + moved.sum(axis=1) / p
    return Errors(
        checkpoints=ends,
        value_bias=bias,
        value_mse=m.sum_variance @ first**2 / m.total**2 + bias**2,
        square_bias=square_bias,
        square_mse=square_mse if fresh and setting.sampler == "sgld" else unknown,
        own_value_mse=own_value_mse,
        own_square_bias=own_square_bias,
        w2=np.sqrt(mean_gap + sd_gap) if fresh else unknown,
        move=m.move.sum(axis=1),
    )


def limit_of_lktd(model: LinearGaussian) -> float:
    """Return the bias of the squares' average that LKTD keeps: that of the law with alpha sigma^2.

    The limit of small steps is the posterior of variance alpha sigma^2; see ``docs/posterior.md``.
    """
    law: Gaussian = posterior(model, variance=ALPHA * model.observation_sd**2)
    truth = posterior(model)
    gap = np.trace(law.covariance - truth.covariance) + np.sum((law.mean - truth.mean) ** 2)
    return float(gap / len(truth.mean))
