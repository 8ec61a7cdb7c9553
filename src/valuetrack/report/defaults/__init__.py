"""The report of the defaults: what users get who give no option."""

from __future__ import annotations

from valuetrack.io.manifest import Manifest, SpecRow
from valuetrack.io.run_folder import RunFolder
from valuetrack.report.defaults.claims import default_claims
from valuetrack.report.defaults.data import OutcomeRun, load, summarise
from valuetrack.report.defaults.tables import notes_on_the_run, tables
from valuetrack.report.page import Report, facts
from valuetrack.report.statistics import claims_table
from valuetrack.report.style import Figures

__all__ = ["make_report"]

USUAL_STEPS = {
    "mountaincar": 200_000,
    "acrobot": 100_000,
    "lunarlander": 200_000,
    "breakout": 500_000,
    "freeway": 500_000,
}
"""The environment steps of tasks in ``experiments/defaults.toml``; 50,000 of all others."""


def make_report(folder: RunFolder, manifest: Manifest) -> Report:
    """Make the report of a run, whatever has finished of it."""
    run = load(folder, manifest)
    ours = [row for row in run.rows if row.algorithm != "sb3"]
    steps = _steps(run)

    def draw() -> Figures:
        from valuetrack.report.defaults.figures import figures  # noqa: PLC0415 - an extra

        return figures(run)

    return Report(
        manifest=manifest,
        lead=f"{len(ours)} of {len(manifest.rows)} rows; environment steps per seed: {steps}.",
        summary=summarise(run),
        claims=claims_table(default_claims(run), notes_on_the_run(run)),
        tables=tables(run),
        draw=draw,
        facts=facts(manifest, [(row.id, row) for row in run.rows], steps, _usual_steps),
    )


def _usual_steps(row: SpecRow) -> int | None:
    """Return the steps of a row in the experiment's file, which differ by its task."""
    return USUAL_STEPS.get(row.id.rpartition(f"-{row.algorithm}")[0], 50_000)


def _steps(run: OutcomeRun) -> str:
    """Name the environment steps of each task, once if they are the same."""
    of_task = {task.env: task.rows[0].entry.steps for task in run.tasks}
    if len(set(of_task.values())) == 1:
        return f"{next(iter(of_task.values())):,}"
    return ", ".join(f"{name} {steps:,}" for name, steps in of_task.items())
