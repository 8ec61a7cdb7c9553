"""The report of a search: its trials, what matters, and the best settings on fresh seeds."""

from __future__ import annotations

from valuetrack.io.manifest import Manifest
from valuetrack.io.run_folder import RunFolder
from valuetrack.report.page import Report, facts
from valuetrack.report.statistics import claims_table
from valuetrack.report.style import Figures
from valuetrack.report.tuning.data import load, summarise
from valuetrack.report.tuning.tables import claims, notes_on_the_run, tables

__all__ = ["make_report"]


def make_report(folder: RunFolder, manifest: Manifest) -> Report:
    """Make the report of a search, whatever has finished of it."""
    run = load(folder, manifest)
    about = run.search

    def draw() -> Figures:
        from valuetrack.report.tuning.figures import figures  # noqa: PLC0415 - an extra

        return figures(run)

    steps = f"{about.steps:,}"
    rows = [(row.id, row) for row in run.fresh]
    known = [pair for pair in facts(manifest, rows, steps, lambda row: None) if pair[0] != "seeds"]
    seeds = (
        f"{about.first_seed} to {about.first_seed + about.seeds - 1}, search {about.search_seed}"
    )
    known.insert(3, ("seeds of the trials", seeds))
    return Report(
        manifest=manifest,
        lead=f"{len(run.finished)} trials of {about.algorithm} in {about.env}, {about.seeds} seeds "
        f"and {steps} environment steps each; objective: {about.objective}.",
        summary=summarise(run),
        claims=claims_table(claims(run), notes_on_the_run(run)),
        tables=tables(run),
        draw=draw,
        facts=[pair for pair in known if pair[0] != "to repeat"],
        title=f"Search for {about.algorithm} in {about.env}",
    )
