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

from collections.abc import Callable
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
    quantiles = getattr(estimate, "quantiles", None)  # (..., M) where an agent learns them
    if quantiles is not None:
        found["quantiles"] = of_samples(np.moveaxis(np.asarray(quantiles), -1, 0))
    return found


def calibrated(agent: AnyAgent, observations: Any, member: int) -> Forecast:
    """Return the value intervals of an agent that has been calibrated."""
    estimate = agent.posterior(observations, member=member)
    return of_intervals(estimate.solved.mean, lambda level: estimate.interval(level, "value"))


def _solved(estimate: Estimate) -> Forecast:
    mean, sd = estimate.solved
    return Forecast(
        mean, estimate.solved.interval, lambda truth: scores.crps_normal(truth, mean, sd)
    )


def _prediction(estimate: Estimate) -> Forecast:
    # The law of the paper's interval is the samples' spread, moved to the latest one.
    moved = estimate.samples + (estimate.latest - estimate.mean)
    return Forecast(
        estimate.latest,
        lambda level: estimate.interval(level, "prediction"),
        lambda truth: scores.crps_samples(truth, moved),
    )


def of_samples(samples: Floats, centre: Floats | None = None) -> Forecast:
    """Return samples, or quantiles at equal distances, (samples, ...), as a distribution."""
    pool = posterior.from_samples(samples)
    return Forecast(
        samples.mean(axis=0) if centre is None else centre,
        lambda level: posterior.credible_interval(pool, level),
        lambda truth: scores.crps_samples(truth, samples),
    )


def of_intervals(centre: Floats, interval: Callable[[float], Interval]) -> Forecast:
    """Return a distribution of which only the intervals are known."""

    def crps(truth: Floats) -> Floats:
        # The levels of intervals whose ends are quantiles at (i - 1/2) / M.
        levels = (2 * np.arange(QUANTILES // 2) + 1) / QUANTILES
        ends = [end for level in levels for end in interval(float(level))]
        return scores.crps_samples(truth, np.stack(ends))

    return Forecast(centre, interval, crps)
