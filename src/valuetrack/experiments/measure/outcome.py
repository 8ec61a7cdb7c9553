"""What users get in the end: the return of ``agent.evaluate``, and how right its values are.

Agents have the pool that they have for users, and act as ``predict`` does. Where the world is a
table, their values are compared with the exact ones of their own greedy policy, over the state-
actions in the replay memory; everywhere, the value where greedy episodes begin with what comes of
them.
"""

from __future__ import annotations

import time
from typing import Literal

import numpy as np
from pydantic import Field

from valuetrack.api.agent import AnyAgent
from valuetrack.api.options import Count
from valuetrack.envs.gym.tabular import TransitionTable, optimal_values
from valuetrack.experiments.measure import truths
from valuetrack.experiments.measure.curves import CurvesMeasure, CurvesOptions, plan_points
from valuetrack.experiments.spec import Row
from valuetrack.io.arrays import Arrays
from valuetrack.io.run_folder import Columns
from valuetrack.types import Bools, Floats, Json, NDArray

__all__ = ["OutcomeMeasure", "OutcomeOptions", "plan_points"]

NUMBERS = ("state_actions", "value_rmse", "value_bias", "acted_rmse", "policy_value", "best_value")
"""What is known of a seed where the world is a table."""


class OutcomeOptions(CurvesOptions):
    """How often a policy is tried out, and on how many episodes at the end.

    Attributes
    ----------
    points, episodes
        How many points the curves have, and greedy episodes each of them.
    final_episodes
        Greedy episodes at the end.
    final_episodes_in
        The same in some environments, by id, whose episodes take long.
    """

    kind: Literal["outcome"] = "outcome"
    points: Count = 20
    episodes: Count = 10
    final_episodes: Count = 100
    final_episodes_in: dict[str, Count] = Field(default_factory=dict)


class OutcomeMeasure(CurvesMeasure):
    """Plays greedy episodes at every point, more of them at the end, and scores the values."""

    def __init__(self, options: OutcomeOptions, row: Row, agent: AnyAgent) -> None:
        super().__init__(options, row, agent)
        self.final = options.final_episodes_in.get(row.env, options.final_episodes)
        self.exact, self.table = truths.exact_finder(agent), truths.table_of(agent)
        self.seconds = 0.0
        """What looking has taken, over all seeds."""

    def look(self, index: int) -> Json:
        """Play with the policy of a point; the time for that is no time of training."""
        began = time.monotonic()
        record = super().look(index)
        self.seconds += time.monotonic() - began
        return record

    def noted(self, returns: NDArray, diverged: Bools) -> Columns:
        """Write down the best return so far; diverged seeds have none to add."""
        count = len(self.agent.seeds)
        before = self.records.columns.get("best_return", np.full(count, np.nan))[-count:]
        return {"best_return": np.fmax(before, np.where(diverged, np.nan, returns))}

    def tables(self) -> dict[str, Columns]:
        """Return the points, and for each seed what came of it; NaN where there is no truth."""
        trainer, seeds = self.agent.trainer, self.agent.seeds
        played = self.agent.play(self.final)
        returns, discounted, expected = (np.asarray(part, np.float64) for part in played[:3])
        scores = [self._values(member) for member in range(len(seeds))]
        of_seeds = {
            "seed": np.asarray(seeds),
            "final_return": returns.mean(axis=1),
            "final_return_sd": returns.std(axis=1),
            "discounted_return": discounted.mean(axis=1),
            "start_value": expected.mean(axis=1),
            **{name: np.array([score[name] for score in scores]) for name in NUMBERS},
            "halvings": trainer.halvings,
            "looking_seconds": np.full(len(seeds), self.seconds / len(seeds)),
        }
        return {**super().tables(), "seeds": of_seeds}

    def _values(self, member: int) -> dict[str, float]:
        """Compare the values of a seed with the exact ones of its own policy."""
        if self.exact is None or self.agent.trainer.diverged[member] >= 0:
            return dict.fromkeys(NUMBERS, np.nan)
        truth = self.exact(member)
        seen = (truths.visits(self.agent, member, truth) > 0) & np.isfinite(truth.values)
        estimate = self.agent.posterior(truth.observations, member=member)
        acted_on = estimate.latest if estimate.acted_on is None else estimate.acted_on
        error, acted = (np.asarray(q) - truth.values for q in (estimate.mean, acted_on))
        return {
            "state_actions": float(seen.sum()),
            "value_rmse": _root_mean_square(error[seen]),
            "value_bias": float(error[seen].mean()),
            "acted_rmse": _root_mean_square(acted[seen]),
            **self._start(truth, np.asarray(acted_on)),
        }

    def _start(self, truth: truths.Truth, acted_on: Floats) -> dict[str, float]:
        """Return the exact value of the policy where episodes begin, and of the best one."""
        if self.table is None:
            return {"policy_value": np.nan, "best_value": np.nan}
        starts = self.table.starts[truth.states]
        greedy = np.argmax(np.where(np.isfinite(truth.values), acted_on, -np.inf), axis=1)
        own = truth.values[np.arange(len(greedy)), greedy]
        best = _best(self.table, self.agent.options.discount)[truth.states]
        return {"policy_value": float(starts @ own), "best_value": float(starts @ best)}

    def arrays(self) -> Columns:
        """Return the points so far, and what looking has taken."""
        return {**super().arrays(), "seconds": np.array(self.seconds)}

    def restore(self, arrays: Arrays) -> None:
        """Go on with what was saved."""
        super().restore(arrays)
        self.seconds = float(arrays["seconds"])


def _best(table: TransitionTable, discount: float) -> Floats:
    """Return the value of the best policy in each state; NaN where no episode acts."""
    q = optimal_values(table, discount)
    return np.where(table.legal.any(axis=1), np.where(table.legal, q, -np.inf).max(axis=1), np.nan)


def _root_mean_square(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))
