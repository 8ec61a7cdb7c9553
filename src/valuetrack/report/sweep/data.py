"""A sweep read from its folder: what came of each row's seeds, and which rows are best."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from valuetrack.io.manifest import Manifest, SpecRow
from valuetrack.io.run_folder import RunFolder
from valuetrack.metrics import improvement_interval, interquartile_mean, probability_of_improvement
from valuetrack.report.control.data import MEASURED, Task
from valuetrack.report.defaults.data import NUMBERS, OPTIONAL, OutcomeRow, outcome_row
from valuetrack.report.run_data import finished_rows, read_table
from valuetrack.report.statistics import LEVEL, RESAMPLES
from valuetrack.types import Floats

FINAL = "final_return"


@dataclass(frozen=True)
class SweepRow(OutcomeRow):
    """One algorithm with one choice of options in one environment."""

    @property
    def own_values(self) -> dict[str, dict[int, float]]:
        """The final return, among the numbers per seed."""
        return {FINAL: dict(self.outcomes[FINAL])}

    def finals(self, failed: float = -np.inf) -> Floats:
        """Return the final return of all seeds; diverged ones count as ``failed``."""
        found = [self.outcomes[FINAL].get(seed, failed) for seed in self.seeds]
        return np.nan_to_num(np.array(found, np.float64), nan=failed, neginf=failed)


class SweepTask(NamedTuple):
    """One environment with its finished rows, the best first."""

    env: str
    key: str
    rows: tuple[SweepRow, ...]

    @property
    def for_figures(self) -> Task:
        """The same, as the figures of control tasks take it."""
        return Task(self.env, self.key, self.rows)

    @property
    def best_of_each(self) -> list[SweepRow]:
        """The best row of each algorithm, the best algorithm first."""
        first: dict[str, SweepRow] = {}
        for row in self.rows:
            first.setdefault(row.algorithm, row)
        return list(first.values())


class Improvement(NamedTuple):
    """How likely a seed of one row is better than one of another, with its interval."""

    probability: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class SweepRun:
    """A run read from its folder, with the environments that have a finished row."""

    manifest: Manifest
    tasks: tuple[SweepTask, ...]

    @property
    def rows(self) -> list[SweepRow]:
        """All rows with a finished unit, by environment and rank."""
        return [row for task in self.tasks for row in task.rows]


def load(folder: RunFolder, manifest: Manifest, begins: str = "") -> SweepRun:
    """Read what has finished of a run, of rows whose ids begin so.

    Raises
    ------
    StoreError
        If no unit has finished, or a table is damaged.
    """
    points = read_table(folder, "points", "point", *MEASURED)
    found: dict[str, list[SweepRow]] = {}
    for row, seeds in finished_rows(folder, manifest, *NUMBERS, *OPTIONAL):
        if not row.id.startswith(begins):
            continue
        made = SweepRow(**vars(outcome_row(row, seeds, points.get(row.id, {}))))
        found.setdefault(_environment(row.entry), []).append(made)
    keys = _keys(found)
    return SweepRun(
        manifest, tuple(SweepTask(env, keys[env], ranked(rows)) for env, rows in found.items())
    )


def ranked(rows: Iterable[SweepRow]) -> tuple[SweepRow, ...]:
    """Return the rows of an environment, the largest interquartile mean first.

    A diverged seed counts as the worst final return of any row, so that settings that often fail
    are not the best for leaving their failures out.
    """
    rows = list(rows)
    finite = np.concatenate([row.finals()[np.isfinite(row.finals())] for row in rows])
    worst = float(finite.min()) if finite.size else 0.0
    return tuple(sorted(rows, key=lambda row: -float(interquartile_mean(row.finals(worst)))))


def improvement(one: SweepRow, other: SweepRow) -> Improvement:
    """Compare the final returns of two rows; a diverged seed is worse than any other."""
    ours, theirs = one.finals(), other.finals()
    interval = None
    if min(ours.size, theirs.size) > 1:
        interval = improvement_interval(ours, theirs, LEVEL, RESAMPLES)
    return Improvement(probability_of_improvement(ours, theirs), interval)


def train_command(row: SpecRow, steps: int | None = None) -> str:
    """Return the command that trains an agent with a row's settings."""
    words = ["valuetrack", "train", "--algo", row.algorithm, "--env", row.env]
    words += ["--steps", str(steps or row.steps)]
    for option, table in (("--env-set", row.env_options), ("--set", row.options)):
        for key, value in table.items():
            text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
            words += [option, f"{key}={text}"]
    return shlex.join(words)


def summarise(run: SweepRun) -> dict[str, object]:
    """Return the content of ``summary.json``: the best rows, and each row's seeds and numbers."""
    best = {task.env: [row.id for row in task.best_of_each] for task in run.tasks}
    rows = {
        row.id: {
            **row.counts,
            "env": row.env,
            "label": row.label,
            "options": row.entry.options,
            "outcome": row.numbers,
        }
        for row in run.rows
    }
    return {"best": best, "rows": rows}


def _environment(entry: SpecRow) -> str:
    """Return an environment's name for readers, with its options."""
    options = ", ".join(f"{key} = {value}" for key, value in entry.env_options.items())
    return f"{entry.env} ({options})" if options else entry.env


def _keys(envs: Iterable[str]) -> dict[str, str]:
    """Return short names, each once, that are safe in paths and attributes."""
    keys: dict[str, str] = {}
    for env in envs:
        key = re.sub(r"[^a-z0-9]+", "-", env.lower()).strip("-") or "environment"
        keys[env] = key if key not in keys.values() else f"{key}-{len(keys) + 1}"
    return keys
