r"""What a simulated truth adds to the squared errors of the paper's first table.

The authors compare learned values with simulated ones, from 1,000 trials; this library solves a
linear system. Whatever a truth is off by in mean square adds to every squared error that is
measured against it. Held against the exact values, the authors' are off by 2.5e-5. Means of 1,000
independent returns would be off by more, Var(G) / 1000, which follows from a second linear system:

.. math:: \operatorname{Var}(s, a) &= \sigma^2 + \gamma^2 \operatorname{Var}(s'), \\
          \operatorname{Var}(s) &= \sum_a \pi(a|s) \left(\operatorname{Var}(s, a)
              + (Q(s, a) - V(s))^2\right).

The table adds the 2.5e-5 to the errors in ``results/indoor-escape`` and holds the sum against the
paper's figures.

Run ``python studies/simulated_truth.py --out results/studies/simulated-truth``. It takes seconds;
``--quick`` simulates a tenth of the returns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

import common
from valuetrack.envs.indoor_escape import ACTION_NAMES, IndoorEscape, optimal_q
from valuetrack.envs.indoor_escape import optimal_policy_probabilities as optimal_policy
from valuetrack.io.run_folder import RunFolder
from valuetrack.report.indoor_escape import paper
from valuetrack.report.indoor_escape.data import LIKELY
from valuetrack.report.indoor_escape.data import load as load_run
from valuetrack.report.run_data import read_manifest

NAME = "simulated-truth"
RUN = Path(__file__).parents[1] / "results" / "indoor-escape"
EPSILON, DISCOUNT, TRIALS = 0.01, 0.9, 1_000
ADDED = 2.5e-5
"""The mean squared error of the authors' values against the exact ones."""
SAMPLERS = ("lktd", "sgld", "sghmc")
Values = npt.NDArray[np.float64]


def behaviour(env: IndoorEscape) -> Values:
    """Return the probabilities of the epsilon-greedy optimal policy, (cells, 4)."""
    legal = env._tables.legal
    even = legal / np.maximum(legal.sum(axis=1, keepdims=True), 1)
    return np.asarray((1 - EPSILON) * optimal_policy(env, "reference") + EPSILON * even)


def variance_of_returns(env: IndoorEscape) -> Values:
    """Return the variance of the discounted return from each cell and action, (cells, 4)."""
    tables, policy = env._tables, behaviour(env)
    q = np.nan_to_num(optimal_q(env, EPSILON, DISCOUNT, "reference").values)
    v = np.sum(policy * q, axis=1)
    cells = np.flatnonzero(tables.legal.any(axis=1))
    moves = np.zeros((len(policy), len(policy)))
    np.add.at(moves, (cells[:, None], tables.next_cell[cells]), policy[cells])
    scatter = np.sum(policy * (q - v[:, None]) ** 2, axis=1) + env.reward_sd**2
    variance = np.zeros(len(policy))
    inner = np.ix_(cells, cells)
    left = np.eye(len(cells)) - DISCOUNT**2 * moves[inner]
    variance[cells] = np.linalg.solve(left, scatter[cells])
    return np.asarray(env.reward_sd**2 + DISCOUNT**2 * variance[tables.next_cell])


def simulated_error(env: IndoorEscape, trials: int, seed: int = 0) -> dict[str, float]:
    """Simulate the returns of every cell and action; return the mean square errors of the means."""
    generator, tables = np.random.default_rng(seed), env._tables
    policy, truth = behaviour(env), optimal_q(env, EPSILON, DISCOUNT, "reference")
    goal = int(np.flatnonzero(tables.distance == 0)[0])
    cells, actions = np.nonzero(truth.legal)
    at = np.repeat(tables.next_cell[cells, actions], trials)
    total = env.reward_mean + env.reward_sd * generator.standard_normal(len(at))
    scale, going = 1.0, at != goal
    while going.any() and scale > 1e-6:
        scale *= DISCOUNT
        draws = generator.random((going.sum(), 1))
        chosen = (draws > np.cumsum(policy[at[going]], axis=1)[:, :-1]).sum(axis=1)
        reward = env.reward_mean + env.reward_sd * generator.standard_normal(len(chosen))
        total[going] += scale * reward
        at[going] = tables.next_cell[at[going], chosen]
        going &= at != goal
    squared = (total.reshape(-1, trials).mean(axis=1) - truth.values[cells, actions]) ** 2
    return {name: float(squared[actions == a].mean()) for a, name in enumerate(ACTION_NAMES)}


def study(trials: int) -> dict[str, Any]:
    """Return the error of a simulated truth, and every sampler's row with and without it."""
    env = IndoorEscape()
    variance, legal = variance_of_returns(env), optimal_q(env).legal
    independent = {
        name: float(variance[legal[:, a], a].mean() / TRIALS) for a, name in enumerate(ACTION_NAMES)
    }
    folder = RunFolder.open(RUN)
    run, printed = load_run(folder, read_manifest(folder)), paper.indoor_escape()
    rows = {
        row.id: {
            action: compared(row.trimmed(action, "mse"), ADDED, printed[row.id][action]["mse"])
            for action in LIKELY
        }
        | {"label": row.name}
        for row in run.rows
        if row.entry.algorithm in SAMPLERS
    }
    simulated = {
        name: error * trials / TRIALS for name, error in simulated_error(env, trials).items()
    }
    return {
        "trials": TRIALS,
        "added": ADDED,
        "independent": independent,
        "simulated": simulated,
        "rows": rows,
    }


def compared(ours: Mapping[str, Any], added: float, theirs: paper.Figure) -> dict[str, float]:
    """Return our error, also with what is added, the paper's, and the differences in their se."""
    se = math.hypot(ours["se"], theirs.se)
    with_added = ours["mean"] + added
    return {
        "ours": ours["mean"],
        "with": with_added,
        "paper": theirs.mean,
        "apart": (ours["mean"] - theirs.mean) / se,
        "apart_with": (with_added - theirs.mean) / se,
    }


def table(found: Mapping[str, Any]) -> str:
    """Return the table of all samplers."""
    head = ["row"]
    for action in LIKELY:
        head += [f"{action}: ours", "+ 2.5", "paper", "Δ/se", "Δ/se with it"]
    lines = [head, [":--", *["--:"] * (len(head) - 1)]]
    for row in found["rows"].values():
        cells = [row["label"]]
        for action in LIKELY:
            own = row[action]
            cells += [f"{1e5 * own[name]:.1f}" for name in ("ours", "with", "paper")]
            cells += [f"{own[name]:+.1f}" for name in ("apart", "apart_with")]
        lines.append(cells)
    independent = ", ".join(
        f"{1e5 * found['independent'][action]:.1f} for {action} (in one simulation "
        f"{1e5 * found['simulated'][action]:.1f})"
        for action in LIKELY
    )
    rows = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    return (
        f"{rows}\n\nMean squared errors times 10⁵. The authors' truth adds "
        f"{1e5 * found['added']:.1f}; means of {found['trials']:,} independent returns would add "
        f"{independent}."
    )


def draw(found: Mapping[str, Any]) -> Figure:
    """Draw the differences to the paper, with and without the simulation's error."""
    figure = Figure(figsize=(7.5, 3.6), layout="constrained")
    axes = figure.subplots(1, len(LIKELY), sharey=True)
    rows = list(found["rows"].values())
    for panel, action in zip(axes, LIKELY, strict=True):
        panel.axvspan(-2, 2, color="0.92")
        panel.axvline(0, color="0.6", linewidth=0.8)
        for name, marker, label in (
            ("apart", "o", "exact truth"),
            ("apart_with", "D", "plus the error of the authors' truth"),
        ):
            x = [row[action][name] for row in rows]
            panel.plot(x, range(len(rows)), marker, label=label, markersize=5)
        panel.set_title(f"action {action}")
    axes[0].set_yticks(range(len(rows)), [row["label"] for row in rows])
    axes[0].invert_yaxis()
    figure.supxlabel("ours minus the paper's MSE, in standard errors", fontsize="medium")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def main() -> None:
    """Run the study, or draw it again."""
    options = common.options(__doc__, f"results/studies/{NAME}")
    if options.redraw:
        found = common.read(options.out, NAME)
    else:
        found = study(TRIALS // 10 if options.quick else TRIALS)
    common.write(options.out, NAME, found, table(found), draw(found))


if __name__ == "__main__":
    main()
