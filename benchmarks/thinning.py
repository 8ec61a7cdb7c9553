"""What thinning costs: intervals from one of every k samples beside those from all of them.

LKTD learns the indoor escape, several seeds at once, and the Q-values of all legal moves are
recorded at each of the last 3000 updates. From that record the posterior's mean and its 95 % width
are computed with all samples and with one of every k, as a pool with ``thinning=k`` holds them.

Run ``python benchmarks/thinning.py``, with ``--quick`` to see only that it works.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import valuetrack as vt
from valuetrack.envs.indoor_escape import IndoorEscape, observations, optimal_q

WINDOW = 3_000
FACTORS = (2, 3, 6, 12, 30, 100, 300)


def record(seeds: int, steps: int) -> np.ndarray[Any, Any]:
    """Train; return the values of legal moves at the last updates, (WINDOW, seeds, moves)."""
    env = IndoorEscape()
    agent = vt.LKTD(
        env,
        seeds=seeds,
        step_size=1e-5,
        pseudo_population=10_000,
        observation_sd=0.1,
        prior_sd=0.5,
        prior_narrow_sd=0.05,
        likelihood_weight=2.0,
        inner_power=0.9,
        form="sarsa",
        hidden=(32, 32),
        batch_size=100,
        replay_capacity=10_000,
        steps_per_update=10,
        learning_starts=1_000,
        discount=0.9,
        exploration_final=0.01,
        exploration_steps=steps // 10,
    )
    agent.learn(steps - 10 * WINDOW, progress_bar=True)
    agent.learn(10 * WINDOW, track=observations(env), progress_bar=True)
    return np.asarray(agent.tracking().samples[-WINDOW:, :, 0])[..., optimal_q(env).legal]


def spread(samples: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """Return the mean and the 95 % width over the samples."""
    low, high = np.quantile(samples, (0.025, 0.975), axis=0)
    return samples.mean(axis=0), high - low


def compare(samples: np.ndarray[Any, Any]) -> list[dict[str, float]]:
    """Hold every thinned pool against the whole one."""
    mean, width = spread(samples)
    sd = samples.std(axis=0)
    rows = []
    for factor in FACTORS:
        thin_mean, thin_width = spread(samples[factor - 1 :: factor])
        shift = np.sqrt(np.mean(((thin_mean - mean) / sd) ** 2, axis=1))
        change = np.mean(thin_width / width, axis=1) - 1
        deviation = np.sqrt(np.mean((thin_width / width - 1) ** 2, axis=1))
        rows.append(
            {
                "thinning": factor,
                "samples": WINDOW // factor,
                "mean_shift_in_sd": float(shift.mean()),
                "width_change": float(change.mean()),
                "width_deviation": float(deviation.mean()),
            }
        )
    return rows


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="a folder for thinning.json and thinning.md")
    parser.add_argument("--quick", action="store_true", help="two seeds, a short training")
    arguments = parser.parse_args()
    seeds, steps = (2, 50_000) if arguments.quick else (10, 300_000)
    rows = compare(record(seeds, steps))
    table = Table(title=f"One of every k of {WINDOW} samples, {seeds} seeds of {steps:,} steps")
    heads = ("k", "samples", "mean moves (sd)", "width changes", "width deviates")
    for head in heads:
        table.add_column(head, justify="right")
    cells = [
        (
            f"{row['thinning']}",
            f"{row['samples']}",
            f"{row['mean_shift_in_sd']:.4f}",
            f"{row['width_change']:+.2%}",
            f"{row['width_deviation']:.2%}",
        )
        for row in rows
    ]
    for line in cells:
        table.add_row(*line)
    Console().print(table)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        content = {"seeds": seeds, "steps": steps, "window": WINDOW, "rows": rows}
        (arguments.out / "thinning.json").write_text(json.dumps(content, indent=1) + "\n")
        ruler = "| " + " | ".join("--:" for _ in heads) + " |"
        lines = ["| " + " | ".join(line) + " |" for line in [heads, *cells]]
        lines.insert(1, ruler)
        (arguments.out / "thinning.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
