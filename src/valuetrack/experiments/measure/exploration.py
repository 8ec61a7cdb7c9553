"""When a training has found what is hard to find: returns of its own episodes, regret and all.

A task counts as solved, by bsuite's rule, from the first point on at which the mean regret of all
training episodes so far is below a bound. A unit may end there.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from valuetrack.api.agent import AnyAgent
from valuetrack.api.options import Count
from valuetrack.experiments.measure.curves import CurvesMeasure, CurvesOptions, plan_points
from valuetrack.experiments.spec import Row
from valuetrack.io.run_folder import Columns
from valuetrack.types import Floats, NDArray

__all__ = ["ExplorationMeasure", "ExplorationOptions", "plan_points"]


class ExplorationOptions(CurvesOptions):
    """What an episode pays at best, and when a task counts as solved.

    Attributes
    ----------
    points, episodes
        How many points the curves have, and greedy episodes each of them.
    final_episodes
        Greedy episodes at the end.
    best_return
        What an episode of the best policy pays.
    solved_below
        The task is solved where the mean regret of all episodes so far is below this share of the
        best return.
    ends_when_solved
        Whether a unit ends when all its seeds have solved the task or diverged.
    """

    kind: Literal["exploration"] = "exploration"
    points: Count = 200
    episodes: Count = 1
    final_episodes: Count = 10
    best_return: float = Field(1.0, gt=0)
    solved_below: float = Field(0.9, gt=0, le=1)
    ends_when_solved: bool = True


class ExplorationMeasure(CurvesMeasure):
    """Adds up the regret of the training's own episodes."""

    options: ExplorationOptions

    def __init__(self, options: ExplorationOptions, row: Row, agent: AnyAgent) -> None:
        super().__init__(options, row, agent)
        self.options = options

    @property
    def done(self) -> bool:
        """Whether every seed has solved the task, or never will."""
        if not self.options.ends_when_solved or not self.records.columns:
            return False
        return bool((np.isfinite(self._solved_at()) | self._by_seed("diverged")[:, -1]).all())

    def tables(self) -> dict[str, Columns]:
        """Return the points, and for each seed after how many episodes it had solved the task."""
        played = self.agent.play(self.options.final_episodes)
        episodes = self._by_seed("training_episodes")
        seeds = {
            "seed": np.asarray(self.agent.seeds),
            "solved_at": self._solved_at(),
            "training_episodes": episodes.sum(axis=1),
            "training_return": self._mean_returns()[:, -1],
            "final_return": np.asarray(played.returns, np.float64).mean(axis=1),
        }
        return {**super().tables(), "seeds": seeds}

    def _solved_at(self) -> Floats:
        """Return the number of episodes by which each seed had solved the task; NaN if not."""
        best, bound = self.options.best_return, self.options.solved_below
        solved = best - self._mean_returns() < bound * best
        first = solved.argmax(axis=1)
        episodes = self._by_seed("training_episodes").cumsum(axis=1)[np.arange(len(first)), first]
        return np.where(solved.any(axis=1), episodes, np.nan)

    def _mean_returns(self) -> Floats:
        """Return the mean return of all training episodes up to each point, (seeds, points)."""
        episodes = self._by_seed("training_episodes")
        gained = np.where(episodes > 0, self._by_seed("training_return"), 0.0) * episodes
        so_far: Floats = gained.cumsum(axis=1) / np.maximum(episodes.cumsum(axis=1), 1)
        return so_far

    def _by_seed(self, name: str) -> NDArray:
        """Return a column of the points so far, (seeds, points)."""
        return self.records.columns[name].reshape(-1, len(self.agent.seeds)).T
