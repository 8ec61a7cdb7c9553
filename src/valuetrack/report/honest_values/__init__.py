"""The report of runs that compare intervals with the truth."""

from __future__ import annotations

from valuetrack.io.manifest import Manifest, SpecRow
from valuetrack.io.run_folder import RunFolder
from valuetrack.report.honest_values.claims import value_claims
from valuetrack.report.honest_values.data import ScoredRun, load, summarise
from valuetrack.report.honest_values.tables import notes_on_the_run, tables
from valuetrack.report.page import Report, facts
from valuetrack.report.statistics import claims_table
from valuetrack.report.style import Figures

__all__ = ["make_report"]


def make_report(folder: RunFolder, manifest: Manifest) -> Report:
    """Make the report of a run, whatever has finished of it."""
    run = load(folder, manifest)
    steps = _steps(run)

    def draw() -> Figures:
        from valuetrack.report.honest_values.figures import figures  # noqa: PLC0415 - an extra

        return figures(run)

    return Report(
        manifest=manifest,
        lead=f"{len(run.rows)} of {len(manifest.rows)} rows; environment steps per seed: {steps}.",
        summary=summarise(run),
        claims=claims_table(value_claims(run), notes_on_the_run(run)),
        tables=tables(run),
        draw=draw,
        facts=facts(manifest, [(row.id, row) for row in run.rows], steps, _usual_steps),
    )


def _usual_steps(row: SpecRow) -> int | None:
    """Return the steps of a row in the experiment's file, which differ by its task."""
    return USUAL_STEPS.get(row.id.removesuffix(f"-{row.algorithm}"))


USUAL_STEPS = {
    **dict.fromkeys(("grid", "grid-walls", "grid-rewards", "grid-far"), 1_000_000),
    **dict.fromkeys(("frozenlake", "cliffwalking", "cartpole", "acrobot"), 100_000),
    **dict.fromkeys(("taxi", "lunarlander"), 200_000),
}
"""The environment steps of each task in ``experiments/honest_values.toml``."""


def _steps(run: ScoredRun) -> str:
    """Name the environment steps of each task, once if they are the same."""
    of_task = {task.name: task.rows[0].entry.steps for task in run.tasks}
    if len(set(of_task.values())) == 1:
        return f"{next(iter(of_task.values())):,}"
    return ", ".join(f"{name} {steps:,}" for name, steps in of_task.items())
