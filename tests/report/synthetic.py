"""Run folders with made-up numbers, written through the real store."""

from pathlib import Path

import numpy as np

from tests.report import folders
from tests.report.folders import spec_row
from valuetrack.envs.indoor_escape import IndoorEscape, optimal_policy_probabilities, optimal_q
from valuetrack.io.run_folder import RunFolder
from valuetrack.report.indoor_escape import paper

ACTIONS = ("E", "N", "W", "S")
LEVELS = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
POPULATIONS = (2500, 5000, 10000)
LABELS = {"lktd": "LKTD", "sgld": "SGLD", "sghmc": "SGHMC"}
PLAIN = {"dqn": "DQN", "bootdqn": "BootDQN", "qrdqn": "QR-DQN", "kova": "KOVA"}

ENV = "valuetrack/IndoorEscape-v0"
GRID = {"width": 10, "height": 10, "start": [0, 0]}
MEASURE = {"kind": "values", "pool_size": 3000, "level": 0.95, "ties": "reference"}

SIZES = {f"{name}-{size}": (name, size) for name in LABELS for size in POPULATIONS}
SPEC_ROWS = [
    spec_row(id, name, ENV, paper.STEPS, {"step_size": 1e-5, "pseudo_population": size}, GRID)
    for id, (name, size) in SIZES.items()
]
SPEC_ROWS += [
    spec_row(name, name, ENV, paper.STEPS, {"learning_rate": 1e-3}, GRID) for name in PLAIN
]
ROWS = {row["id"]: row | {"label": (LABELS | PLAIN)[row["algorithm"]]} for row in SPEC_ROWS}


def create(path: Path, rows=tuple(ROWS), seeds=4, changes=None, steps=paper.STEPS) -> RunFolder:
    """Make a run without units."""
    chosen = [ROWS[row] | {"steps": steps} for row in rows]
    return folders.create(path, "indoor-escape", MEASURE, SPEC_ROWS, chosen, seeds, changes)


def fill(
    folder: RunFolder, row: str, seeds, mse=None, diverged=None, steps=1_000_000, policy=None
) -> None:
    """Finish a unit of a row.

    ``mse`` maps (seed, action) to the five final values; without it they are drawn around the
    paper's figures. ``diverged`` maps a seed to its update; all its numbers are NaN. ``policy``
    maps a seed to the probability of N wherever E and N are both optimal.
    """
    diverged = diverged or {}
    parts = [_metrics(row, seed, mse, seed in diverged, steps) for seed in seeds]
    tables = {
        "metrics": _join(parts),
        "seeds": {
            "row": np.array([row] * len(seeds)),
            "seed": np.array(seeds),
            "diverged_at": np.array([diverged.get(seed, -1) for seed in seeds]),
            "wall_seconds": np.full(len(seeds), 10.0),
        },
        "calibration": _join([_calibration(row, seed, seed in diverged) for seed in seeds]),
        "policy": _join([_policy(row, seed, policy) for seed in seeds]),
    }
    folder.finish_unit(row, f"seeds-{seeds[0]}", tables, {"seeds": list(seeds)})


def timing() -> dict:
    """Return times that are a tenth of the paper's."""
    return {
        "machine": {"cpu": "a chip"},
        "rows": [
            {
                "algorithm": name,
                "hidden": list(hidden),
                "batch_size": batch,
                "inner_iterations": 5 if name in LABELS else 1,
                "ms_per_update": time.ms_per_update / 10,
                "ms_per_iteration": time.ms_per_iteration / 10,
                "low": time.ms_per_update / 11,
                "high": time.ms_per_update / 9,
            }
            for (name, hidden, batch), time in paper.compute_time().items()
        ],
    }


def _metrics(row, seed, mse, broken, steps):
    rng = np.random.default_rng([seed, sum(map(ord, row))])
    windows = 20
    ends = np.linspace(steps / windows, steps, windows).astype(int)
    parts = []
    for action in ACTIONS:
        figures = paper.all_actions()[row][action]
        spread = 1.0 if row in PLAIN else 0.4
        level = figures["mse"].mean * np.exp(spread * rng.normal() - spread**2 / 2)
        errors = level * np.exp(0.3 * rng.normal(size=windows)) * (1 + 200 * np.exp(-ends / 9e4))
        if mse is not None:
            errors[-5:] = mse[seed, action]
        near = figures["coverage"].mean
        cover = np.clip(near + (0.15 if row in PLAIN else 0.01) * rng.normal(size=windows), 0, 1)
        part = {
            "row": np.array([row] * windows),
            "seed": np.full(windows, seed),
            "step": ends,
            "action": np.array([action] * windows),
            "mse": errors,
            "coverage": cover,
            "credible_coverage": np.clip(cover + 0.04, 0, 1),
            "width": figures["width"].mean * (1 + 0.08 * rng.normal(size=windows)),
            "legal_width": 0.9 * figures["width"].mean * np.ones(windows),
            "final": np.arange(windows) >= windows - 5,
            "evaluations": np.full(windows, 100),
            "training_return": np.where(ends < steps, -18.5, np.nan),
        }
        for metric in ("mse", "coverage", "credible_coverage", "width", "legal_width"):
            part[metric] = np.where(broken, np.nan, part[metric])
        parts.append(part)
    return _join(parts)


def _calibration(row, seed, broken):
    parts = []
    for action in ACTIONS:
        near = paper.all_actions()[row][action]["coverage"].mean
        cover = np.clip(LEVELS ** (np.log(near) / np.log(0.95)), 0, 1)
        parts.append(
            {
                "row": np.array([row] * len(LEVELS)),
                "seed": np.full(len(LEVELS), seed),
                "action": np.array([action] * len(LEVELS)),
                "level": LEVELS,
                "coverage": np.where(broken, np.nan, cover),
                "credible_coverage": np.where(broken, np.nan, cover**0.5),
            }
        )
    return _join(parts)


def _policy(row, seed, policy):
    """Spread the samplers' policies over both ways; give the others one way in most cells."""
    env = IndoorEscape()
    rng = np.random.default_rng([seed, 7])
    probabilities = optimal_policy_probabilities(env)
    tied = (probabilities == 0.5).any(axis=1)
    draws = rng.beta(3, 3, tied.sum()) if row not in PLAIN else rng.beta(0.06, 0.06, tied.sum())
    if policy is not None:
        draws = np.full(tied.sum(), 1 - policy[seed])
    probabilities[tied] = np.stack([draws, 1 - draws, 0 * draws, 0 * draws], axis=1)
    cells, actions = np.nonzero(optimal_q(env).legal)
    return {
        "row": np.array([row] * len(cells)),
        "seed": np.full(len(cells), seed),
        "cell": cells,
        "action": np.array(ACTIONS)[actions],
        "probability": probabilities[cells, actions],
    }


def _join(parts):
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
