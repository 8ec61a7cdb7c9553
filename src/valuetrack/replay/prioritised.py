r"""Prioritised replay: transitions are drawn the more often, the larger their last error was.

.. math:: P(i) = \frac{p_i^\alpha}{\sum_k p_k^\alpha}, \qquad p_i = |\delta_i| + 0.001, \qquad
          w_i = \Big(\frac{1}{N P(i)}\Big)^\beta \Big/ \max_j w_j.

:math:`\delta_i` is the error of the update that drew the transition last; one that was never drawn
counts as much as the largest in the memory. With :math:`\alpha = 0` all are drawn evenly. The
weights :math:`w_i`, on the losses of a batch, undo for :math:`\beta = 1` what is drawn more often;
the maximum is that of the batch. A batch of k has one transition from each k-th part of the sum.

Only :math:`p_i^\alpha` is kept, and is summed up anew for every batch, by parts of about the square
root of the memory: no rounding is carried along, and a resumed training has the same bits.

References
----------
Schaul, Quan, Antonoglou and Silver (2016). Prioritized experience replay. ICLR.
https://arxiv.org/abs/1511.05952
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from valuetrack.types import Scalar

SMALLEST = 1e-3
"""Added to errors, so that no transition is forgotten."""


class Chosen(NamedTuple):
    """What was drawn of one seed's memory; arrays of NumPy or of JAX."""

    rows: Any
    weights: Any


@dataclass(frozen=True)
class Priorities:
    """The priorities of one seed's rows as pure functions, of NumPy's arrays and JAX's."""

    capacity: int
    alpha: float

    @property
    def parts(self) -> int:
        """In how many parts they are summed up."""
        return math.isqrt(self.capacity - 1) + 1

    @property
    def size(self) -> int:
        """How many numbers they take: whole parts, of which the last may not be filled."""
        return -(-self.capacity // self.parts) * self.parts

    def of_new(self, xp: ModuleType, kept: Any) -> Any:
        """Return what a new transition counts: the largest of all, or 1 if there is none."""
        largest = xp.max(kept, axis=-1)
        return xp.where(largest > 0, largest, 1).astype(kept.dtype)

    def of_errors(self, xp: ModuleType, errors: Any) -> Any:
        r"""Return :math:`p^\alpha`; that of an error that is not finite is the smallest."""
        sizes = xp.where(xp.isfinite(errors), xp.abs(errors), 0.0) + SMALLEST
        return (sizes**self.alpha).astype(np.float32)

    def draw(
        self, xp: ModuleType, kept: Any, uniforms: Any, filled: Scalar, beta: Scalar
    ) -> Chosen:
        """Draw a row per uniform number, in proportion to what is kept of it, and weigh it.

        Examples
        --------
        >>> one = Priorities(4, alpha=1.0)
        >>> kept = np.array([1, 0, 3, 0], np.float32)
        >>> one.draw(np, kept, np.full(4, 0.5, np.float32), 4, 1.0).rows.tolist()
        [0, 2, 2, 2]
        """
        by_part = kept.reshape(self.parts, -1)
        sums = xp.sum(by_part, axis=1)
        ends = xp.cumsum(sums)
        count = len(uniforms)
        target = (xp.arange(count) + uniforms) / count * ends[-1]
        part = xp.minimum(xp.searchsorted(ends, target, side="right"), self.parts - 1)
        within = xp.cumsum(by_part[part], axis=1)
        left = target - (ends[part] - sums[part])
        place = xp.sum(within <= left[:, None], axis=1)
        place = xp.minimum(place, by_part.shape[1] - 1)
        # Rounding may lead beyond the last one that is filled.
        rows = xp.minimum(part * by_part.shape[1] + place, filled - 1)
        # Where all is rounded away a row may count nothing; its weight stays finite.
        share = xp.maximum(kept[rows] / ends[-1], 1e-12)
        weights = (filled * share) ** (-beta)
        return Chosen(rows, (weights / xp.max(weights)).astype(np.float32))
