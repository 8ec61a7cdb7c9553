"""Statements about a run that its numbers bear out or do not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from valuetrack.envs.indoor_escape import EAST, NORTH, optimal_q
from valuetrack.report.indoor_escape import paper
from valuetrack.report.indoor_escape.data import LIKELY, RARE, SAMPLERS, GridRow, Run, Summary
from valuetrack.report.statistics import NOT_MEASURED, Claim, PooledStatistics
from valuetrack.report.style import label_of

OPEN = 0.2
"""The probability from which an action counts as kept open."""

Close = Callable[[PooledStatistics, paper.Figure], bool]


def claims(run: Run, summary: Summary) -> list[Claim]:
    """Return the claims, each with its measured facts; all figures are the trimmed means."""
    baselines, between = ("dqn", "bootdqn"), ("qrdqn", "kova")
    return [
        *(_falls(run, summary, name, metric) for metric in ("mse", "width") for name in SAMPLERS),
        _near(run, summary, "mse", "MSE within 40 % or two standard errors", _near_mse),
        _near(run, summary, "coverage", "coverage within 0.015", _near_coverage),
        _near(run, summary, "width", "width within 10 %", _near_width),
        *(_times_worse(run, summary, id, 50.0, math.inf) for id in baselines),
        *(_low_coverage(run, summary, id) for id in baselines),
        *(_times_worse(run, summary, id, 5.0, 100.0) for id in between),
        _keeps_ways_open(run),
        _time_ratio(run, "lktd", "sgld", "at most 1.2 times that of SGLD", 0.0, 1.2),
        _time_ratio(run, "lktd", "dqn", "at most that of one DQN update", 0.0, 1.0),
        _time_ratio(run, "kova", "lktd", "at least 20 times that of LKTD", 20.0, math.inf),
    ]


def forms_claims(run: Run, summary: Summary) -> list[Claim]:
    """Return what the rows of ``indoor-escape-forms`` say about the paper's equations."""
    return [
        _ratio_of_rows(
            run, summary, "population-1e9", "width", LIKELY, 0.8, 1.0,
            "N = 10^9 leaves most of the width: 0.8 to 1 times that of N = 10000",
        ),
        _ratio_of_rows(
            run, summary, "full-gradient", "mse", RARE, 10.0, math.inf,
            "The full gradient alone makes the error of W and S at least 10 times as large",
        ),
        _ratio_of_rows(
            run, summary, "sgld-2500-step-1e-5", "width", LIKELY, 0.0, 0.95,
            "SGLD with half the step is narrower by at least 5 %", base="sgld-2500-step-2e-5",
        ),
    ]  # fmt: skip


def _ratio_of_rows(
    run: Run,
    summary: Summary,
    id: str,
    metric: str,
    actions: tuple[str, ...],
    low: float,
    high: float,
    statement: str,
    *,
    base: str = "reference",
) -> Claim:
    """Claim the ratio of a row's figure to that of another, for some actions."""
    row, other = run.row(id), run.row(base)
    if row is None or other is None:
        return Claim(statement, NOT_MEASURED, None)
    ratios = {
        action: _mean(summary, row, action, metric) / _mean(summary, other, action, metric)
        for action in actions
    }
    text = ", ".join(f"{action} {ratio:.3g} times" for action, ratio in ratios.items())
    return Claim(statement, text, all(low <= ratio <= high for ratio in ratios.values()))


def open_shares(run: Run, row: GridRow) -> dict[int, float]:
    """Return, for each seed, the share of inner states in which both E and N are kept open.

    Inner states are those where E and N are both legal; an action is kept open where its mean
    policy probability is at least 0.2.
    """
    legal = optimal_q(run.environment).legal
    inner = legal[:, EAST] & legal[:, NORTH]
    return {
        seed: float((probabilities[inner][:, [EAST, NORTH]] >= OPEN).all(axis=1).mean())
        for seed, probabilities in run.policies(row).items()
    }


def _falls(run: Run, summary: Summary, algorithm: str, metric: str) -> Claim:
    rows = run.family(algorithm)
    name = {"mse": "MSE", "width": "width"}[metric]
    statement = f"{label_of(algorithm)}: {name} falls as N rises"
    if len(rows) < 2:
        return Claim(statement, NOT_MEASURED, None)
    digits = 6 if metric == "mse" else 3
    rises, texts = [], []
    for action in LIKELY:
        means = [f"{_mean(summary, row, action, metric):.{digits}f}" for row in rows]
        texts.append(f"action {action} {', '.join(means)}")
        rises += _rises(summary, rows, action, metric)
    populations = ", ".join(str(row.pseudo_population) for row in rows)
    measured = "; ".join([f"at N = {populations}: {texts[0]}", *texts[1:], *rises])
    return Claim(statement, measured, not rises)


def _rises(summary: Summary, rows: list[GridRow], action: str, metric: str) -> list[str]:
    """Name the steps at which a metric does not fall, and by how many standard errors."""
    found = []
    for before, after in pairwise(rows):
        pair = [summary[row.id]["metrics"][action][metric]["trimmed"] for row in (before, after)]
        change = _mean(summary, after, action, metric) - _mean(summary, before, action, metric)
        if not change < 0:
            error = math.hypot(*(figures["se"] or 0.0 for figures in pair))
            size = f" ({change / error:+.1f} standard errors)" if error > 0 else ""
            step = f"from {before.pseudo_population} to {after.pseudo_population}"
            found.append(f"action {action} does not fall {step}{size}")
    return found


def _near(run: Run, summary: Summary, metric: str, what: str, close: Close) -> Claim:
    """Claim that every sampler's row lies close to the paper's, and name those that do not."""
    statement = f"LKTD, SGLD, SGHMC: {what} of the paper's"
    far, total = [], 0
    for row, action, ours, theirs in _pairs(run, summary, metric):
        total += 1
        if ours["mean"] is None or not close(ours, theirs):
            far.append(f"{row.name} {action} ({ours['mean'] or math.nan:.5f}, {theirs.mean:.5f})")
    if not total:
        return Claim(statement, NOT_MEASURED, None)
    measured = f"{total - len(far)} of {total} figures"
    return Claim(statement, "; not: ".join([measured, *([", ".join(far)] if far else [])]), not far)


def _pairs(
    run: Run, summary: Summary, metric: str
) -> Iterator[tuple[GridRow, str, PooledStatistics, paper.Figure]]:
    for row in run.rows:
        theirs = paper.indoor_escape().get(row.id)
        if row.algorithm in SAMPLERS and theirs is not None:
            for action in LIKELY:
                ours = summary[row.id]["metrics"][action][metric]["trimmed"]
                yield row, action, ours, theirs[action][metric]


def _near_mse(ours: PooledStatistics, theirs: paper.Figure) -> bool:
    apart = abs((ours["mean"] or 0.0) - theirs.mean)
    error = math.hypot(ours["se"] or 0.0, (theirs.sd or 0.0) / math.sqrt(paper.RUNS))
    return apart <= max(0.4 * theirs.mean, 2.0 * error)


def _near_coverage(ours: PooledStatistics, theirs: paper.Figure) -> bool:
    return abs((ours["mean"] or 0.0) - theirs.mean) <= 0.015


def _near_width(ours: PooledStatistics, theirs: paper.Figure) -> bool:
    return abs((ours["mean"] or 0.0) - theirs.mean) <= 0.1 * theirs.mean


def _times_worse(run: Run, summary: Summary, id: str, low: float, high: float) -> Claim:
    """Claim how many times an algorithm's MSE is that of LKTD with the largest N."""
    bounds = f"at least {low:g}" if math.isinf(high) else f"{low:g} to {high:g}"
    row, best = run.row(id), run.largest("lktd")
    statement = f"{label_of(id)}: MSE {bounds} times that of LKTD"
    if row is None or best is None:
        return Claim(statement, NOT_MEASURED, None)
    ratios = [
        _mean(summary, row, action, "mse") / (_mean(summary, best, action, "mse") or math.nan)
        for action in LIKELY
    ]
    texts = [f"{action} {ratio:.4g}" for action, ratio in zip(LIKELY, ratios, strict=True)]
    holds = all(low <= ratio <= high for ratio in ratios)
    return Claim(statement, f"{', '.join(texts)} times {best.name}", holds)


def _low_coverage(run: Run, summary: Summary, id: str) -> Claim:
    statement = f"{label_of(id)}: coverage below 0.6"
    if (row := run.row(id)) is None:
        return Claim(statement, NOT_MEASURED, None)
    means = {action: _mean(summary, row, action, "coverage") for action in LIKELY}
    if any(map(math.isnan, means.values())):
        return Claim(statement, NOT_MEASURED, None)
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
        return Claim(statement, NOT_MEASURED, None)
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
        return Claim(statement, NOT_MEASURED, None)
    measured = f"{min(ratios):.4g} to {max(ratios):.4g} times in {len(ratios)} settings"
    return Claim(statement, measured, all(low <= ratio <= high for ratio in ratios))


def _mean(summary: Summary, row: GridRow, action: str, metric: str) -> float:
    """Return a trimmed mean, NaN (which bears out no claim) where there is none."""
    mean = summary[row.id]["metrics"][action][metric]["trimmed"]["mean"]
    return math.nan if mean is None else mean
