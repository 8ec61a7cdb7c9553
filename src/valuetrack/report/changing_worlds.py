"""The report of runs in worlds that change: who notices, and who is right again, how soon."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from scipy import stats

from valuetrack.io.manifest import Manifest
from valuetrack.io.run_folder import Columns, RunFolder
from valuetrack.metrics import bootstrap_interval
from valuetrack.report.page import Report, facts
from valuetrack.report.run_data import Row, diverged_notes, finished_rows, read_table
from valuetrack.report.run_data import unfinished_notes as unfinished
from valuetrack.report.statistics import LEVEL, RESAMPLES, Claim, claims_table
from valuetrack.report.style import INK, LINE, Drawn, Figures, colour_of
from valuetrack.report.table import NONE, Cells, Column, Table, make_table
from valuetrack.types import Floats

TIMES = {
    "own_covered_after": "intervals, own policy",
    "best_covered_after": "intervals, best policy",
    "returned_after": "return",
}
"""Columns with the steps until something is right again, and their titles."""
NUMBERS = (
    *TIMES, "own_covered_before", "near_before", "alarm_after", "false_alarms", "judged_steps",
)  # fmt: skip
WORLDS = {"goal": "the goal moves", "walls": "walls come up", "rewards": "steps cost twice"}
OURS = "lktd-forgets"
RIVALS = {
    "dqn": (2.0, "at least twice as fast as DQN"),
    "dqn-forgets": (1.0, "no later than DQN that forgets"),
}
"""With whom it is compared: how many times as fast it is to be, and in words."""
PER = 100_000
"""Per how many steps false alarms are told."""
CURVES = {
    "own_covered": "share of intervals that hold the value",
    "regret": "return below the best",
}

_TIMES = (
    "Environment steps from the change until, for good, at least the share `covered` of the 95 % "
    "intervals for the value at the tracked cells holds the exact value, of the agent's own policy "
    "or of the best one in the new world, and until greedy episodes are paid nearly the best. Mean "
    "over seeds with its 95 % bootstrap interval; a seed that is never right again counts with all "
    "steps after the change, and the numbers behind say how many of the seeds were."
)
_ALARMS = (
    "Steps from the change to a seed's first alarm, median over those that have one, and false "
    "alarms before the change per 100,000 steps, with the exact 95 % interval of a Poisson number. "
    "Until the change a seed does the same in all worlds."
)


@dataclass(frozen=True)
class ChangedRow(Row):
    """An algorithm in a world; ``found`` has each number of each seed, ``points`` the looks."""

    found: Mapping[str, Mapping[int, float]] = field(compare=False)
    points: Columns = field(compare=False)

    @property
    def world(self) -> str:
        """The name of the world, with which its id begins."""
        return self.id.partition("-")[0]

    @property
    def kind(self) -> str:
        """The rest of the id: the same in all worlds."""
        return self.id.partition("-")[2]

    @property
    def change(self) -> int:
        """The step at which the world changes."""
        return int(self.entry.env_options["changes"][0]["at"])

    @property
    def steps_after(self) -> int:
        """How many steps there are after the change."""
        return self.entry.steps - self.change

    @property
    def first_look(self) -> int:
        """How many steps after the change the first look is; 0 if there is none."""
        steps = self.points["step"] if self.points else np.zeros(0, int)
        return int(min((step - self.change for step in steps if step > self.change), default=0))

    def values(self, name: str) -> Floats:
        """Return a number of every seed that counts."""
        return np.array([self.found[name][seed] for seed in self.used], float)

    def times(self, name: str) -> Floats:
        """Return the steps until something is right again; all there are, if it never is."""
        found = self.values(name)
        return np.where(np.isfinite(found), found, float(self.steps_after))

    def alarm_rate(self) -> tuple[float, float, float] | None:
        """Return false alarms per :data:`PER` steps with the ends of their interval."""
        count, steps = self.values("false_alarms").sum(), self.values("judged_steps").sum()
        if not steps:
            return None
        low = stats.chi2.ppf((1 - LEVEL) / 2, 2 * count) / 2 if count else 0.0
        high = stats.chi2.ppf((1 + LEVEL) / 2, 2 * count + 2) / 2
        return tuple(PER * float(n) / steps for n in (count, low, high))


@dataclass(frozen=True)
class ChangedRun:
    """A run read from its folder."""

    manifest: Manifest
    rows: tuple[ChangedRow, ...]

    @property
    def worlds(self) -> list[str]:
        """The worlds in the order of the rows."""
        return list(dict.fromkeys(row.world for row in self.rows))

    def row(self, world: str, kind: str) -> ChangedRow | None:
        """Return a row by its world and the rest of its id, if it has finished."""
        same = (row for row in self.rows if (row.world, row.kind) == (world, kind))
        return next(same, None)


def make_report(folder: RunFolder, manifest: Manifest) -> Report:
    """Make the report of a run, whatever has finished of it."""
    run = load(folder, manifest)
    notes = [
        *diverged_notes([(f"{named(row.world)}: {row.label}", row) for row in run.rows]),
        *unfinished(manifest, run.rows),
        "Seeds are the unit; a ratio is one of means over seeds.",
    ]

    def draw() -> Figures:
        yield "curves", "Before and after the change", curves_figure(run)

    return Report(
        manifest=manifest,
        lead=f"{len(run.rows)} of {len(manifest.rows)} rows.",
        summary={row.id: {**row.counts, **row.found} for row in run.rows},
        claims=claims_table([*speed_claims(run), alarm_claim(run)], notes),
        tables=[times_table(run), alarms_table(run)],
        draw=draw,
        facts=facts(manifest, [(row.id, row) for row in run.rows], "see the rows", lambda _: None),
    )


def load(folder: RunFolder, manifest: Manifest) -> ChangedRun:
    """Read what has finished of a run.

    Raises
    ------
    StoreError
        If no unit has finished, or a table is damaged.
    """
    points = read_table(folder, "points", "step", "own_covered", "greedy_return", "best_return")
    rows = []
    for row, table in finished_rows(folder, manifest, *NUMBERS):
        seeds = table["seed"].tolist()
        found = {name: dict(zip(seeds, table[name].tolist(), strict=True)) for name in NUMBERS}
        rows.append(ChangedRow(**vars(row), found=found, points=points.get(row.id, {})))
    return ChangedRun(manifest, tuple(rows))


def named(world: str) -> str:
    """Return what happens in a world."""
    return WORLDS.get(world, world)


def times_table(run: ChangedRun) -> Table:
    """Return how long it takes until all is right again."""

    def cell(name: str, row: ChangedRow) -> str:
        if not row.used:
            return NONE
        times = row.times(name)
        low, high = bootstrap_interval(times, _mean, LEVEL, RESAMPLES)
        right = int(np.isfinite(row.values(name)).sum())
        return f"{times.mean():,.0f} [{low:,.0f}, {high:,.0f}], {right}/{len(times)}"

    def before(name: str, row: ChangedRow) -> str:
        return f"{row.values(name).mean():.2f}" if row.used else NONE

    cells: Cells[ChangedRow] = {
        Column("world", words=True): lambda row: named(row.world),
        Column("algorithm", words=True): lambda row: row.label,
        Column("coverage", "before"): partial(before, "own_covered_before"),
        Column("near the best", "before"): partial(before, "near_before"),
        **{Column(title, "steps until"): partial(cell, name) for name, title in TIMES.items()},
    }
    return make_table("times", "Table 1. Steps until right again", cells, run.rows, [_TIMES])


def alarms_table(run: ChangedRun) -> Table:
    """Return how soon alarms come, and how often without a reason."""

    def delay(row: ChangedRow) -> str:
        found = row.values("alarm_after")
        known = found[np.isfinite(found)]
        return f"{np.median(known):,.0f}" if known.size else NONE

    def raised(row: ChangedRow) -> str:
        found = row.values("alarm_after")
        return f"{np.isfinite(found).sum()}/{len(found)}"

    def false(row: ChangedRow) -> str:
        rate = row.alarm_rate()
        return NONE if rate is None else f"{rate[0]:.2f} [{rate[1]:.2f}, {rate[2]:.2f}]"

    cells: Cells[ChangedRow] = {
        Column("world", words=True): lambda row: named(row.world),
        Column("algorithm", words=True): lambda row: row.label,
        Column("alarms"): raised,
        Column("delay"): delay,
        Column("false alarms per 100,000"): false,
    }
    return make_table("alarms", "Table 2. Alarms", cells, run.rows, [_ALARMS])


def speed_claims(run: ChangedRun) -> list[Claim]:
    """Say in which worlds LKTD that forgets is right again sooner than DQN, and how much."""
    return [
        _speed_claim(run, world, name, rival)
        for rival in RIVALS
        for name in ("own_covered_after", "returned_after")
        for world in run.worlds
    ]


def _speed_claim(run: ChangedRun, world: str, name: str, rival: str) -> Claim:
    least, words = RIVALS[rival]
    happens = named(world).capitalize()
    statement = f"{happens}: LKTD that forgets is right again {words} ({TIMES[name]})"
    ours, theirs = run.row(world, OURS), run.row(world, rival)
    if ours is None or theirs is None or not ours.used or not theirs.used:
        return Claim(statement)
    if max(ours.times(name).max(), theirs.times(name).max()) <= ours.first_look:
        return Claim(statement, "neither has lost it: right at the first look", None)
    ratio, low, high = ratio_of_means(theirs.times(name), ours.times(name))
    return Claim(statement, f"{ratio:.2f} times as fast [{low:.2f}, {high:.2f}]", ratio >= least)


def alarm_claim(run: ChangedRun) -> Claim:
    """Say whether false alarms are as rare as they were asked to be.

    Before the change all worlds are the same, and so is what a seed of an algorithm does there: one
    world of each algorithm counts.
    """
    asked = PER * float(dict(run.manifest.spec.measure).get("alarm_rate", 1e-5))
    statement = f"No more than {asked:g} false alarms per 100,000 steps, over all algorithms"
    rows = {row.kind: row for row in reversed(run.rows)}.values()
    count = sum(row.values("false_alarms").sum() for row in rows)
    steps = sum(row.values("judged_steps").sum() for row in rows)
    if not steps:
        return Claim(statement)
    rate = PER * float(count) / float(steps)
    told = f"{rate:.2f} ({count:.0f} in {steps:,.0f} steps)"
    return Claim(statement, told, rate <= asked)


def ratio_of_means(above: Floats, below: Floats) -> tuple[float, float, float]:
    """Return a ratio of means over seeds with its 95 % bootstrap interval.

    Examples
    --------
    >>> ratio_of_means(np.array([4.0, 4.0]), np.array([2.0, 2.0]))
    (2.0, 2.0, 2.0)
    """
    random = np.random.default_rng(0)
    drawn = [random.choice(part, (RESAMPLES, len(part))).mean(axis=1) for part in (above, below)]
    low, high = np.quantile(drawn[0] / drawn[1], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(above.mean() / below.mean()), float(low), float(high)


def _mean(values: Floats, axis: int) -> Floats:
    return np.asarray(values.mean(axis=axis))


def curves_figure(run: ChangedRun) -> Drawn:
    """Draw coverage and regret over the steps, a column for each world."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    figure = Figure(figsize=(4.0 * len(run.worlds), 5.2))
    axes = figure.subplots(len(CURVES), len(run.worlds), sharex="col", sharey="row", squeeze=False)
    for column, world in enumerate(run.worlds):
        rows = [row for row in run.rows if row.world == world and len(row.points)]
        for line, name in enumerate(CURVES):
            panel = axes[line, column]
            for row in rows:
                style = "--" if row.kind.endswith("forgets") else "-"
                steps, mean = _curve(row, _OF[name])
                colour = colour_of(row.algorithm)
                panel.plot(steps / 1_000, mean, style, color=colour, label=row.label)
                panel.axvline(row.change / 1_000, **LINE)
            if not column:
                panel.set_ylabel(CURVES[name], color=INK)
        axes[0, column].set_title(named(world))
        axes[-1, column].set_xlabel("environment steps (thousands)", color=INK)
    axes[-1, -1].legend(frameon=False, fontsize=8)
    caption = (
        "Means over seeds. Above: the share of the 95 % intervals for the value at the tracked "
        "cells that hold the exact value of the agent's own policy in the present world. Below: by "
        "how much a greedy episode is paid less than the best. The vertical line is the change; "
        "dashed lines forget."
    )
    return figure, caption


_OF: Mapping[str, Callable[[Columns], Floats]] = {
    "own_covered": lambda points: np.asarray(points["own_covered"], float),
    "regret": lambda points: np.asarray(points["best_return"] - points["greedy_return"], float),
}
"""What a curve shows of the looks."""


def _curve(row: ChangedRow, of: Callable[[Columns], Floats]) -> tuple[Floats, Floats]:
    """Return the steps of the looks, and the mean of something over the seeds that count."""
    used = np.isin(row.points["seed"], row.used)
    steps, values = row.points["step"][used], of(row.points)[used]
    at = np.unique(steps)
    return at.astype(float), np.array([values[steps == step].mean() for step in at])
