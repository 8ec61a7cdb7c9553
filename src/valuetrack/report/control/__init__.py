"""The report of runs on control tasks: algorithms, or settings of one, side by side."""

from __future__ import annotations

from collections.abc import Callable

from valuetrack.io.manifest import Manifest
from valuetrack.io.run_folder import RunFolder
from valuetrack.report.control.claims import algorithm_claims, settings_claims
from valuetrack.report.control.data import ControlRun, load, summarise
from valuetrack.report.control.tables import notes_on_the_run, tables, usual_steps
from valuetrack.report.page import Report, facts
from valuetrack.report.statistics import Claim, claims_table
from valuetrack.report.style import Figures

__all__ = ["algorithm_claims", "make_report", "settings_claims"]


def make_report(
    folder: RunFolder,
    manifest: Manifest,
    claims_of: Callable[[ControlRun], list[Claim]],
) -> Report:
    """Make the report of a run, whatever has finished of it."""
    run = load(folder, manifest)
    steps = _steps(run)

    def draw() -> Figures:
        from valuetrack.report.control.figures import figures  # noqa: PLC0415 - an extra

        return figures(run)

    return Report(
        manifest=manifest,
        lead=f"{len(run.rows)} of {len(manifest.rows)} rows; environment steps per seed: {steps}.",
        summary=summarise(run),
        claims=claims_table(claims_of(run), notes_on_the_run(run)),
        tables=tables(run),
        draw=draw,
        facts=facts(manifest, [(row.id, row) for row in run.rows], steps, usual_steps),
    )


def _steps(run: ControlRun) -> str:
    """Name the environment steps of each task, once if they are the same."""
    of_task = {row.env: row.entry.steps for row in run.rows}
    if len(set(of_task.values())) == 1:
        return f"{next(iter(of_task.values())):,}"
    return ", ".join(f"{env} {steps:,}" for env, steps in of_task.items())
