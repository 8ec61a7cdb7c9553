"""The report of runs that explore: who finds what is far away, how soon, and up to which size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from valuetrack.io.manifest import Manifest
from valuetrack.io.run_folder import RunFolder
from valuetrack.report.page import Report, facts
from valuetrack.report.run_data import Row, diverged_notes, finished_rows, unfinished_notes
from valuetrack.report.statistics import Claim, claims_table
from valuetrack.report.style import INK, Drawn, Figures, colour_of
from valuetrack.report.table import NONE, Best, Cells, Column, Table, make_table

NUMBERS = ("solved_at", "training_episodes", "training_return", "final_return")
"""Columns that the tables of seeds have."""
ENOUGH = 0.9
"""The share of seeds that must solve a size."""
DEEP_SEA, N_CHAIN = "deep-sea", "n-chain"
GOALS = (30, 40)
"""The sizes of the deep sea that LKTD is to solve."""
CHAIN_GOAL = 9.5
"""What LKTD's best behaviour is to be paid on every chain, of 10."""

_SOLVED = (
    "Seeds that have solved the task, of those that were run, and the median number of episodes "
    "that they took. Solved is bsuite's: the mean regret of all training episodes so far is below "
    "0.9 of the best return, within 10,000 episodes. In bold the largest size that at least nine "
    "of ten seeds solve."
)
_RETURNS = (
    "Return of greedy episodes at the end of the training, and the mean return of all training "
    "episodes; mean over seeds ± standard error. The best possible return is 10."
)


@dataclass(frozen=True)
class ExploringRow(Row):
    """One way to explore in one environment; ``found`` has each number of each seed."""

    found: Mapping[str, Mapping[int, float]] = field(compare=False)

    @property
    def size(self) -> int:
        """How large the environment is."""
        return int(self.entry.env_options["size"])

    @cached_property
    def episodes(self) -> list[float]:
        """After how many episodes the seeds had solved the task, of those that have."""
        return [n for n in self.found["solved_at"].values() if np.isfinite(n)]

    @property
    def is_solved(self) -> bool:
        """Whether enough seeds have solved the task; diverged ones have not."""
        return len(self.episodes) >= ENOUGH * len(self.seeds)

    @property
    def seconds(self) -> float:
        """How long a seed took, in the mean."""
        return float(np.mean(list(self.wall_seconds.values())))

    def mean_se(self, name: str) -> tuple[float, float]:
        """Return the mean of a number over the seeds, and its standard error."""
        values = np.array([self.found[name][seed] for seed in self.used])
        return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


@dataclass(frozen=True)
class ExploringRun:
    """A run read from its folder."""

    manifest: Manifest
    rows: tuple[ExploringRow, ...]

    @property
    def sizes(self) -> list[int]:
        """All sizes, rising."""
        return sorted({row.size for row in self.rows})

    @property
    def ways(self) -> dict[str, list[ExploringRow]]:
        """The ways to explore by their names, each with its rows, sizes rising."""
        labels = dict.fromkeys(row.label for row in self.rows)
        by_size = sorted(self.rows, key=lambda row: row.size)
        return {label: [row for row in by_size if row.label == label] for label in labels}

    @property
    def of_lktd(self) -> list[ExploringRow]:
        """The rows of LKTD."""
        return [row for row in self.rows if row.algorithm == "lktd"]


def make_report(folder: RunFolder, manifest: Manifest) -> Report:
    """Make the report of a run, whatever has finished of it."""
    run = load(folder, manifest)
    is_sea = manifest.experiment == DEEP_SEA
    notes = [
        *diverged_notes([(f"{row.label}, {row.size}", row) for row in run.rows]),
        *unfinished_notes(manifest, run.rows),
        "Seeds are the unit.",
    ]
    claims = deep_sea_claims(run) if is_sea else n_chain_claims(run)

    def draw() -> Figures:
        if is_sea:
            yield "episodes", "Episodes until a deep sea is solved", episodes_figure(run)

    return Report(
        manifest=manifest,
        lead=f"{len(run.rows)} of {len(manifest.rows)} rows.",
        summary={row.id: {**row.counts, "seconds": row.seconds, **row.found} for row in run.rows},
        claims=claims_table(claims, notes),
        tables=[solved_table(run) if is_sea else returns_table(run), seconds_table(run)],
        draw=draw,
        facts=facts(manifest, [(row.id, row) for row in run.rows], "see the rows", lambda _: None),
    )


def load(folder: RunFolder, manifest: Manifest) -> ExploringRun:
    """Read what has finished of a run.

    Raises
    ------
    StoreError
        If no unit has finished, or a table is damaged.
    """
    rows = []
    for row, table in finished_rows(folder, manifest, *NUMBERS):
        seeds = table["seed"].tolist()
        found = {name: dict(zip(seeds, table[name].tolist(), strict=True)) for name in NUMBERS}
        rows.append(ExploringRow(**vars(row), found=found))
    return ExploringRun(manifest, tuple(rows))


def solved_table(run: ExploringRun) -> Table:
    """Return how many seeds of each way solve each size, and how soon."""

    def cell(size: int, way: list[ExploringRow]) -> str:
        row = next((row for row in way if row.size == size), None)
        if row is None:
            return NONE
        shown = f"{len(row.episodes)}/{len(row.seeds)}"
        if row.episodes:
            shown += f", {np.median(row.episodes):,.0f}"
        return Best(shown) if row is _largest(way) else shown

    return _by_size(run, "solved", "Table 1. Deep seas solved", cell, _SOLVED)


def returns_table(run: ExploringRun) -> Table:
    """Return what each way is paid on each chain."""

    def cell(size: int, way: list[ExploringRow]) -> str:
        row = next((row for row in way if row.size == size), None)
        if row is None:
            return NONE
        (greedy, se), (training, _) = map(row.mean_se, ("final_return", "training_return"))
        return f"{greedy:.2f} ± {se:.2f}, {training:.2f}"

    return _by_size(run, "returns", "Table 1. Returns on the N-chain", cell, _RETURNS)


def seconds_table(run: ExploringRun) -> Table:
    """Return how long a seed took."""

    def cell(size: int, way: list[ExploringRow]) -> str:
        row = next((row for row in way if row.size == size), None)
        return NONE if row is None else f"{row.seconds:,.0f}"

    note = "Wall seconds per seed, with its share of the group it ran in; evaluations included."
    return _by_size(run, "seconds", "Table 2. Seconds per run", cell, note)


def _by_size(run: ExploringRun, key: str, title: str, cell: object, note: str) -> Table:
    """Return a table with a line for each way and a column for each size."""
    cells: Cells[tuple[str, list[ExploringRow]]] = {
        Column("way to explore", words=True): lambda way: way[0],
        **{
            Column(str(size), "size"): partial(lambda size, way: cell(size, way[1]), size)  # type: ignore[operator]
            for size in run.sizes
        },
    }
    return make_table(key, title, cells, run.ways.items(), [note])


def _largest(way: list[ExploringRow]) -> ExploringRow | None:
    """Return the row of the largest size that is solved."""
    return next((row for row in reversed(way) if row.is_solved), None)


def deep_sea_claims(run: ExploringRun) -> list[Claim]:
    """Say which sizes LKTD solves, and that it solves larger ones than the others."""
    of_lktd = [row for way in run.ways.values() if (row := _largest(way)) in run.of_lktd]
    ours = max(of_lktd, key=lambda row: row.size, default=None)
    claims = []
    for goal in GOALS:
        statement = f"A behaviour of LKTD solves size {goal} with at least 9 of 10 seeds"
        if max(run.sizes) < goal:
            claims.append(Claim(statement))
        else:
            told = f"{ours.size}, {ours.label}" if ours else "no size"
            claims.append(Claim(statement, told, ours is not None and ours.size >= goal))
    others = [row for way in run.ways.values() for row in [_largest(way)] if row]
    theirs = max((row.size for row in others if row.algorithm != "lktd"), default=0)
    statement = "LKTD's best behaviour solves a size at least as large as any other algorithm"
    claims.append(
        Claim(
            statement,
            f"{ours.size if ours else 0} against {theirs}",
            ours is not None and ours.size >= theirs,
        )
    )
    return claims


def n_chain_claims(run: ExploringRun) -> list[Claim]:
    """Say whether LKTD finds the far end at every length."""
    best = {
        size: max(row.mean_se("final_return")[0] for row in run.of_lktd if row.size == size)
        for size in sorted({row.size for row in run.of_lktd})
    }
    statement = f"LKTD's best behaviour is paid at least {CHAIN_GOAL:g} of 10 at every length"
    if not best:
        return [Claim(statement)]
    told = ", ".join(f"{size}: {paid:.2f}" for size, paid in best.items())
    return [Claim(statement, told, min(best.values()) >= CHAIN_GOAL)]


def episodes_figure(run: ExploringRun) -> Drawn:
    """Draw the median number of episodes over the size; hollow where too few seeds solve it."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    figure = Figure(figsize=(7.0, 4.2))
    axes = figure.subplots()
    styles = ["-", "--", ":", "-."]
    drawn: dict[str, int] = {}
    for label, way in run.ways.items():
        algorithm = way[0].algorithm
        style = styles[drawn.setdefault(algorithm, 0) % len(styles)]
        drawn[algorithm] += 1
        solved = [row for row in way if row.episodes]
        sizes, medians = [row.size for row in solved], [np.median(r.episodes) for r in solved]
        colour = colour_of(algorithm)
        axes.plot(sizes, medians, style, color=colour, label=label)
        for row, median in zip(solved, medians, strict=True):
            face = colour if row.is_solved else "white"
            axes.plot(row.size, median, "o", color=colour, markerfacecolor=face)
    axes.set_yscale("log")
    axes.set_xticks(run.sizes)
    axes.set_xlabel("size of the deep sea", color=INK)
    axes.set_ylabel("episodes until solved, median over seeds", color=INK)
    axes.legend(frameon=False, fontsize=8)
    caption = (
        "Median number of episodes until a deep sea of each size is solved, over the seeds that "
        "solve it within 10,000; filled where at least nine of ten do. No point: no seed solves it."
    )
    return figure, caption
