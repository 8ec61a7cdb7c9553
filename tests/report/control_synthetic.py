"""Run folders of the control tasks with made-up numbers, written through the real store."""

from pathlib import Path

import numpy as np

from tests.report import folders
from tests.report.folders import spec_row
from valuetrack.io.run_folder import RunFolder

POINTS = 100
LABELS = {"lktd": "LKTD", "dqn": "DQN", "qrdqn": "QR-DQN"}
STEPS = {
    "CartPole-v1": 100_000,
    "MountainCar-v0": 200_000,
    "LunarLander-v3": 200_000,
    "Acrobot-v1": 100_000,
}
RANGES = {
    "CartPole-v1": (20.0, 490.0),
    "MountainCar-v0": (-200.0, -105.0),
    "LunarLander-v3": (-250.0, 210.0),
    "Acrobot-v1": (-500.0, -85.0),
}
PACE = {"lktd": 0.25, "dqn": 0.45, "qrdqn": 0.35}

SPEC_ROWS = [
    spec_row(f"{env.partition('-')[0].lower()}-{algorithm}", algorithm, env, steps)
    for env, steps in STEPS.items()
    for algorithm in LABELS
]
ROWS = {row["id"]: row | {"label": LABELS[row["algorithm"]]} for row in SPEC_ROWS}
MEASURE = {"kind": "control", "points": POINTS, "episodes": 5}


def create(path: Path, rows=tuple(ROWS), seeds=4, changes=None) -> RunFolder:
    """Make a run without units."""
    chosen = [ROWS[row] for row in rows]
    return folders.create(path, "classic-control", MEASURE, SPEC_ROWS, chosen, seeds, changes)


def fill(
    folder: RunFolder, row: str, seeds, diverged=None, changes=None, level=None, without=()
) -> dict:
    """Finish a unit of a row and return its tables.

    ``diverged`` maps a seed to its update; such a seed has no best model. ``changes`` maps a
    seed to columns of its points that replace the made-up ones. ``level`` maps a seed to the
    return of all its episodes. ``without`` names columns of the points that are not there.
    """
    diverged = diverged or {}
    parts = []
    for seed in seeds:
        part = _points(row, seed, seed in diverged)
        if level is not None:
            for name in ("training_return", "evaluation_return", "best_return"):
                part[name] = np.where(np.isnan(part[name]), np.nan, level[seed])
        parts.append(part | (changes or {}).get(seed, {}))
    tables = {
        "points": {
            name: np.concatenate([part[name] for part in parts])
            for name in parts[0]
            if name not in without
        },
        "seeds": {
            "row": np.array([row] * len(seeds)),
            "seed": np.array(seeds),
            "diverged_at": np.array([diverged.get(seed, -1) for seed in seeds]),
            "best_return": np.array([part["best_return"][-1] for part in parts]),
            "wall_seconds": np.array([60.0 * (1 + seed) for seed in seeds]),
        },
    }
    folder.finish_unit(row, f"seeds-{seeds[0]}", tables, {"seeds": list(seeds)})
    return tables


def _points(row, seed, broken):
    """Make a noisy rise from the task's worst to its best, with points where no episode ended."""
    entry = ROWS[row]
    low, high = RANGES[entry["env"]]
    rng = np.random.default_rng([seed, sum(map(ord, row))])
    place = np.arange(1, POINTS + 1)
    middle = PACE[entry["algorithm"]] * np.exp(0.25 * rng.normal())
    rise = 1 / (1 + np.exp(-12 * (place / POINTS - middle)))
    top = high - 0.15 * (high - low) * abs(rng.normal())
    noise = 0.06 * (high - low) * rng.normal(size=(2, POINTS))
    evaluation = np.clip(low + (top - low) * rise + noise[0], low, max(high, 500 * (high > 300)))
    episodes = rng.integers(0, 6, POINTS)
    training = np.where(episodes > 0, low + 0.9 * (top - low) * rise + noise[1], np.nan)
    return {
        "row": np.array([row] * POINTS),
        "seed": np.full(POINTS, seed),
        "point": place,
        "step": place * (entry["steps"] // POINTS),
        "training_return": training,
        "training_episodes": episodes,
        "evaluation_return": evaluation,
        "discounted_return": 0.2 * evaluation,
        "start_value": 0.2 * evaluation + seed + noise[1],
        "best_return": np.full(POINTS, np.nan) if broken else np.maximum.accumulate(evaluation),
        "diverged": np.full(POINTS, broken),
    }
