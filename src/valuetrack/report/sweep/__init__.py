"""The report of a sweep: which settings are best in each environment, and how sure that is."""

from __future__ import annotations

from valuetrack.io.manifest import Manifest
from valuetrack.io.run_folder import RunFolder
from valuetrack.report.page import Report, facts
from valuetrack.report.statistics import claims_table
from valuetrack.report.style import Figures
from valuetrack.report.sweep.data import load, summarise
from valuetrack.report.sweep.tables import claims, notes_on_the_run, tables

__all__ = ["make_report"]


def make_report(folder: RunFolder, manifest: Manifest) -> Report:
    """Make the report of a run, whatever has finished of it."""
    run = load(folder, manifest)
    steps = ", ".join(
        dict.fromkeys(f"{task.env} {row.entry.steps:,}" for task in run.tasks for row in task.rows)
    )

    def draw() -> Figures:
        from valuetrack.report.sweep.figures import figures  # noqa: PLC0415 - an extra

        return figures(run)

    known = facts(manifest, [(row.id, row) for row in run.rows], steps, lambda row: None)
    repeat = f"valuetrack sweep {folder.path.name}/sweep.toml --out RUN"
    return Report(
        manifest=manifest,
        lead=f"{len(run.rows)} of {len(manifest.rows)} rows; environment steps per seed: {steps}.",
        summary=summarise(run),
        claims=claims_table(claims(run), notes_on_the_run(run)),
        tables=tables(run),
        draw=draw,
        facts=[(name, repeat if name == "to repeat" else text) for name, text in known],
        title=f"Sweep {manifest.preset}",
    )
