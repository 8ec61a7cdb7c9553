"""How far learned values are from the exact ones: the paper's experiment on the grid."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from valuetrack import metrics, posterior
from valuetrack.api.agent import AnyAgent
from valuetrack.api.options import Count
from valuetrack.envs.indoor_escape import ACTION_NAMES, IndoorEscape, observations, optimal_q
from valuetrack.experiments import maps
from valuetrack.experiments.measure.base import Measure, Records, cycles_of, steps_per_cycle
from valuetrack.experiments.spec import Row, Section, SpecError
from valuetrack.io.arrays import Arrays
from valuetrack.io.run_folder import Columns
from valuetrack.posterior import Pool
from valuetrack.types import Json, NDArray


class ValuesOptions(Section):
    """What is measured, and how often.

    Attributes
    ----------
    pool_size, level, calibration_levels
        How many of the last samples of the values are compared with the truth, and the levels of
        the intervals.
    windows, windows_between_evaluations
        A training is cut into this many windows, and measured at the end of some of them.
    final_windows, evaluations_per_final_window
        The last windows, which the tables use, are measured several times each.
    ties
        How the exact values break ties between equally good actions.
    """

    kind: Literal["values"] = "values"
    pool_size: Count = 3_000
    level: float = Field(0.95, gt=0, lt=1)
    windows: Count = 100
    windows_between_evaluations: Count = 5
    final_windows: Count = 5
    evaluations_per_final_window: Count = 10
    calibration_levels: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
    ties: Literal["uniform", "reference"] = "reference"


def cycles_per_window(options: ValuesOptions, row: Row) -> int:
    """Return how many cycles a window has.

    Raises
    ------
    SpecError
        If a row's steps do not divide into windows and evaluations.
    """
    cycles, pieces = cycles_of(row), options.evaluations_per_final_window
    window, rest = divmod(cycles, options.windows)
    if rest or window % pieces:
        unit = options.windows * pieces * steps_per_cycle(row)
        raise SpecError(
            f"The number of steps must be a multiple of {unit:,}, so that it divides into "
            f"{options.windows} windows of {pieces} evaluations; {row.steps:,} is not."
        )
    return window


def plan_points(options: ValuesOptions, row: Row) -> list[int]:
    """Return the ends of all windows, and points within the last ones, in cycles."""
    window, points = cycles_per_window(options, row), []
    for index in range(options.windows):
        pieces = options.evaluations_per_final_window if is_final(options, index) else 1
        step = window // pieces
        points += [index * window + step * (piece + 1) for piece in range(pieces)]
    return points


def is_final(options: ValuesOptions, window: int) -> bool:
    """Return whether a window, counted from 0, is one of the last."""
    return window >= options.windows - options.final_windows


class ValuesMeasure(Measure):
    """Compares a sliding pool of the values at all states with the exact ones."""

    def __init__(self, options: ValuesOptions, row: Row, agent: AnyAgent) -> None:
        self.options, self.row, self.agent = options, row, agent
        env = agent.env.in_jax
        if not isinstance(env, IndoorEscape):
            raise ValueError("Exact values are known for valuetrack/IndoorEscape-v0 only.")
        q = optimal_q(
            env,
            epsilon=agent.options.exploration_final,
            discount=agent.options.discount,
            ties=options.ties,
        )
        self.truth, self.legal = np.where(q.legal, q.values, 0.0), q.legal
        self.grid = maps.describe_grid(env, q, agent.seeds)
        self.tracked = observations(env)
        self.window = cycles_per_window(options, row)
        self.points = plan_points(options, row)
        self.records = Records()
        heads = agent.learner.heads
        if options.pool_size % heads:
            raise ValueError(
                f"A pool of {options.pool_size} samples does not divide into updates of {heads} "
                "heads each; choose a multiple."
            )
        # By update, so that the newest ones are easily found; heads count as samples later.
        shape = (options.pool_size // heads, len(agent.seeds), heads, *self.truth.shape)
        self.ring = np.zeros(shape, np.float32)

    def collect(self, values: NDArray) -> None:
        """Keep the values of the last updates."""
        recent, last = values[-len(self.ring) :], self.agent.trainer.clock.updates
        if len(recent):
            self.ring[np.arange(last - len(recent), last) % len(self.ring)] = recent

    def look(self, index: int) -> Json:
        """Compare every seed's pool with the truth, if that is due and the pool is full."""
        trainer = self.agent.trainer
        returns, loss = trainer.take_trace().means()
        window = (self.points[index] - 1) // self.window
        final = is_final(self.options, window)
        due = final or (window + 1) % self.options.windows_between_evaluations == 0
        record = {"return": returns, "loss": loss}
        if due and trainer.clock.updates >= len(self.ring):
            level, recent = self.options.level, self._recent()
            measured = [
                metrics.value_metrics(pool, self.truth, self.legal, level, recent=recent)
                for pool in self._pools()
            ]
            found = metrics.ValueMetrics(*map(np.stack, zip(*measured, strict=True)))
            step, actions = np.array([self.agent.num_timesteps]), self.truth.shape[1]
            rows = self._long(found._asdict(), "step", step)
            rows["final"] = np.full(len(rows["seed"]), final)
            rows["training_return"] = np.repeat(np.asarray(returns, np.float64), actions)
            self.records.append(rows)
            record |= {name: values.mean(axis=1) for name, values in found._asdict().items()}
        return record

    def map(self, index: int) -> Json | None:
        """Return a map from some samples of the pool, spread evenly, if one is due."""
        point, end = self.points[index], self.points[-1]
        updates = self.agent.trainer.clock.updates
        before = self.points[index - 1] if index else 0
        if not updates or not maps.is_due(before, point, end):
            return None
        filled = min(updates, len(self.ring))
        heads = self.ring.shape[2]
        wanted = max(1, min(filled, maps.SAMPLES // heads))
        behind = np.linspace(filled, 1, wanted).round().astype(int)
        some = self.ring[(updates - behind) % len(self.ring), : maps.MOST_SEEDS]
        by_sample = np.moveaxis(some, 2, 1)  # heads count as samples
        return maps.frame_of(by_sample.reshape(-1, *by_sample.shape[2:]), self.legal)

    def _recent(self) -> int:
        """Return how many samples there were since the evaluation before.

        One evaluation's quantiles stand for all updates since the one before it.
        """
        updates = self.window // self.options.evaluations_per_final_window
        updates *= self.agent.trainer.settings.updates_per_cycle
        return min(updates * self.agent.learner.heads, self.options.pool_size)

    def _pools(self) -> list[Pool]:
        """Return each seed's pool, from the oldest sample to the latest."""
        newest = self.agent.trainer.clock.updates % len(self.ring)
        in_order = np.roll(self.ring, -newest, axis=0)
        return [posterior.from_updates(in_order[:, seed]) for seed in range(in_order.shape[1])]

    def tables(self) -> dict[str, Columns]:
        """Return the metrics by window, the calibration curves and the policies."""
        levels, pools, recent = self.options.calibration_levels, self._pools(), self._recent()
        curves = [
            metrics.calibration(pool, self.truth, self.legal, levels, recent=recent)
            for pool in pools
        ]
        coverage, credible = map(np.stack, zip(*curves, strict=True))
        calibration = {"coverage": coverage, "credible_coverage": credible}
        policy = np.stack([posterior.policy_probabilities(pool, self.legal) for pool in pools])
        tables = {
            "metrics": self._by_window(),
            "calibration": self._long(calibration, "level", np.asarray(levels)),
            "policy": self._long({"probability": policy}, "cell", np.arange(policy.shape[1])),
        }
        for table in tables.values():
            if table:
                table["action"] = np.asarray(ACTION_NAMES)[table["action"]]
        return tables

    def _by_window(self) -> Columns:
        """Average the measurements that fall into one window of training."""
        columns = self.records.columns
        if not columns:
            return {}
        length = self.row.steps // self.options.windows
        window = -(-columns["step"] // length)
        rows = len(self.agent.seeds) * self.truth.shape[1]
        averaged = Records()
        for index in np.unique(window):
            chosen = {name: column[window == index] for name, column in columns.items()}
            count = len(chosen["step"]) // rows
            merged = {
                name: column.reshape(count, rows).mean(axis=0)
                if column.dtype == np.float64
                else column[-rows:]
                for name, column in chosen.items()
            }
            averaged.append({**merged, "evaluations": np.full(rows, count)})
        return averaged.columns

    def _long(self, values: Columns, axis: str, ticks: NDArray) -> Columns:
        """Turn arrays over (seed, tick, action) into a long table."""
        seeds, actions = len(self.agent.seeds), self.truth.shape[1]
        return {
            "seed": np.repeat(np.asarray(self.agent.seeds), len(ticks) * actions),
            axis: np.tile(np.repeat(ticks, actions), seeds),
            "action": np.tile(np.arange(actions), seeds * len(ticks)),
            **{name: np.asarray(array, np.float64).ravel() for name, array in values.items()},
        }

    def arrays(self) -> Columns:
        """Return the pool of values and the measurements so far."""
        return {"ring": self.ring, **self.records.arrays("records")}

    def restore(self, arrays: Arrays) -> None:
        """Go on with what was saved."""
        if arrays["ring"].shape != self.ring.shape:
            raise ValueError("the saved pool of values has another size")
        self.ring = arrays["ring"].copy()
        self.records.restore(arrays, "records")
