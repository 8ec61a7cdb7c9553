"""The report of the indoor escape: a run beside the paper's tables."""

from __future__ import annotations

from collections.abc import Callable

from valuetrack.io.manifest import Manifest
from valuetrack.io.run_folder import RunFolder
from valuetrack.report.indoor_escape import paper
from valuetrack.report.indoor_escape.claims import claims, forms_claims
from valuetrack.report.indoor_escape.data import Run, load, summarise
from valuetrack.report.indoor_escape.tables import notes_on_the_run, tables
from valuetrack.report.page import Report, facts
from valuetrack.report.statistics import Claim, claims_table
from valuetrack.report.style import Figures

NO_TIMES = "Times per update were not measured for this run, so their table is left out."

__all__ = ["NO_TIMES", "forms_claims", "make_report"]


def make_report(
    folder: RunFolder,
    manifest: Manifest,
    claims_of: Callable[[Run], list[Claim]] = claims,
) -> Report:
    """Make the report of a run, whatever has finished of it."""
    run = load(folder, manifest)

    def draw() -> Figures:
        from valuetrack.report.indoor_escape.figures import figures  # noqa: PLC0415 - an extra

        return figures(run)

    return Report(
        manifest=manifest,
        lead=f"{len(run.rows)} of {len(manifest.rows)} rows, "
        f"{run.steps:,} environment steps per seed.",
        summary=summarise(run),
        claims=claims_table(claims_of(run), notes_on_the_run(run)),
        tables=tables(run),
        draw=draw,
        facts=facts(manifest, run.named, f"{run.steps:,}", lambda row: paper.STEPS),
        remarks=[NO_TIMES] if run.timing is None else [],
    )
