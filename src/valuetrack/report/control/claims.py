"""Statements about a run on control tasks that its numbers bear out or do not."""

from __future__ import annotations

from valuetrack.report.control.data import TASKS, ControlRow, ControlRun
from valuetrack.report.statistics import Claim, welch
from valuetrack.report.style import label_of

SHARE = 0.8
"""The share of LKTD's seeds that are to solve CartPole."""

_CARTPOLE = "CartPole-v1"


def algorithm_claims(run: ControlRun) -> list[Claim]:
    """Compare LKTD with its rivals on all the paper's tasks, run or not."""
    envs = dict.fromkeys([*TASKS, *(task.env for task in run.tasks)])
    rivals = (("dqn", ""), ("qrdqn", " (the paper: slightly)"))
    return [
        *(_above(run, env, *rival) for rival in rivals for env in envs),
        _solves(run),
    ]


def settings_claims(run: ControlRun) -> list[Claim]:
    """Compare every row of a task with the first, whose settings the others vary."""
    return [
        _compared(f"{task.env}: {row.label} above {task.rows[0].label}", row, task.rows[0])
        for task in run.tasks
        for row in task.rows[1:]
    ]


def _above(run: ControlRun, env: str, rival: str, remark: str) -> Claim:
    """Claim that LKTD's mean training return is above a rival's."""
    statement = f"{env}: LKTD's mean training return above {label_of(rival)}'s{remark}"
    ours, theirs = run.row(env, "lktd"), run.row(env, rival)
    if ours is None or theirs is None:
        return Claim(statement)
    return _compared(statement, ours, theirs)


def _compared(statement: str, one: ControlRow, other: ControlRow) -> Claim:
    """Compare the mean training returns of two rows."""
    ours, theirs = (row.metrics["training_return"] for row in (one, other))
    if ours["mean"] is None or theirs["mean"] is None:
        return Claim(statement, "cannot be told: a side has no seed that counts", None)
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
        return Claim(statement)
    count, total = len(row.solved), len(row.seeds)
    measured = f"{count} of {total} ({100 * count / total:.0f} %)"
    if row.diverged:
        measured += ", diverged seeds counted as not reaching it"
    return Claim(statement, measured, count / total >= SHARE)
