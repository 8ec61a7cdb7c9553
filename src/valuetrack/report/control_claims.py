"""Statements about a run of the control tasks that its numbers bear out or do not."""

from __future__ import annotations

import math

from scipy import stats

from valuetrack.report.claims import ABSENT, Claim
from valuetrack.report.control_data import TASKS, ControlRow, ControlRun
from valuetrack.report.control_summary import LEVEL, Statistics, Summary

SHARE = 0.8
"""The share of LKTD's seeds that are to solve CartPole."""

_CARTPOLE = "CartPole-v1"


def control_claims(run: ControlRun, summary: Summary) -> list[Claim]:
    """Return the claims, each with its measured facts; of all the paper's tasks, run or not."""
    envs = dict.fromkeys([*TASKS, *(task.env for task in run.tasks)])
    above = (("dqn", "DQN", ""), ("qrdqn", "QR-DQN", " (the paper: slightly)"))
    return [
        *(_above(run, summary, env, *rival) for rival in above for env in envs),
        _solves(run),
    ]


def settings_claims(run: ControlRun, summary: Summary) -> list[Claim]:
    """Return, for each task, how every row does beside the first: the settings it varies."""
    return [
        _compared(f"{task.env}: {row.label} above {task.rows[0].label}", summary, row, task.rows[0])
        for task in run.tasks
        for row in task.rows[1:]
    ]


def welch(ours: Statistics, theirs: Statistics) -> tuple[float, float, float] | None:
    """Return the standard error of a difference of means and the ends of its 95 % interval.

    Welch's: the two sides may vary differently. ``None`` where a side has fewer than two seeds.
    """
    means, errors = (ours["mean"], theirs["mean"]), (ours["se"], theirs["se"])
    if None in means or None in errors:
        return None
    difference = (ours["mean"] or 0.0) - (theirs["mean"] or 0.0)
    squares = [(side["se"] or 0.0) ** 2 for side in (ours, theirs)]
    error = math.sqrt(sum(squares))
    if error == 0.0:
        return 0.0, difference, difference
    sides = zip(squares, (ours, theirs), strict=True)
    freedom = error**4 / sum(square**2 / (side["seeds"] - 1) for square, side in sides)
    reach = float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * error
    return error, difference - reach, difference + reach


def _above(
    run: ControlRun, summary: Summary, env: str, algorithm: str, label: str, remark: str
) -> Claim:
    """Claim that LKTD's mean training return is above a rival's."""
    statement = f"{env}: LKTD's mean training return above {label}'s{remark}"
    rows = run.row(env, "lktd"), run.row(env, algorithm)
    if rows[0] is None or rows[1] is None:
        return Claim(statement, ABSENT, None)
    return _compared(statement, summary, rows[0], rows[1])


def _compared(statement: str, summary: Summary, one: ControlRow, other: ControlRow) -> Claim:
    """Hold the mean training return of one row against another's."""
    ours, theirs = _training(summary, one), _training(summary, other)
    if ours["mean"] is None or theirs["mean"] is None:
        return Claim(statement, "not to be told: a side has no seed that counts", None)
    difference = ours["mean"] - theirs["mean"]
    sides = f"{ours['mean']:.1f} against {theirs['mean']:.1f}"
    counts = f"{ours['seeds']} and {theirs['seeds']} seeds"
    if (compared := welch(ours, theirs)) is None:
        measured = f"{difference:+z.1f} ({sides}; {counts}); too few seeds for a standard error"
        return Claim(statement, measured, difference > 0)
    error, low, high = compared
    measured = f"{difference:+z.1f} ± {error:.1f} ({sides}; {counts})"
    if low <= 0 <= high:
        return Claim(statement, f"{measured}; within the noise", None)
    return Claim(statement, measured, difference > 0)


def _solves(run: ControlRun) -> Claim:
    """Claim that most of LKTD's seeds solve CartPole."""
    threshold = TASKS[_CARTPOLE].solved
    statement = (
        f"{_CARTPOLE}: at least 8 of 10 LKTD seeds reach {threshold:g} with their best model"
    )
    row = run.row(_CARTPOLE, "lktd")
    if row is None or row.solved is None:
        return Claim(statement, ABSENT, None)
    count, total = len(row.solved), len(row.seeds)
    measured = f"{count} of {total} ({100 * count / total:.0f} %)"
    if row.diverged:
        measured += ", diverged seeds counted as not reaching it"
    return Claim(statement, measured, count / total >= SHARE)


def _training(summary: Summary, row: ControlRow) -> Statistics:
    return summary[row.id]["metrics"]["training_return"]
