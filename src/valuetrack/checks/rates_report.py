"""The rates of weighted averages: run the settings, write tables, numbers and figures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from rich.console import Console

from valuetrack.checks import decreasing_steps as exact
from valuetrack.checks.decreasing_steps import Counts
from valuetrack.checks.rates import (
    POWERS,
    Curve,
    as_json,
    markdown,
    own_markdown,
    proof_markdown,
    settings,
)
from valuetrack.checks.report import PLOT_HINT, prepare_directory, progress, write
from valuetrack.checks.simulated_averages import simulate

LARGEST_Z = 5.0
"""Beyond how many standard errors chains contradict the recursion; of some 60 numbers."""


def run_rates(
    out: Path, *, chains: int = 2048, seed: int = 0, quick: bool = False, console: Console
) -> bool:
    """Compute and simulate all settings, write the results; return whether the chains agree."""
    prepare_directory(out)
    last, simulated, count = (2_000, 100, min(chains, 500)) if quick else (10**6, 3_000, chains)
    points = _checkpoints(last, simulated)
    rows = settings(POWERS[1:2] if quick else POWERS)
    seeds = np.random.SeedSequence(seed).generate_state(len(rows))
    console.print(f"Weighted averages under decreasing steps: {count} chains beside exact errors.")
    curves = []
    with progress(console, len(rows)) as advance:
        for setting, own_seed in zip(rows, seeds, strict=True):
            errors = exact.exact_errors(setting, points.tolist())
            ends = points[points <= simulated].tolist()
            chains_of = simulate(
                setting, chains=count, checkpoints=ends, seed=int(own_seed), errors=errors
            )
            curves.append(Curve(setting, errors, chains_of))
            advance()
    console.print(markdown(curves), highlight=False, markup=False)
    worst = max(abs(z) for curve in curves for z in curve.chains.z.values())
    good = worst <= LARGEST_Z
    verdict = f"Chains and recursion differ by {worst:.1f} standard errors at most."
    console.print(verdict, style="bold green" if good else "bold red")
    for path in write_all(out, curves, chains=count, seed=seed, console=console):
        console.print(f"Wrote {path}", highlight=False, markup=False, soft_wrap=True)
    return good


def _checkpoints(last: int, simulated: int) -> Counts:
    points = np.geomspace(1, last, 8 * round(np.log10(last)) + 1).round().astype(np.int64)
    return np.unique([*points.tolist(), simulated, last])


def write_all(
    out: Path, curves: list[Curve], *, chains: int, seed: int, console: Console
) -> list[Path]:
    """Write the results and, where matplotlib is installed, the figures; return the paths."""
    document = json.dumps(as_json(curves, chains=chains, seed=seed), ensure_ascii=False)
    tables = [markdown(curves), own_markdown(curves), proof_markdown(curves)]
    paths = [
        write(out / "rates.json", (document + "\n").encode()),
        write(out / "rates.md", ("\n\n".join(tables) + "\n").encode()),
    ]
    try:
        from valuetrack.checks import rates_figures  # noqa: PLC0415  (matplotlib is an extra)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        console.print(PLOT_HINT, style="yellow", markup=False)
        return paths
    return paths + [write(out / name, content) for name, content in rates_figures.render(curves)]
