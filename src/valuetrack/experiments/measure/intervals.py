"""Does an interval say where the value is? At the end of a training, all kinds are scored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from valuetrack.api.agent import AnyAgent
from valuetrack.api.calibration import Checked, check
from valuetrack.api.options import Count
from valuetrack.experiments.measure import truths
from valuetrack.experiments.measure.base import Measure, Records, cycles_of
from valuetrack.experiments.measure.forecasts import (
    KINDS,
    Forecast,
    calibrate,
    calibrated,
    forecasts_of,
)
from valuetrack.experiments.measure.truths import RolloutSizes, SarsaTruth, Truth
from valuetrack.experiments.spec import Row, Section
from valuetrack.io.arrays import Arrays
from valuetrack.io.run_folder import Columns
from valuetrack.scores import interval_score, rank_correlation
from valuetrack.types import Bools, Floats, Json, NDArray

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Of the intervals whose coverage is measured."""
LEVEL = 0.95
"""Of the interval whose width and score are."""
BINS = {"0": (0, 0), "1+": (1, None), "1-9": (1, 9), "10-99": (10, 99), "100+": (100, None)}
"""How often the replay memory holds a state and action, least and most."""
HELD_OUT = 100
"""Greedy episodes that no calibration has seen, to see how intervals cover their returns."""
ALL = "all"
"""The group of all actions, or of all bins."""
RETURN = "return"
"""The kind of interval that is for the return of an episode."""


class IntervalsOptions(Section):
    """How the truth is found, and how often a run tells how far it is.

    Attributes
    ----------
    points
        How many records of returns the training has; intervals are scored at its end.
    sarsa_truth
        What SARSA's values on the indoor escape are compared with: ``"optimal"``, Q*_eps as in the
        paper, or ``"own"``, the values of the epsilon-greedy policy that it has learned.
    states, replayed_states, rollouts, tail
        See :class:`~valuetrack.experiments.measure.truths.RolloutSizes`.
    """

    kind: Literal["intervals"] = "intervals"
    points: Count = 20
    sarsa_truth: SarsaTruth = "optimal"
    states: Count = 200
    replayed_states: Count = 32
    rollouts: Count = 8
    tail: float = Field(1e-4, gt=0, lt=1)


def plan_points(options: IntervalsOptions, row: Row) -> list[int]:
    """Return after how many cycles returns are recorded: evenly, and at the very end."""
    cycles = cycles_of(row)
    points = min(options.points, cycles)
    return [round(cycles * (index + 1) / points) for index in range(points)]


class Scored(NamedTuple):
    """Everything known about the legal state-actions of one seed and kind, each array (n,)."""

    state: NDArray
    action: NDArray
    visits: NDArray
    truth: Floats
    truth_se: Floats
    centre: Floats
    low: Floats
    high: Floats
    """Of the 95 % interval."""
    covered: Bools
    """At each level, (levels, n)."""
    crps: Floats


class IntervalsMeasure(Measure):
    """Scores the intervals of all seeds when they have been trained.

    It remembers nothing: all that it needs is what the agent has learned.
    """

    def __init__(self, options: IntervalsOptions, row: Row, agent: AnyAgent) -> None:
        self.options, self.agent = options, agent
        self.points = plan_points(options, row)
        sizes = RolloutSizes(
            options.states, options.replayed_states, options.rollouts, options.tail
        )
        if agent.trainer.settings.replay_capacity is None:
            raise ValueError(f"Row {row.id!r} keeps no replay memory to solve values from.")
        self.truth = truths.truth_finder(agent, sizes, options.sarsa_truth)

    def look(self, index: int) -> Json:
        """Tell how the training goes."""
        returns, loss = self.agent.trainer.take_trace().means()
        return {"return": returns, "loss": loss}

    def tables(self) -> dict[str, Columns]:
        """Return the scores of all seeds, every interval of the first one, and what returns say.

        Seeds that diverged have none of them.
        """
        scores, states, returns = Records(), Records(), Records()
        first = None
        for member, kind, scored in self._all_scored():
            first = member if first is None else first
            seed = self.agent.seeds[member]
            scores.append(_labelled(seed, kind, group_scores(scored, self.agent.task.actions)))
            if member == first:
                states.append(_labelled(seed, kind, state_columns(scored)))
        for member, checked in self._all_checked():
            seed = self.agent.seeds[member]
            returns.append(_labelled(seed, RETURN, return_columns(checked)))
        found = {"intervals": scores, "states": states, "returns": returns}
        return {name: records.columns for name, records in found.items()}

    def _all_scored(self) -> Iterator[tuple[int, str, Scored]]:
        """Yield every seed and kind, each seed's kinds together."""
        members = np.flatnonzero(self.agent.trainer.diverged < 0).tolist()
        truth_of = {member: self.truth(member) for member in members}
        visits = {m: truths.visits(self.agent, m, truth_of[m]) for m in members}
        said = {m: forecasts_of(self.agent, truth_of[m].observations, m) for m in members}
        # At last: it changes what the agent says.
        for m in calibrate(self.agent, members) if members else ():
            said[m]["calibrated"] = calibrated(self.agent, truth_of[m].observations, m)
        for m in members:
            for kind in (kind for kind in KINDS if kind in said[m]):
                yield m, kind, score(said[m][kind], truth_of[m], visits[m])

    def _all_checked(self) -> Iterator[tuple[int, Checked]]:
        """Yield what held-out episodes say of every seed that could be calibrated."""
        if any(self.agent.calibration.members):
            for member, checked in enumerate(check(self.agent, LEVELS, HELD_OUT, seed=0)):
                if checked is not None:
                    yield member, checked

    def arrays(self) -> Columns:
        """Return nothing: the agent has it all."""
        return {}

    def restore(self, arrays: Arrays) -> None:
        """Take up nothing."""


def score(forecast: Forecast, truth: Truth, visits: NDArray) -> Scored:
    """Compare a forecast with the truth, where an action is legal."""
    places, actions = np.nonzero(np.isfinite(truth.values))

    def pick(values: Floats) -> Floats:
        return np.asarray(values, np.float64)[places, actions]

    true = pick(truth.values)
    ends = {level: tuple(map(pick, forecast.interval(level))) for level in LEVELS}
    low, high = ends[LEVEL]
    return Scored(
        state=truth.states[places],
        action=actions,
        visits=visits[places, actions],
        truth=true,
        truth_se=pick(truth.se),
        centre=pick(forecast.centre),
        low=low,
        high=high,
        covered=np.stack([(low <= true) & (true <= high) for low, high in ends.values()]),
        crps=pick(forecast.crps(truth.values)),
    )


def group_scores(scored: Scored, actions: int) -> Columns:
    """Return the scores of each group of state-actions: by action, by bin of visits, and of all."""
    records = Records()
    for action in (ALL, *map(str, range(actions))):
        for name, chosen in _bins(scored):
            mine = chosen if action == ALL else chosen & (scored.action == int(action))
            if mine.any():
                group = {"action": np.array([action]), "visits": np.array([name])}
                records.append({**group, **_scores(scored, mine)})
    return records.columns


def _bins(scored: Scored) -> Iterator[tuple[str, Bools]]:
    yield ALL, np.ones(len(scored.visits), bool)
    for name, (least, most) in BINS.items():
        yield name, (scored.visits >= least) & (most is None or scored.visits <= most)


def _scores(scored: Scored, mine: Bools) -> Columns:
    """Return the scores of one group, a number each."""
    truth, low, high = scored.truth[mine], scored.low[mine], scored.high[mine]
    error = scored.centre[mine] - truth
    coverage = scored.covered[:, mine].mean(axis=1)
    numbers = {
        "count": float(mine.sum()),
        **{column(level): float(c) for level, c in zip(LEVELS, coverage, strict=True)},
        "width": float(np.mean(high - low)),
        "interval_score": float(np.mean(interval_score(truth, low, high, LEVEL))),
        "crps": float(np.mean(scored.crps[mine])),
        "rank": rank_correlation(high - low, np.abs(error)),
        "rmse": float(np.sqrt(np.mean(error**2))),
        "bias": float(np.mean(error)),
        "truth_se": float(np.sqrt(np.mean(scored.truth_se[mine] ** 2))),
    }
    return {name: np.array([value]) for name, value in numbers.items()}


def column(level: float) -> str:
    """Return the name of the column with the coverage at a level.

    Examples
    --------
    >>> column(0.95)
    'coverage_95'
    """
    return f"coverage_{100 * level:.0f}"


def state_columns(scored: Scored) -> Columns:
    """Return every interval beside the truth, in single precision."""
    counts = {name: getattr(scored, name).astype(np.int32) for name in ("state", "visits")}
    floats = ("truth", "truth_se", "centre", "low", "high", "crps")
    numbers = {name: getattr(scored, name).astype(np.float32) for name in floats}
    return {**counts, "action": scored.action.astype(str), **numbers}


def return_columns(checked: Checked) -> Columns:
    """Return how often held-out returns are in their intervals, a line per level."""
    return {
        "level": np.asarray(LEVELS),
        "coverage": checked.covered.mean(axis=1),
        "width": checked.width,
        "episodes": np.full(len(LEVELS), checked.covered.shape[1]),
    }


def _labelled(seed: int, kind: str, columns: Columns) -> Columns:
    count = len(next(iter(columns.values())))
    return {"seed": np.full(count, seed), "kind": np.full(count, kind), **columns}
