r"""Sums over transitions: the temporal-difference equation and the noise in it.

The gradients of a transition come in blocks, :math:`J_i = e_{b_i} \otimes f_i` and
:math:`\gamma_i J'_i = g_i \otimes f'_i`. On the last layer there is one block per action, f are the
features of a state, and g holds the discounted probabilities of the next action. If all parameters
are meant there is one block, and f is the gradient itself. What is solved is summed in double
precision: nearly parallel gradients are common, and rounding would drown the prior that tells them
apart. Its noise is summed in single precision within a batch.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from valuetrack.types import Floats, Tree

LEAST_REST = 0.05
"""The least of 1 - h: a transition without which nothing would be known has h = 1."""
UNIT = float(np.finfo(np.float32).eps)
"""The precision of values and gradients."""
MOST_STEPS = 1_000
"""Over how many steps rounding adds up, at most."""


class Rows(NamedTuple):
    """Transitions as rows of the equation: arrays of JAX where they are made, of NumPy in sums."""

    block: Tree
    """b, (n,): the block of the action taken."""
    now: Tree
    """f, (n, k)."""
    following: Tree
    """f', (n, k)."""
    weights: Tree
    """g, (n, blocks): what each block of the next state counts, discounted."""
    delta: Tree
    """The temporal difference, (n,)."""
    value: Tree
    """Q(s, a), (n,)."""


class Equations(NamedTuple):
    """Sums over all transitions; p = blocks * k."""

    transitions: int
    left: Floats
    """Sum of J (J - gamma J')^T, (p, p)."""
    right: Floats
    """Sum of J delta, (p,)."""
    gradient: float
    """Sum of |J|^2."""
    delta: float
    """Sum of delta^2."""
    value: float
    """Sum of Q(s, a)^2."""
    discount: float
    """The largest discount."""

    def plus(self, rows: Rows, waves: int = 0) -> Equations:
        """Add a batch, whose last columns may be waves; the matrices are changed in place."""
        blocks, k = rows.weights.shape[1], rows.now.shape[1]
        left = self.left.reshape(blocks, k, blocks, k)
        right = self.right.reshape(blocks, k)
        for b in range(blocks):
            mine = rows.block == b
            now = rows.now[mine].astype(np.float64)
            right[b] += now.T @ rows.delta[mine]
            for c in range(blocks):
                # Where nothing follows in c, only the state itself counts, and only in b.
                counts = slice(None) if b == c else rows.weights[mine, c] != 0
                ahead = rows.weights[mine][counts, c, None] * rows.following[mine][counts]
                left[b, :, c] += now[counts].T @ ((now if b == c else 0.0) - ahead)
        return self._replace(
            transitions=self.transitions + len(rows.delta),
            gradient=self.gradient + _squares(rows.now[:, : k - waves]),
            delta=self.delta + _squares(rows.delta),
            value=self.value + _squares(rows.value),
            discount=max(self.discount, float(np.max(rows.weights.sum(axis=1)))),
        )

    @property
    def rounding(self) -> float:
        r"""How far the precision of one step takes values off, :math:`u |Q| / (1 - \gamma)`."""
        steps = 1 / max(1 - self.discount, 1 / MOST_STEPS)
        return UNIT * steps * math.sqrt(self.value / max(self.transitions, 1))


def empty(blocks: int, k: int) -> Equations:
    """Return sums over nothing."""
    p = blocks * k
    return Equations(0, np.zeros((p, p)), np.zeros(p), 0.0, 0.0, 0.0, 0.0)


def after_step(rows: Rows, step: Floats) -> Floats:
    r"""Return the temporal differences after a step of the parameters, to first order.

    .. math:: \delta_i - (J_i - \gamma_i J'_i)^\top (\theta^* - \theta)
    """
    by_block = step.reshape(rows.weights.shape[1], -1)
    moved = np.sum(rows.now * by_block[rows.block], axis=1)
    ahead = np.sum(rows.weights * (rows.following @ by_block.T), axis=1)
    return np.asarray(rows.delta - moved + ahead)


def without_itself(rows: Rows, delta: Floats, inverse: Floats) -> Floats:
    r"""Return the temporal differences, each at the solution without its own transition.

    By the formula of Sherman and Morrison this is :math:`\delta_i / (1 - h_i)`, with the leverage
    :math:`h_i = (J_i - \gamma_i J'_i)^\top A^{-1} J_i`. ``delta`` are those at the solution, and
    ``inverse`` is A's, (p, p).
    """
    blocks, k = rows.weights.shape[1], rows.now.shape[1]
    parts = inverse.reshape(blocks, k, blocks, k)
    leverage = np.zeros(len(delta), np.float32)
    for b in range(blocks):
        mine = np.flatnonzero(rows.block == b)
        for c in range(blocks):
            # Where nothing follows in c, only the state itself counts, and only in b.
            some = mine if b == c else mine[rows.weights[mine, c] != 0]
            now, ahead = rows.now[some], rows.weights[some, c, None] * rows.following[some]
            change = now - ahead if b == c else -ahead
            leverage[some] += np.sum(change * (now @ parts[c, :, b].T), axis=1)
    return np.asarray(delta / np.maximum(1 - leverage, LEAST_REST))


def some_of(rows: Rows, count: int) -> Rows:
    """Return evenly spaced ones of the transitions: all if there are few, else at least so many."""
    every = max(len(rows.delta) // count, 1)
    return Rows(*(part[::every] for part in rows))


def gradients_of(rows: Rows) -> Floats:
    """Return J, (n, p)."""
    count, k = rows.now.shape
    found = np.zeros((count, rows.weights.shape[1], k))
    found[np.arange(count), rows.block] = rows.now
    return found.reshape(count, -1)


def add_noise(noise: Floats, rows: Rows, delta: Floats) -> None:
    """Add a batch to the sum of delta^2 J J^T, (blocks, k, k): it has no other blocks."""
    for b in range(len(noise)):
        mine = rows.block == b
        scaled = (rows.now[mine] * delta[mine, None]).astype(np.float32)
        noise[b] += scaled.T @ scaled


def _squares(x: Floats) -> float:
    return float(np.sum(np.square(x, dtype=np.float64)))
