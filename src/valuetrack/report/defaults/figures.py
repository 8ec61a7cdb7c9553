"""The learning curves of the defaults; needs Matplotlib, the extra ``plot``."""

from __future__ import annotations

from dataclasses import replace

from valuetrack.report.control.data import Task
from valuetrack.report.control.figures import task_figure
from valuetrack.report.defaults.data import OutcomeRow, OutcomeRun, is_in_units
from valuetrack.report.defaults.units import BASES, comparable
from valuetrack.report.style import Figures

_RETURNS = ("training_return", "evaluation_return", "best_return")


def figures(run: OutcomeRun) -> Figures:
    """Draw every task's curves; those with rewards in other units beside the usual ones."""
    for task in run.tasks:
        if not any(map(is_in_units, run.rows_of(task.env))):
            yield f"returns-{task.key}", f"Returns on {task.env}", task_figure(task)
    for base in BASES:
        rows = [_in_units(row, divisor) for row, divisor in comparable(run, base)]
        if len(rows) > 1:
            title = f"Returns of LKTD on {base}, rewards in other units"
            yield f"units-{base}", title, task_figure(Task(base, f"units-{base}", tuple(rows)))


def _in_units(row: OutcomeRow, divisor: float) -> OutcomeRow:
    """Return a row whose returns are in the usual units, named by its task."""
    curves = {
        name: grid / divisor if name in _RETURNS else grid for name, grid in row.curves.items()
    }
    return replace(row, curves=curves, entry=row.entry.model_copy(update={"label": row.task}))
