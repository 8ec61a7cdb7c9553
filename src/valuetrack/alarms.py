r"""When is a number larger than it used to be? A sequential test with a known rate of false alarms.

Scores come one by one. The rank of a new one among the n last ones, 1 for the largest, is drawn
evenly from 1, ..., n + 1 as long as nothing has changed, whatever their law is. So with decreasing
weights w the bet

.. math:: e = \frac{(n + 1)\, w_{\text{rank}}}{\sum_{r = 1}^{n + 1} w_r}, \qquad
          w_r = (r - 1/2)^{-4/5}

is worth 1 in the mean, and more once scores grow. Bets at every time since the beginning add up to

.. math:: R_t = (R_{t-1} + 1)\, e_t,

and an alarm is raised when R reaches a threshold A. As :math:`R_t - t` is a martingale until
something changes, this takes at least A scores in the mean: no more than one false alarm in A
scores. Several scores at a time bet on their own, with an even share each. After an alarm all is
forgotten: what comes then is the new usual.

Examples
--------
>>> evidence, alarms = begin(scores=1, window=50), []
>>> random = np.random.default_rng(1)
>>> for time in range(120):
...     score = random.random() + (time >= 100)  # grows by one from the 101st on
...     evidence, is_alarm = add(evidence, np.array([score]), threshold=1_000)
...     alarms += [time] if is_alarm else []
>>> alarms
[102]

References
----------
Shin, Ramdas and Rinaldo (2023), E-detectors: a nonparametric framework for sequential change
detection, arXiv:2203.03532. Vovk (2021), Testing randomness online, Statistical Science 36,
arXiv:1906.09256.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from valuetrack.types import Floats, NDArray

WINDOW = 100
"""With how many earlier scores a new one is compared at most."""
LEAST = 20
"""With how many at least; before there are, nothing is bet."""
POWER = 0.8
"""How steeply weights fall with the rank."""


class Evidence(NamedTuple):
    """What is known of a series of scores."""

    scores: NDArray
    """The last ones, (window, k), in a ring."""
    seen: NDArray
    """How many there have been since the beginning, or the last alarm; an integer."""
    size: NDArray
    """R, a float."""


def begin(scores: int, window: int = WINDOW) -> Evidence:
    """Return no evidence, for ``scores`` numbers at a time."""
    return Evidence(np.zeros((window, scores)), np.array(0), np.array(0.0))


def add(evidence: Evidence, scores: Floats, threshold: float) -> tuple[Evidence, bool]:
    """Take new scores, (k,), and return whether they raise an alarm; NaN counts as no score."""
    if not np.isfinite(scores).all():
        return evidence, False
    window, count = len(evidence.scores), int(evidence.seen)
    size = (float(evidence.size) + 1.0) * bet(evidence.scores[: min(count, window)], scores)
    if size >= threshold:
        return begin(len(scores), window), True
    kept = evidence.scores.copy()
    kept[count % window] = scores
    return Evidence(kept, np.array(count + 1), np.array(size)), False


def bet(earlier: Floats, scores: Floats) -> float:
    """Return what a bet on large scores wins: 1 in the mean, and 1 while too few are known.

    Scores that are equal count as larger, so that a constant series never wins.
    """
    count = len(earlier)
    if count < LEAST:
        return 1.0
    weights = (np.arange(count + 1) + 0.5) ** -POWER
    rank = (earlier >= scores).sum(axis=0)  # 0 for the largest
    return float((weights[rank] / weights.mean()).mean())
