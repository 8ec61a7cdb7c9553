"""``summary.json`` of the control tasks: what each row came to, with seeds as the unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

import numpy as np

from valuetrack.metrics import bootstrap_interval, interquartile_mean
from valuetrack.report.control_data import ControlRow, ControlRun, Floats

LAST = 10
"""How many points at the end count as the final ones: a tenth of the experiment's hundred."""

LEVEL, RESAMPLES, SEED = 0.95, 2000, 0


class Statistics(TypedDict):
    """Figures over the seeds of a row; ``None`` where too few seeds are there to tell.

    Attributes
    ----------
    mean, sd, se
        Over seeds.
    iqm, iqm_interval
        The interquartile mean over seeds with its 95 % percentile bootstrap interval.
    seeds, missing
        How many seeds these are, and which seeds did not diverge but have no value.
    """

    mean: float | None
    sd: float | None
    se: float | None
    iqm: float | None
    iqm_interval: tuple[float, float] | None
    seeds: int
    missing: list[int]


class RowSummary(TypedDict):
    """One row: how many seeds, which diverged, which solved the task, and metric -> figures."""

    seeds_run: int
    seeds_diverged: list[int]
    seeds_solved: list[int] | None
    metrics: dict[str, Statistics]


Summary = dict[str, RowSummary]


def summarise_control(run: ControlRun) -> Summary:
    """Summarise a run that has been read; nothing is written."""
    return {
        row.id: RowSummary(
            seeds_run=len(row.seeds),
            seeds_diverged=sorted(row.diverged),
            seeds_solved=None if row.solved is None else list(row.solved),
            metrics={name: statistics(values) for name, values in seed_values(row).items()},
        )
        for row in run.rows
    }


def seed_values(row: ControlRow) -> dict[str, dict[int, float]]:
    """Return one number a seed for each metric, NaN where a seed has none.

    ``training_return`` is the mean over all episodes of the training, ``final_training_return``
    over those of its last tenth, ``final_evaluation_return`` the mean over the last 10 points,
    and ``best_return`` that of the best model. Over the same points, ``final_start_value`` is the
    mean Q-value with which greedy episodes begin, ``final_discounted_return`` what they then
    bring, and ``final_value_error`` the first less the second.
    """
    absent = dict.fromkeys(row.used, np.nan)
    training, final, evaluation, expected, discounted = (dict(absent) for _ in range(5))
    if (curves := row.curves) is not None:
        tenth = max(1, curves.steps.size // 10)
        for line, seed in enumerate(curves.seeds):
            returns, episodes = curves.training[line], curves.episodes[line]
            training[seed] = _per_episode(returns, episodes)
            final[seed] = _per_episode(returns[-tenth:], episodes[-tenth:])
            evaluation[seed] = float(curves.evaluation[line, -LAST:].mean())
            expected[seed] = float(curves.expected[line, -LAST:].mean())
            discounted[seed] = float(curves.discounted[line, -LAST:].mean())
    return {
        "training_return": training,
        "final_training_return": final,
        "final_evaluation_return": evaluation,
        "best_return": absent | dict(row.best),
        "final_start_value": expected,
        "final_discounted_return": discounted,
        "final_value_error": {seed: expected[seed] - discounted[seed] for seed in absent},
    }


def statistics(values: Mapping[int, float]) -> Statistics:
    """Return the figures of one number a seed; those that are not finite are left out by name."""
    finite = {seed: value for seed, value in sorted(values.items()) if np.isfinite(value)}
    sample = np.array(list(finite.values()), dtype=np.float64)
    several = sample.size > 1
    sd = float(sample.std(ddof=1)) if several else None
    return Statistics(
        mean=float(sample.mean()) if sample.size else None,
        sd=sd,
        se=None if sd is None else float(sd / np.sqrt(sample.size)),
        iqm=float(interquartile_mean(sample)) if sample.size else None,
        iqm_interval=_interval(sample) if several else None,
        seeds=int(sample.size),
        missing=sorted(values.keys() - finite.keys()),
    )


def _interval(sample: Floats) -> tuple[float, float]:
    return bootstrap_interval(sample, interquartile_mean, LEVEL, RESAMPLES, SEED)


def _per_episode(returns: Floats, episodes: Floats) -> float:
    """Average over episodes from the averages of points, some of which saw no episode end."""
    ended = episodes > 0
    if not ended.any():
        return float("nan")
    return float(np.average(returns[ended], weights=episodes[ended]))
