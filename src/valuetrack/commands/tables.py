"""Tables that commands print at their end."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from valuetrack.training.evaluation import Episodes


def show_episodes(
    title: str, played: Episodes, diverged: Mapping[int, int], console: Console
) -> None:
    """Print what every seed expected and what it got, and over seeds the spread.

    ``diverged`` has, for each seed, the update at which it diverged, or -1.
    """
    numbers = ("seed", "mean return", "discounted", "value at the start")
    table = Table(
        *(Column(name, justify="right") for name in numbers),
        "note",
        title=escape(title),
        caption=f"Means of {played.returns.shape[1]} greedy episodes. The value is the largest Q "
        "where they begin; it is right if it agrees with the discounted return.",
    )
    shown = (played.returns, played.discounted_returns, played.start_values)
    means = np.stack([part.mean(axis=1) for part in shown], axis=1)
    for (seed, at), row in zip(diverged.items(), means, strict=True):
        note = "" if at < 0 else f"diverged at {at:,}"
        table.add_row(str(seed), *(f"{value:.2f}" for value in row), note)
    if len(means) > 1:
        errors = means.std(axis=0, ddof=1) / np.sqrt(len(means))
        cells = (f"{m:.2f} ± {e:.2f}" for m, e in zip(means.mean(axis=0), errors, strict=True))
        table.add_section()
        table.add_row("all", *cells, "mean and standard error")
    console.print(table)
