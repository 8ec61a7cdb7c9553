"""The figures of a sweep; needs Matplotlib, the extra ``plot``."""

from __future__ import annotations

from valuetrack.report.control.figures import CROWD, iqm_figure, task_figure
from valuetrack.report.style import Figures
from valuetrack.report.sweep.data import FINAL, SweepRun


def figures(run: SweepRun) -> Figures:
    """Draw the learning curves of each environment, the best with bands, and all final returns."""
    for task in run.tasks:
        best = task._replace(rows=task.rows[:CROWD])
        few = len(task.rows) <= CROWD
        title = f"Returns on {task.env}" if few else f"Returns on {task.env}, best {CROWD} settings"
        yield f"returns-{task.key}", title, task_figure(best.for_figures)
        if not few:
            title = f"Returns on {task.env}, all settings"
            yield f"all-{task.key}", title, task_figure(task.for_figures)
    tasks = [task.for_figures for task in run.tasks]
    yield "iqm", "Interquartile means of the final return", iqm_figure(tasks, FINAL)
