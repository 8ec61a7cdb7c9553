"""What the defaults are to show, and whether a run's numbers bear it out."""

from __future__ import annotations

import math

import numpy as np

from valuetrack.report.defaults.data import DEFAULT_NETWORK, NETWORKS, OutcomeRow, OutcomeRun
from valuetrack.report.defaults.tables import mean_se
from valuetrack.report.defaults.units import BASES, comparable
from valuetrack.report.honest_values.tables import short
from valuetrack.report.statistics import Claim, SeedStatistics, welch

GOALS = {"frozenlake": 0.70, "taxi": 7.0}
"""The return that LKTD is to have at least."""
BASELINES = ("dqn", "bootdqn", "qrdqn", "sb3")
NEAR, SHARE = 0.05, 0.9
"""Values at the start lie this near what comes of them, in shares of the range, in this share of
the seeds."""


def default_claims(run: OutcomeRun) -> list[Claim]:
    """Return all that the defaults are to show."""
    names = [task.env for task in run.compared]
    return [
        *(_at_least_dqn(run, name) for name in names),
        _the_best(run, names),
        _none_diverges(run),
        *(_reaches(run, name, goal) for name, goal in GOALS.items()),
        *(claim for name in names for claim in _values(run, name)),
        *(claim for base in BASES for claim in _units(run, base)),
        *(claim for base in BASES for claim in _networks(run, base)),
    ]


def _at_least_dqn(run: OutcomeRun, task: str) -> Claim:
    statement = f"{task}: LKTD's final return at least DQN's, within the noise"
    ours, theirs = run.row(f"{task}-lktd"), run.row(f"{task}-dqn")
    if ours is None or theirs is None:
        return Claim(statement)
    return compared(statement, ours.numbers["final_return"], theirs.numbers["final_return"])


def compared(statement: str, ours: SeedStatistics, theirs: SeedStatistics) -> Claim:
    """Claim that one mean is at least another one, within the noise."""
    if ours["mean"] is None or theirs["mean"] is None:
        return Claim(statement, "cannot be told: a side has no seed that counts")
    difference = ours["mean"] - theirs["mean"]
    sides = f"{short(ours['mean'])} against {short(theirs['mean'])}"
    counts = f"{ours['seeds']} and {theirs['seeds']} seeds"
    if (found := welch(ours, theirs)) is None:
        measured = f"{short(difference)} ({sides}; {counts}); too few seeds for a standard error"
        return Claim(statement, measured, difference >= 0)
    error, low, high = found
    noise = "; within the noise" if low <= 0 <= high else ""
    measured = f"{short(difference)} ± {short(error)} ({sides}; {counts}){noise}"
    return Claim(statement, measured, high >= 0)


def _the_best(run: OutcomeRun, tasks: list[str]) -> Claim:
    statement = "LKTD's mean final return is the largest of all on at least half of the tasks"
    wins, known = [], 0
    for task in tasks:
        means = {row.algorithm: row.numbers["final_return"]["mean"] for row in run.rows_of(task)}
        ours = means.pop("lktd", None)
        rivals = [mean for mean in means.values() if mean is not None]
        if ours is not None and rivals:
            known += 1
            wins += [task] if ours >= max(rivals) else []
    if not known:
        return Claim(statement)
    measured = f"{len(wins)} of {known} tasks" + (f": {', '.join(wins)}" if wins else "")
    return Claim(statement, measured, 2 * len(wins) >= known)


def _none_diverges(run: OutcomeRun) -> Claim:
    found = [
        f"{row.id} {len(row.diverged)} of {len(row.seeds)}" for row in run.rows if row.diverged
    ]
    seeds = sum(len(row.seeds) for row in run.rows)
    measured = "; ".join(found) if found else f"0 of {seeds:,} seeds"
    return Claim("No seed diverges", measured, not found)


def _reaches(run: OutcomeRun, task: str, goal: float) -> Claim:
    statement = f"{task}: LKTD's final return at least {goal:g}"
    row = run.row(f"{task}-lktd")
    if row is None or (mean := row.numbers["final_return"]["mean"]) is None:
        return Claim(statement)
    return Claim(statement, mean_se(row.numbers["final_return"]), mean >= goal)


def _values(run: OutcomeRun, task: str) -> list[Claim]:
    """Claim that values are right: exactly known ones, or those at the start of episodes."""
    row = run.row(f"{task}-lktd")
    if row is None:
        return []
    return [_near_start(run, row)] if _mean(row, "value_rmse") is None else [_error(run, row)]


def _error(run: OutcomeRun, row: OutcomeRow) -> Claim:
    statement = f"{row.task}: the error of LKTD's values at most that of the best baseline"
    rivals = {
        other.label: mean
        for other in run.rows_of(row.task)
        if other.algorithm in BASELINES and (mean := _mean(other, "value_rmse")) is not None
    }
    ours = _mean(row, "value_rmse")
    if ours is None or not rivals:
        return Claim(statement)
    best = min(rivals, key=lambda label: rivals[label])
    return Claim(
        statement, f"{short(ours)} against {short(rivals[best])} ({best})", ours <= rivals[best]
    )


def _near_start(run: OutcomeRun, row: OutcomeRow) -> Claim:
    statement = (
        f"{row.task}: LKTD's values at the start within {100 * NEAR:g} % of the range of what "
        f"comes of them, in {100 * SHARE:g} % of the seeds"
    )
    errors = np.array(list(row.outcomes["value_error"].values()))
    reach = value_range(run.rows_of(row.task))
    if not errors.size or not reach > 0:
        return Claim(statement)
    near = int((np.abs(errors) <= NEAR * reach).sum())
    measured = (
        f"{near} of {errors.size} seeds; {mean_se(row.numbers['value_error'])} of {short(reach)}"
    )
    return Claim(statement, measured, near >= SHARE * errors.size)


def value_range(rows: tuple[OutcomeRow, ...]) -> float:
    """Return how far apart the discounted returns of all rows, seeds and points lie."""
    found = [row.curves["discounted_return"].ravel() for row in rows if row.curves]
    known = np.concatenate(found) if found else np.array([])
    known = known[np.isfinite(known)]
    return float(known.max() - known.min()) if known.size else math.nan


def _units(run: OutcomeRun, base: str) -> list[Claim]:
    """Claim that rewards in other units change nothing, where they do not change the task."""
    rows = list(comparable(run, base))
    if not rows or rows[0][0].task != base:
        return []
    usual, claims = rows[0][0], []
    for row, divisor in rows[1:]:
        for name, words in (("final_return", "final return"), ("curve_return", "learning curve")):
            statement = f"{row.task}: LKTD's {words} that of {base}, in its units"
            claims.append(same(statement, row.over(divisor, name), usual.numbers[name]))
    return claims


def same(statement: str, ours: SeedStatistics, theirs: SeedStatistics) -> Claim:
    """Claim that two means agree within the noise."""
    claim = compared(statement, ours, theirs)
    found = welch(ours, theirs)
    holds = None if found is None else found[1] <= 0 <= found[2]
    return Claim(statement, claim.measured, holds)


def _networks(run: OutcomeRun, base: str) -> list[Claim]:
    usual = run.row(f"{base}-lktd")
    others = [
        row for row in run.rows if row.task == f"{base}-{NETWORKS}" and row.algorithm == "lktd"
    ]
    if usual is None:
        return []
    theirs = usual.numbers["final_return"]
    return [
        compared(
            f"{base}: {row.label} at least {DEFAULT_NETWORK}, within the noise",
            row.numbers["final_return"],
            theirs,
        )
        for row in others
    ]


def _mean(row: OutcomeRow, name: str) -> float | None:
    return row.numbers[name]["mean"]
