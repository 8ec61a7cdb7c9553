"""Values watched while the policy learns, in a grid that stays as it is and in grids that change.

The paper's title is value *tracking*. Here Q(start, E) and Q(start, N) of the indoor escape are
recorded over a training of LKTD, DQN and BootDQN with the settings of
``experiments/indoor_escape.toml``. Halfway the world may change: the goal moves to another corner,
or every step costs twice as much. How long does it take until the truth, the exact value of the
epsilon-greedy optimal policy of the present world, lies inside the 95 % interval again, and how
wide is the interval before and after?

The interval is the paper's: as wide as the middle 95 % of the last 3,000 updates' values, centred
on the latest; "credible" is the one between those quantiles. The truth counts as found again from
the first record after the change from which it lies inside in at least nine of ten records of the
next 20,000 steps.

Run ``python studies/monitoring.py --out results/studies/monitoring``, with ``--quick`` to see only
that it works.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import common
import valuetrack as vt
from valuetrack.envs.indoor_escape import EAST, NORTH, IndoorEscape, observations, optimal_q
from valuetrack.experiments.spec import load
from valuetrack.registry import AGENTS

Floats = npt.NDArray[np.float64]

NAME = "monitoring"
SEEDS, FIRST_SEED = 5, 7_000
ROWS = ("lktd-10000", "dqn", "bootdqn")
WORLDS = {
    "stays": IndoorEscape(),
    "goal moves": IndoorEscape(goal=(9, 0)),
    "step costs 2": IndoorEscape(reward_mean=-2.0),
}
"""The world after the change; before it, all are the first."""
EVERY = 10
"""Updates between two records."""
WINDOW = 3_000
"""Updates that an interval looks back on."""
STAYS = 20_000
"""Environment steps over which the truth must stay inside."""
SHARE = 0.9
LEVEL = 0.95
POINTS = 250
"""How many records a figure shows."""


class Watched(NamedTuple):
    """One algorithm in one world: the records of all seeds, for the actions E and N.

    The world changes before record number ``change``.
    """

    change: int
    steps: npt.NDArray[np.int64]
    mean: Floats
    low: Floats
    high: Floats
    latest: Floats
    truth: Floats

    def inside(self, kind: str) -> npt.NDArray[np.bool_]:
        """Return whether the truth lies in the interval, (records, seeds, 2)."""
        low, high = self.low, self.high
        if kind == "prediction":
            half = (high - low) / 2
            low, high = self.latest - half, self.latest + half
        truth = self.truth[:, None]
        return np.asarray((low < truth) & (truth < high))


def watch(row: str, seeds: int, first: int, steps: int) -> dict[str, Watched]:
    """Train half of the steps in the usual grid, the rest in each world, and record the start."""
    spec = load("indoor-escape", steps=steps).row(row)
    usual = WORLDS["stays"]
    start = observations(usual)[:1]
    agent: Any = AGENTS[spec.algorithm](
        usual, seed=first, seeds=seeds, **{"samples": 1, **spec.options}
    )
    agent.learn(steps // 2, track=start, track_every=EVERY)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        agent.save(Path(folder) / "agent.vt")
        for name, world in WORLDS.items():
            later = vt.load(Path(folder) / "agent.vt", env=world)
            later.learn(steps // 2, track=start, track_every=EVERY)
            found[name] = _summed_up([agent.tracking(), later.tracking()], world)
    return found


def _summed_up(records: list[Any], world: IndoorEscape) -> Watched:
    whole = type(records[0])(
        *(np.concatenate([getattr(r, name) for r in records]) for name in ("steps", "updates")),
        np.concatenate([r.samples for r in records]),
    )
    window = WINDOW // EVERY
    chosen = (slice(None), slice(None), 0, [EAST, NORTH])
    low, high = whole.interval(LEVEL, window)
    truths = [
        optimal_q(env, ties="reference").values[0, [EAST, NORTH]]
        for env in (WORLDS["stays"], world)
    ]
    changed = np.arange(len(whole)) >= len(records[0])
    return Watched(
        change=len(records[0]),
        steps=whole.steps,
        mean=whole.mean(window)[chosen],
        low=low[chosen],
        high=high[chosen],
        latest=whole.samples.mean(axis=2)[chosen],
        truth=np.where(changed[:, None], truths[1], truths[0]),
    )


def steps_until_inside(watched: Watched, kind: str) -> Floats:
    """Return the steps from the change until the truth stays inside, (seeds, 2); NaN for never."""
    inside = watched.inside(kind)[watched.change :]
    since = watched.steps[watched.change :] - watched.steps[watched.change - 1]
    span = max(1, round(STAYS / (watched.steps[1] - watched.steps[0])))
    found = np.full(inside.shape[1:], np.nan)
    for record in range(len(inside) - span + 1):
        stays = inside[record] & (inside[record : record + span].mean(axis=0) >= SHARE)
        found = np.where(np.isnan(found) & stays, since[record], found)
    return found


def measure(watched: Watched) -> dict[str, Any]:
    """Return the figures of one algorithm in one world, with seeds as the unit."""
    change, count = watched.change, max(1, watched.change // 5)
    late, last = slice(change - count, change), slice(-count, None)
    width = (watched.high - watched.low).mean(axis=-1)  # (records, seeds)
    error = np.abs(watched.mean - watched.truth[:, None]).mean(axis=-1)
    found = {kind: steps_until_inside(watched, kind) for kind in ("prediction", "credible")}
    return {
        "error_before": _mean_se(error[late].mean(axis=0)),
        "error_at_end": _mean_se(error[last].mean(axis=0)),
        "width_before": _mean_se(width[late].mean(axis=0)),
        "widest_after": _mean_se(width[change:].max(axis=0)),
        "width_at_end": _mean_se(width[last].mean(axis=0)),
        "coverage_before": _mean_se(watched.inside("prediction")[late].mean(axis=(0, 2))),
        "coverage_at_end": _mean_se(watched.inside("prediction")[last].mean(axis=(0, 2))),
        **{
            f"steps_until_inside_{kind}": {
                action: [None if np.isnan(v) else int(v) for v in values[:, place]]
                for place, action in enumerate("EN")
            }
            for kind, values in found.items()
        },
    }


def _mean_se(values: Floats) -> dict[str, float | None]:
    se = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return {"mean": float(values.mean()), "se": se}


def table(results: dict[str, dict[str, Any]]) -> str:
    """Write the figures as Markdown."""

    def number(entry: dict[str, float | None], digits: int = 3) -> str:
        se = "" if entry["se"] is None else f" ± {entry['se']:.{digits}f}"
        return f"{entry['mean']:.{digits}f}{se}"

    def until(found: dict[str, list[int | None]], action: str) -> str:
        values = [np.inf if v is None else v / 1000 for v in found[action]]
        reached = sum(np.isfinite(values))
        median = np.median(values)
        told = "never" if np.isinf(median) else f"{median:.0f}k"
        return f"{told} ({reached} of {len(values)})"

    heads = [
        "world", "algorithm", "error before", "error at the end", "width before", "widest after",
        "width at the end", "coverage before", "coverage at the end", "E inside after",
        "N inside after",
    ]  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", f"| :-- | :-- |{' --: |' * (len(heads) - 2)}"]
    for world, rows in results.items():
        for label, r in rows.items():
            found = r["steps_until_inside_prediction"]
            cells = [
                world, label, number(r["error_before"]), number(r["error_at_end"]),
                number(r["width_before"]), number(r["widest_after"]), number(r["width_at_end"]),
                number(r["coverage_before"], 2), number(r["coverage_at_end"], 2),
                until(found, "E"), until(found, "N"),
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def curves_of(watched: Watched) -> dict[str, Any]:
    """Return the first seed's curves, thinned out for a figure."""
    chosen = np.unique(np.linspace(0, len(watched.steps) - 1, POINTS).astype(int))
    parts = {name: getattr(watched, name)[chosen, 0] for name in ("mean", "low", "high")}
    parts["truth"] = watched.truth[chosen]
    return {
        "steps": watched.steps[chosen].tolist(),
        "change": int(watched.steps[watched.change]),
        **{name: np.round(values.T, 4).tolist() for name, values in parts.items()},
    }


def draw(curves: dict[str, dict[str, Any]]) -> Figure:
    """Draw the first seed's values with their interval, the truth, and the change."""
    worlds, labels = list(curves), list(next(iter(curves.values())))
    figure = Figure(figsize=(4 * len(labels), 2.6 * len(worlds)), layout="constrained")
    axes = figure.subplots(len(worlds), len(labels), sharex=True, sharey="row", squeeze=False)
    for line, world in enumerate(worlds):
        for column, label in enumerate(labels):
            axis, shown = axes[line, column], curves[world][label]
            _draw_one(axis, shown)
            if world != "stays":
                axis.axvline(shown["change"] / 1000, color="0.5", linestyle=":", linewidth=1)
            if not line:
                axis.set_title(label)
            if not column:
                axis.set_ylabel(f"{world}\nvalue")
            if line == len(worlds) - 1:
                axis.set_xlabel("environment steps (thousands)")
        lowest = min(min(map(min, curves[world][label]["truth"])) for label in labels)
        axes[line, 0].set_ylim(lowest - 2.0, 0.5)
    axes[0, 0].legend(frameon=False, loc="upper right", fontsize=8)
    return figure


def _draw_one(axis: Axes, shown: dict[str, Any]) -> None:
    thousands = np.array(shown["steps"]) / 1000
    for place, (action, colour) in enumerate((("E", "#0072B2"), ("N", "#D55E00"))):
        mean, low, high, truth = (shown[name][place] for name in ("mean", "low", "high", "truth"))
        axis.plot(thousands, mean, color=colour, label=f"Q(start, {action})")
        axis.fill_between(thousands, low, high, color=colour, alpha=0.25, linewidth=0)
        axis.plot(thousands, truth, color=colour, linestyle="--", linewidth=1)
    axis.spines[["top", "right"]].set_visible(False)


def study(*, seeds: int, steps: int) -> dict[str, Any]:
    """Train every algorithm in every world, and return what is kept."""
    results: dict[str, dict[str, Any]] = {world: {} for world in WORLDS}
    curves: dict[str, dict[str, Any]] = {world: {} for world in WORLDS}
    for row in ROWS:
        label = AGENTS[row.partition("-")[0]].label
        for world, watched in watch(row, seeds, FIRST_SEED, steps).items():
            results[world][label], curves[world][label] = measure(watched), curves_of(watched)
    return {
        "seeds": seeds,
        "first_seed": FIRST_SEED,
        "steps": steps,
        "worlds": results,
        "curves": curves,
    }


def main() -> None:
    """Train, or read what is there; write monitoring.json, monitoring.md and monitoring.png."""
    given = common.options(__doc__, "results/studies/monitoring", steps=1_000_000)
    if given.redraw:
        document = common.read(given.out, NAME)
    elif given.quick:
        document = study(seeds=2, steps=40_000)
    else:
        document = study(seeds=SEEDS, steps=given.steps)
    common.write(given.out, NAME, document, table(document["worlds"]), draw(document["curves"]))


if __name__ == "__main__":
    main()
