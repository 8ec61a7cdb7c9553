"""A measure to copy: how wide credible intervals are while an agent learns.

1. Copy this to ``src/valuetrack/experiments/measure/<kind>.py``.
2. Add its kind to ``KINDS`` in ``experiments/measure/__init__.py``. Experiments then name it in
   their ``[measure]`` table.
3. Write the module that turns its tables into a report, and name it in ``report/__init__.py``.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from valuetrack import posterior
from valuetrack.api.agent import AnyAgent
from valuetrack.experiments.measure.base import Measure, Records, cycles_of
from valuetrack.experiments.spec import Count, Row, Section
from valuetrack.io.arrays import Arrays
from valuetrack.io.run_folder import Columns
from valuetrack.types import Json, NDArray

RECENT = 50
"""How many of the latest updates an interval is made of."""


class WidthsOptions(Section):
    """How often intervals are measured, and at which level."""

    kind: Literal["widths"] = "widths"
    points: Count = 10
    level: float = Field(0.95, gt=0, lt=1)


def plan_points(options: WidthsOptions, row: Row) -> list[int]:
    """Return after how many cycles it looks, the last at the end."""
    cycles = cycles_of(row)
    return sorted({-(-cycles * i // options.points) for i in range(1, options.points + 1)})


class WidthsMeasure(Measure):
    """Records the mean width of the intervals at one observation.

    Parameters
    ----------
    options, row, agent
        What is measured, of whom.
    """

    def __init__(self, options: WidthsOptions, row: Row, agent: AnyAgent) -> None:
        self.options, self.agent = options, agent
        self.tracked = np.zeros((1, *agent.task.shape), np.float32)
        self.points = plan_points(options, row)
        self.values = np.zeros((0, len(agent.seeds), agent.learner.heads, 1, agent.task.actions))
        self.records = Records()

    def collect(self, values: NDArray) -> None:
        """Keep the values of the latest updates, (updates, seeds, heads, states, actions)."""
        if len(values):
            self.values = np.concatenate([self.values, values])[-RECENT:]

    def look(self, index: int) -> Json:
        """Measure at a point; what is returned goes to ``progress.jsonl``."""
        returns, loss = self.agent.trainer.take_trace().means()
        seeds = np.asarray(self.agent.seeds)
        widths = np.full(len(seeds), np.nan)
        if len(self.values):
            pools = [posterior.from_updates(self.values[:, member]) for member in range(len(seeds))]
            ends = [posterior.credible_interval(pool, self.options.level) for pool in pools]
            widths = np.array([float(np.mean(high - low)) for low, high in ends])
        step = np.full(len(seeds), self.agent.num_timesteps)
        self.records.append({"seed": seeds, "step": step, "width": widths})
        return {"return": returns, "loss": loss, "width": widths}

    def tables(self) -> dict[str, Columns]:
        """Return the table ``widths``, one row per seed and point."""
        return {"widths": self.records.columns}

    def arrays(self) -> Columns:
        """Return everything it remembers, for the checkpoint."""
        return {"values": self.values, **self.records.arrays("records")}

    def restore(self, arrays: Arrays) -> None:
        """Go on with what was saved."""
        self.values = arrays["values"].copy()
        self.records.restore(arrays, "records")
