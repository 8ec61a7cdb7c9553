"""The page of a run of the control tasks: what only its report knows about the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from valuetrack.report.control_data import TASKS, ControlRun
from valuetrack.report.html import Picture, all_facts, document, repeat
from valuetrack.report.render import Table


def control_page(
    run: ControlRun,
    claims: Table,
    tables: Sequence[Table],
    pictures: Sequence[Picture],
    hint: str = "",
) -> str:
    """Return the report as HTML; see `valuetrack.report.html.page`."""
    about = control_facts(run)
    return document(run.manifest, _lead(run), claims, tables, pictures, hint, about)


def control_facts(run: ControlRun) -> list[tuple[str, str]]:
    """Return what one needs to know to judge a run or to repeat it."""
    seeds = ", ".join(f"{row.id}: {len(row.seeds)}" for row in run.rows)
    device = sum(sum(row.wall_seconds.values()) for row in run.rows)
    return all_facts(run.manifest, _steps(run), seeds, device, control_command(run.manifest))


def control_command(manifest: Mapping[str, Any]) -> str:
    """Return the command that repeats a run.

    ``--steps`` sets the steps of all rows at once, so one row that has others than the
    experiment's tells that it was given.
    """
    rows = manifest.get("spec", {}).get("rows", manifest["rows"])
    others = [
        row["steps"]
        for row in manifest["rows"]
        if row["env"] in TASKS and row["steps"] != TASKS[row["env"]].steps
    ]
    return repeat(manifest, others[0] if others else None, [row["id"] for row in rows])


def _lead(run: ControlRun) -> str:
    finished, asked = len(run.rows), len(run.manifest["rows"])
    return f"{finished} of {asked} rows; environment steps a seed: {_steps(run)}."


def _steps(run: ControlRun) -> str:
    """Name the environment steps of each task, once if they are the same."""
    of_task = {row.env: row.steps for row in run.rows}
    if len(set(of_task.values())) == 1:
        return f"{next(iter(of_task.values())):,}"
    return ", ".join(f"{env} {steps:,}" for env, steps in of_task.items())
