r"""n-step transitions, put together from single steps when a batch is drawn.

.. math:: R_t = \sum_{k=0}^{m-1} \Big(\prod_{j<k} \gamma_{t+j}\Big) r_{t+k}, \qquad
          \Gamma_t = \prod_{k=0}^{m-1} \gamma_{t+k}, \qquad
          y_t = R_t + \Gamma_t\, Q(s_{t+m}, \cdot),

with :math:`\gamma_t = \gamma (1 - \text{terminated}_t)`. m is n, or less where the episode ends, is
cut off, or has not gone on yet: then y takes up the value where it stops, which is zero only at a
terminal step. Nothing corrects for actions that the policy would not have taken.

Replay memories keep single steps, of which values are solved, and beside each how many rows
*ahead* the same episode goes on: 0 if it does not. That leaves the order of rows free, which
environments side by side share.

References
----------
Watkins (1989). Learning from delayed rewards. PhD thesis, Cambridge, chapter 7.

Hessel et al. (2018). Rainbow: combining improvements in deep reinforcement learning. AAAI.
https://arxiv.org/abs/1710.02298
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from valuetrack.types import NDArray, Transition

At = Callable[[Any], Any]
"""(rows) -> something of each."""


class Sum(NamedTuple):
    """What n-step transitions have that single ones have not; arrays of NumPy or of JAX."""

    last: Any
    """The row of the last of the steps, from which the next observation is taken."""
    reward: Any
    discount: Any


def summed(xp: ModuleType, first: Any, n: int, follow: At, reward: At, discount: At) -> Sum:
    """Return the sums over at most n steps from the rows ``first`` on.

    ``follow`` returns the row in which an episode goes on, or the same one where it does not;
    ``reward`` and ``discount`` are those of a row.

    Examples
    --------
    Three steps that pay 1, 2 and 4, of which the last is terminal:

    >>> pay, left = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.5, 0.0])
    >>> rows = np.arange(3)
    >>> found = summed(np, rows, 2, lambda i: np.minimum(i + 1, 2), lambda i: pay[i],
    ...                lambda i: left[i])
    >>> found.reward.tolist(), found.discount.tolist(), found.last.tolist()
    ([2.0, 4.0, 4.0], [0.25, 0.0, 0.0], [1, 2, 2])
    """
    found = Sum(first, reward(first), discount(first))
    for _ in range(n - 1):
        after = follow(found.last)
        goes_on = after != found.last
        found = Sum(
            after,
            found.reward + xp.where(goes_on, found.discount * reward(after), 0),
            xp.where(goes_on, found.discount * discount(after), found.discount),
        )
    return found


def spanning(first: Transition, last: Transition, found: Sum) -> Transition:
    """Return transitions from the first of their steps to the last."""
    return last._replace(
        observation=first.observation,
        action=first.action,
        reward=found.reward,
        discount=found.discount,
    )


class Links:
    """How many rows ahead episodes go on, for the rings of all seeds, on the host.

    A row is known by its number, how many were written to its seed's ring before it.
    """

    def __init__(self, seeds: int, capacity: int, environments: int) -> None:
        self.ahead = np.zeros((seeds, capacity), np.int32)
        self._open = np.full((seeds, environments), -1, np.int64)
        """The number of each running episode's last row, or -1 if it has none."""

    def break_off(self) -> None:
        """Let no running episode go on."""
        self._open[:] = -1

    def write(self, written: NDArray, is_transition: NDArray, over: NDArray) -> None:
        """Link the rows of a cycle before they are written behind ``written`` others.

        ``is_transition`` says which rows are written, and ``over`` where an episode ends, both
        (seeds, steps, environments).
        """
        capacity, shape = self.ahead.shape[1], is_transition.shape
        numbers = written[:, None] + np.cumsum(is_transition.reshape(shape[0], -1), axis=1) - 1
        numbers = numbers.reshape(shape)
        for step in range(shape[1]):
            here, counts, before = numbers[:, step], is_transition[:, step], self._open
            distance = here - before
            seed, place = np.nonzero(counts & (before >= 0) & (distance < capacity))
            self.ahead[seed, before[seed, place] % capacity] = distance[seed, place]
            seed, place = np.nonzero(counts)
            self.ahead[seed, here[seed, place] % capacity] = 0
            self._open = np.where(counts, np.where(over[:, step], -1, here), before)

    def follow(self, rows: NDArray) -> NDArray:
        """Return in which rows, (seeds, ...), those episodes go on."""
        lead = (-1, *(1,) * (rows.ndim - 1))
        seed = np.arange(len(rows)).reshape(lead)
        after: NDArray = (rows + self.ahead[seed, rows]) % self.ahead.shape[1]
        return after

    def restore(self, ahead: NDArray, written: NDArray) -> None:
        """Take over links that were saved; what they lead to must have been written by then."""
        capacity, filled = self.ahead.shape[1], ahead.shape[1]
        age = (written[:, None] - 1 - np.arange(filled)) % capacity
        self.ahead[:] = 0
        self.ahead[:, :filled] = np.where(ahead <= age, ahead, 0)
        self.break_off()
