"""Rewards in other units: which rows must learn the same, and what their returns are divided by."""

from __future__ import annotations

from collections.abc import Iterator

from valuetrack.report.defaults.data import OutcomeRow, OutcomeRun

BASES = ("frozenlake", "cartpole")
"""The tasks whose rewards are changed."""


def comparable(run: OutcomeRun, base: str) -> Iterator[tuple[OutcomeRow, float]]:
    """Go through LKTD's rows whose task is the same but for units, the usual one first.

    A factor leaves a task as it is. A shift does not where episodes may end, but in CartPole a
    larger reward for every step still asks for as many steps as possible.
    """
    divisors = {"": 1.0, "-times-1000": 1000.0, "-over-1000": 0.001}
    if base == "cartpole":
        divisors["-plus-10"] = 11.0  # for each step, which pays 1 otherwise
    for name, divisor in divisors.items():
        if (row := run.row(f"{base}{name}-lktd")) is not None:
            yield row, divisor
