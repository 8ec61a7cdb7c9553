"""Statements about a run that its numbers bear out or do not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np

from valuetrack.envs.indoor_escape import EAST, NORTH, IndoorEscape, optimal_q
from valuetrack.report.indoor_escape import paper
from valuetrack.report.indoor_escape.data import LIKELY, RARE, SAMPLERS, GridRow, Run
from valuetrack.report.statistics import Claim, PooledStatistics
from valuetrack.report.style import label_of
from valuetrack.types import Bools, Floats

OPEN = 0.2
"""The probability from which an action counts as kept open."""

Reach = Callable[[PooledStatistics, paper.Figure], float]
"""How far our mean may be from the paper's."""


def claims(run: Run) -> list[Claim]:
    """Return the claims, each with its measured facts; all figures are the trimmed means."""
    baselines, between = ("dqn", "bootdqn"), ("qrdqn", "kova")
    return [
        *(_falls(run, name, metric) for metric in ("mse", "width") for name in SAMPLERS),
        _near(run, "mse", "MSE within 40 % or two standard errors", _reach_of_mse),
        _near(run, "coverage", "coverage within 0.015", lambda ours, theirs: 0.015),
        _near(run, "width", "width within 10 %", lambda ours, theirs: 0.1 * theirs.mean),
        *(_times_worse(run, id, 50.0, math.inf) for id in baselines),
        *(_low_coverage(run, id) for id in baselines),
        *(_times_worse(run, id, 5.0, 100.0) for id in between),
        _keeps_ways_open(run),
        _time_ratio(run, "lktd", "sgld", "at most 1.2 times that of SGLD", 0.0, 1.2),
        _time_ratio(run, "lktd", "dqn", "at most that of one DQN update", 0.0, 1.0),
        _time_ratio(run, "kova", "lktd", "at least 20 times that of LKTD", 20.0, math.inf),
    ]


def forms_claims(run: Run) -> list[Claim]:
    """Return what the rows of ``indoor-escape-forms`` say about the paper's equations."""
    reference = run.row("reference")
    half, whole = run.row("sgld-2500-step-1e-5"), run.row("sgld-2500-step-2e-5")
    return [
        _ratio(
            "N = 10^9 leaves most of the width: 0.8 to 1 times that of N = 10000",
            run.row("population-1e9"), reference, "width", LIKELY, 0.8, 1.0,
        ),
        _ratio(
            "The full gradient alone makes the error of W and S at least 10 times as large",
            run.row("full-gradient"), reference, "mse", RARE, 10.0, math.inf,
        ),
        _ratio(
            "SGLD with half the step is narrower by at least 5 %",
            half, whole, "width", LIKELY, 0.0, 0.95,
        ),
    ]  # fmt: skip


def _ratio(
    statement: str,
    row: GridRow | None,
    base: GridRow | None,
    metric: str,
    actions: Sequence[str],
    low: float,
    high: float,
    wording: str = "{action} {ratio:.3g} times",
    ending: str = "",
) -> Claim:
    """Claim the ratio of a row's figure to that of another, for some actions."""
    if row is None or base is None:
        return Claim(statement)
    ratios = {
        action: _mean(row, action, metric) / (_mean(base, action, metric) or math.nan)
        for action in actions
    }
    words = (wording.format(action=action, ratio=ratio) for action, ratio in ratios.items())
    return Claim(statement, ", ".join(words) + ending, _within(ratios.values(), low, high))


def inner_cells(env: IndoorEscape) -> Bools:
    """Return in which cells both ways to the goal, E and N, are legal."""
    legal = optimal_q(env).legal
    return np.asarray(legal[:, EAST] & legal[:, NORTH])


def open_cells(probabilities: Floats) -> Bools:
    """Return in which cells E and N are both kept open: each has probability 0.2 or more."""
    return np.asarray((probabilities[:, [EAST, NORTH]] >= OPEN).all(axis=1))


def open_shares(run: Run, row: GridRow) -> dict[int, float]:
    """Return, for each seed, the share of inner cells in which E and N are both kept open."""
    inner = inner_cells(run.environment)
    policies = run.policies(row)
    return {seed: float(open_cells(policy)[inner].mean()) for seed, policy in policies.items()}


def _falls(run: Run, algorithm: str, metric: str) -> Claim:
    rows = run.family(algorithm)
    name, digits = {"mse": ("MSE", 6), "width": ("width", 3)}[metric]
    statement = f"{label_of(algorithm)}: {name} falls as N rises"
    if len(rows) < 2:
        return Claim(statement)
    rises, texts = [], []
    for action in LIKELY:
        means = [f"{_mean(row, action, metric):.{digits}f}" for row in rows]
        texts.append(f"action {action} {', '.join(means)}")
        rises += _rises(rows, action, metric)
    populations = ", ".join(str(row.pseudo_population) for row in rows)
    measured = "; ".join([f"at N = {populations}: {texts[0]}", *texts[1:], *rises])
    return Claim(statement, measured, not rises)


def _rises(rows: list[GridRow], action: str, metric: str) -> list[str]:
    """Name the steps at which a metric does not fall, and by how many standard errors."""
    found = []
    for before, after in pairwise(rows):
        errors = [row.trimmed(action, metric)["se"] or 0.0 for row in (before, after)]
        change = _mean(after, action, metric) - _mean(before, action, metric)
        if not change < 0:
            error = math.hypot(*errors)
            size = f" ({change / error:+.1f} standard errors)" if error > 0 else ""
            step = f"from {before.pseudo_population} to {after.pseudo_population}"
            found.append(f"action {action} does not fall {step}{size}")
    return found


def _near(run: Run, metric: str, what: str, reach: Reach) -> Claim:
    """Claim that every sampler's row lies close to the paper's, and name those that do not."""
    statement = f"LKTD, SGLD, SGHMC: {what} of the paper's"
    table = paper.indoor_escape()
    rows = [row for row in run.rows if row.algorithm in SAMPLERS and row.id in table]
    if not rows:
        return Claim(statement)
    far = []
    for row in rows:
        for action in LIKELY:
            ours, theirs = row.trimmed(action, metric), table[row.id][action][metric]
            mean = _mean(row, action, metric)
            if not abs(mean - theirs.mean) <= reach(ours, theirs):
                far.append(f"{row.name} {action} ({mean:.5f}, {theirs.mean:.5f})")
    total = len(rows) * len(LIKELY)
    measured = f"{total - len(far)} of {total} figures"
    return Claim(statement, f"{measured}; not: {', '.join(far)}" if far else measured, not far)


def _reach_of_mse(ours: PooledStatistics, theirs: paper.Figure) -> float:
    return max(0.4 * theirs.mean, 2.0 * math.hypot(ours["se"] or 0.0, theirs.se))


def _times_worse(run: Run, id: str, low: float, high: float) -> Claim:
    """Claim how many times an algorithm's MSE is that of LKTD with the largest N."""
    bounds = f"at least {low:g}" if math.isinf(high) else f"{low:g} to {high:g}"
    statement = f"{label_of(id)}: MSE {bounds} times that of LKTD"
    row, best = run.row(id), run.largest("lktd")
    wording, whose = "{action} {ratio:.4g}", f" times {best.name}" if best else ""
    return _ratio(statement, row, best, "mse", LIKELY, low, high, wording, whose)


def _low_coverage(run: Run, id: str) -> Claim:
    statement = f"{label_of(id)}: coverage below 0.6"
    if (row := run.row(id)) is None:
        return Claim(statement)
    means = {action: _mean(row, action, "coverage") for action in LIKELY}
    if any(map(math.isnan, means.values())):
        return Claim(statement)
    text = ", ".join(f"{action} {mean:.3f}" for action, mean in means.items())
    return Claim(statement, text, all(mean < 0.6 for mean in means.values()))


def _keeps_ways_open(run: Run) -> Claim:
    """Claim that LKTD keeps both ways open in three times as many inner states as DQN."""
    statement = (
        f"LKTD: share of inner states where E and N both have probability {OPEN:g} or more is at "
        "least 3 times that of DQN"
    )
    rows = run.largest("lktd"), run.largest("dqn")
    shares = [list(open_shares(run, row).values()) if row else [] for row in rows]
    if not all(shares):
        return Claim(statement)
    ours, theirs = (float(np.mean(share)) for share in shares)
    counts = " and ".join(str(len(share)) for share in shares)
    measured = f"{ours:.3f} against {theirs:.3f}, means over {counts} seeds"
    return Claim(statement, measured, ours > 0 and ours >= 3 * theirs)


def _time_ratio(run: Run, ours: str, other: str, bound: str, low: float, high: float) -> Claim:
    """Claim a ratio of times per inner iteration, in every setting measured for both."""
    statement = f"{label_of(ours)}: time per inner iteration {bound}"
    times = {
        (entry.algorithm, entry.hidden, entry.batch_size): entry.ms_per_iteration
        for entry in (run.timing.rows if run.timing else ())
    }
    ratios = [
        time / times[other, hidden, batch]
        for (name, hidden, batch), time in times.items()
        if name == ours and (other, hidden, batch) in times
    ]
    if not ratios:
        return Claim(statement)
    measured = f"{min(ratios):.4g} to {max(ratios):.4g} times in {len(ratios)} settings"
    return Claim(statement, measured, _within(ratios, low, high))


def _within(ratios: Iterable[float], low: float, high: float) -> bool:
    return all(low <= ratio <= high for ratio in ratios)


def _mean(row: GridRow, action: str, metric: str) -> float:
    """Return a trimmed mean, NaN (which bears out no claim) where there is none."""
    mean = row.trimmed(action, metric)["mean"]
    return math.nan if mean is None else mean
