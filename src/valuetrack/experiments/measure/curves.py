"""How a policy gets better while it learns: returns, and values beside what comes of them."""

from __future__ import annotations

import numpy as np

from valuetrack.api.agent import AnyAgent
from valuetrack.api.options import Count
from valuetrack.experiments.measure.base import Measure, Records, cycles_of
from valuetrack.experiments.spec import Row, Section
from valuetrack.io.arrays import Arrays
from valuetrack.io.run_folder import Columns
from valuetrack.types import Bools, Json, NDArray


class CurvesOptions(Section):
    """How often a policy is tried out, and on how many episodes."""

    points: Count = 100
    episodes: Count = 5


def plan_points(options: CurvesOptions, row: Row) -> list[int]:
    """Return after how many cycles a policy is tried out: evenly, and at the very end.

    A training of fewer cycles has a point after each.
    """
    cycles = cycles_of(row)
    points = min(options.points, cycles)
    return [round(cycles * (index + 1) / points) for index in range(points)]


class CurvesMeasure(Measure):
    """Plays greedy episodes at every point, as ``agent.evaluate`` does."""

    def __init__(self, options: CurvesOptions, row: Row, agent: AnyAgent) -> None:
        self.agent, self.episodes = agent, options.episodes
        self.points = plan_points(options, row)
        self.records = Records()

    def look(self, index: int) -> Json:
        """Play with the policy of a point, and write down how it has gone since the last one."""
        trainer, count = self.agent.trainer, len(self.agent.seeds)
        trace = trainer.take_trace()
        training, loss = trace.means()
        played = self.agent.play(self.episodes, seed=index + 1)
        returns, discounted, expected = (part.mean(axis=1) for part in played[:3])
        diverged = trainer.diverged >= 0
        values = {"discounted_return": discounted, "start_value": expected}
        self.records.append(
            {
                "seed": np.asarray(self.agent.seeds),
                "point": np.full(count, index + 1),
                "step": np.full(count, self.agent.num_timesteps),
                "training_return": np.asarray(training, np.float64),
                "training_episodes": np.asarray(trace.episodes, np.int64),
                "evaluation_return": returns,
                **values,
                **self.noted(returns, diverged),
                "diverged": diverged,
            }
        )
        return {"return": training, "loss": loss, "evaluation": returns, **values}

    def noted(self, returns: NDArray, diverged: Bools) -> Columns:
        """Return more to write down at a point, from the mean greedy return of each seed."""
        del returns, diverged
        return {}

    def tables(self) -> dict[str, Columns]:
        """Return the points."""
        return {"points": self.records.columns}

    def arrays(self) -> Columns:
        """Return the points so far."""
        return self.records.arrays("records")

    def restore(self, arrays: Arrays) -> None:
        """Go on with what was saved."""
        self.records.restore(arrays, "records")
