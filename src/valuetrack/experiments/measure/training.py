"""A training as ``valuetrack train`` makes it, as units: progress, and the agent at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from valuetrack.api.agent import AnyAgent
from valuetrack.api.options import Count
from valuetrack.experiments.measure.base import Measure, Records, cycles_of, steps_per_cycle
from valuetrack.experiments.spec import Row, Section
from valuetrack.io.arrays import Arrays
from valuetrack.io.run_folder import Columns
from valuetrack.types import Json

AGENT = "agent.vt"


class TrainingOptions(Section):
    """How often a training reports and evaluates, and how many episodes it plays."""

    kind: Literal["training"] = "training"
    reports: Count = 100
    evaluate_every: Count | None = None
    episodes: Count = 10


def plan_points(options: TrainingOptions, row: Row) -> list[int]:
    """Return after how many cycles it reports or evaluates, the end included."""
    cycles = cycles_of(row)
    every = -(-cycles // options.reports)
    points = {*range(every, cycles, every), cycles}
    return sorted(points | set(_evaluations(options, row)))


def _evaluations(options: TrainingOptions, row: Row) -> range:
    """Return after which cycles greedy episodes are played."""
    if options.evaluate_every is None:
        return range(0)
    every = -(-options.evaluate_every // steps_per_cycle(row))
    return range(every, cycles_of(row) + 1, every)


class TrainingMeasure(Measure):
    """Reports what a training reports; plays greedy episodes at the end, and saves the agent."""

    def __init__(self, options: TrainingOptions, row: Row, agent: AnyAgent) -> None:
        self.options, self.agent = options, agent
        self.points = plan_points(options, row)
        self.evaluations = _evaluations(options, row)
        self.records = Records()

    def look(self, index: int) -> Json:
        """Write down how it has gone since the last point."""
        agent, cycle = self.agent, self.points[index]
        trace, count = agent.trainer.take_trace(), len(agent.seeds)
        (returns, loss), (believed, discounted) = trace.means(), trace.beliefs()
        evaluation = np.full(count, np.nan)
        if cycle in self.evaluations:
            seed = cycle // self.evaluations.step
            evaluation = agent.evaluate(self.options.episodes, seed=seed).mean(axis=1)
        told = {
            "return": np.asarray(returns, np.float64),
            "loss": np.asarray(loss, np.float64),
            "value_at_start": np.asarray(believed, np.float64),
            "discounted_return": np.asarray(discounted, np.float64),
        }
        here = {"seed": np.asarray(agent.seeds), "step": np.full(count, agent.num_timesteps)}
        self.records.append({**here, **told, "evaluation": evaluation})
        return {**told, **({"evaluation": evaluation} if cycle in self.evaluations else {})}

    def tables(self) -> dict[str, Columns]:
        """Return the reports, and the episodes that are played at the end."""
        played = self.agent.play(self.options.episodes)
        shape = played.returns.shape
        episodes = {
            "seed": np.repeat(self.agent.seeds, shape[1]),
            "episode": np.tile(np.arange(shape[1]), shape[0]),
            "return": played.returns.ravel(),
            "discounted_return": played.discounted_returns.ravel(),
            "start_value": played.start_values.ravel(),
        }
        return {"reports": self.records.columns, "episodes": episodes}

    def write_files(self, folder: Path) -> None:
        """Save the agent."""
        self.agent.save(folder / AGENT)

    def arrays(self) -> Columns:
        """Return the reports so far."""
        return self.records.arrays("records")

    def restore(self, arrays: Arrays) -> None:
        """Go on with what was saved."""
        self.records.restore(arrays, "records")
