"""What an agent says about its values, as distributions that can be scored.

============== =======================================================================
kind           what it is
============== =======================================================================
``value``      solved from the replay memory, normal (``interval(kind="value")``)
``calibrated`` the same after ``agent.calibrate()``, for agents that have it
``credible``   the samples of the pool; for agents that are no samplers, recent iterates
``prediction`` the same spread around the latest sample
``heads``      BootDQN's heads after the last update
``quantiles``  QR-DQN's quantiles, which are those of the return
============== =======================================================================
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from valuetrack import posterior, scores
from valuetrack.api.agent import AnyAgent
from valuetrack.api.estimate import Estimate
from valuetrack.posterior import Interval
from valuetrack.types import Floats

KINDS = ("value", "calibrated", "credible", "prediction", "heads", "quantiles")
"""In the order of tables."""
QUANTILES = 20
"""How many quantiles stand for a distribution of which only intervals are known."""


class Forecast(NamedTuple):
    """A distribution for each value.

    Attributes
    ----------
    centre
        The point estimate, (states, actions).
    interval
        (level) -> the interval of that level, whose ends are (states, actions).
    crps
        (truth) -> the continuous ranked probability score, (states, actions).
    """

    centre: Floats
    interval: Callable[[float], Interval]
    crps: Callable[[Floats], Floats]


def forecasts_of(agent: AnyAgent, observations: Any, member: int) -> dict[str, Forecast]:
    """Return all that an agent says about the values at some observations, by kind.

    What needs ``agent.calibrate`` is not among it: see :func:`calibrated`.
    """
    estimate = agent.posterior(observations, member=member)
    found = {"value": _solved(estimate)}
    if len(estimate.samples) > agent.learner.heads:  # more than those of the last update
        found["credible"] = of_samples(estimate.samples, estimate.mean)
        found["prediction"] = _prediction(estimate)
    if agent.learner.heads > 1:
        # Heads count as samples, from the oldest update to the latest.
        found["heads"] = of_samples(estimate.samples[-agent.learner.heads :])
    if (quantiles := _quantiles(estimate)) is not None:
        found["quantiles"] = of_quantiles(np.moveaxis(quantiles, -1, 0))
    return found


def calibrated(agent: AnyAgent, observations: Any, member: int) -> Forecast:
    """Return the value intervals that an agent gives after ``agent.calibrate()``."""
    estimate = agent.posterior(observations, member=member)
    low, high = estimate.interval(0.5, "value")
    return of_intervals((low + high) / 2, lambda level: estimate.interval(level, "value"))


def calibrate(agent: AnyAgent, members: Sequence[int]) -> list[int]:
    """Calibrate an agent; return which of the members are, because their episodes show returns."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the tables say which seeds are not
            agent.calibrate()
    except ValueError:
        return []
    each = agent.calibration.members
    return [member for member in members if each[member] is not None]


def _quantiles(estimate: Any) -> Floats | None:
    """Return the quantiles of the return, (states, actions, M), if the agent learns them."""
    try:
        return np.asarray(estimate.quantiles.values, np.float64)
    except (AttributeError, ValueError):
        return None


def _solved(estimate: Estimate) -> Forecast:
    mean, sd = estimate.solved[:2]
    return Forecast(
        mean, estimate.solved.interval, lambda truth: scores.crps_normal(truth, mean, sd)
    )


def _prediction(estimate: Estimate) -> Forecast:
    # The law of the paper's interval is the samples' spread, moved to the latest one.
    moved = estimate.samples + (estimate.latest - estimate.mean)
    return Forecast(
        estimate.latest,
        # Also with fewer samples than users may rest an interval on: that is what is measured.
        lambda level: posterior.prediction_interval(estimate.pool, level, centre=estimate.latest),
        lambda truth: scores.crps_samples(truth, moved),
    )


def of_samples(samples: Floats, centre: Floats | None = None) -> Forecast:
    """Return samples, (samples, ...), as a distribution."""
    pool = posterior.from_samples(samples)
    return Forecast(
        samples.mean(axis=0) if centre is None else centre,
        lambda level: posterior.credible_interval(pool, level),
        lambda truth: scores.crps_samples(truth, samples),
    )


def of_quantiles(quantiles: Floats) -> Forecast:
    """Return quantiles at the levels (i - 1/2) / M, (M, ...), as a distribution.

    Between them it is interpolated linearly; it does not reach beyond the first and the last.

    Examples
    --------
    >>> low, high = of_quantiles(np.array([0.0, 1.0, 2.0, 3.0, 4.0])).interval(0.6)
    >>> round(float(low), 6), round(float(high), 6)  # at the levels 0.2 and 0.8
    (0.5, 3.5)
    """
    ordered, count = np.sort(quantiles, axis=0), len(quantiles)

    def at(level: float) -> Floats:
        place = np.clip(level * count - 0.5, 0, count - 1)
        below = int(place)
        above = min(below + 1, count - 1)
        return np.asarray(ordered[below] + (place - below) * (ordered[above] - ordered[below]))

    return Forecast(
        quantiles.mean(axis=0),
        lambda level: Interval(at((1 - level) / 2), at((1 + level) / 2)),
        lambda truth: scores.crps_samples(truth, quantiles),
    )


def of_intervals(centre: Floats, interval: Callable[[float], Interval]) -> Forecast:
    """Return a distribution of which only the intervals are known."""

    def crps(truth: Floats) -> Floats:
        # The levels of intervals whose ends are quantiles at (i - 1/2) / M.
        levels = (2 * np.arange(QUANTILES // 2) + 1) / QUANTILES
        ends = [end for level in levels for end in interval(float(level))]
        return scores.crps_samples(truth, np.stack(ends))

    return Forecast(centre, interval, crps)
