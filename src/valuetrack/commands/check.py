"""``valuetrack check``: samplers beside their exact laws."""

from __future__ import annotations

from rich.console import Console

from valuetrack.checks import rates, report
from valuetrack.commands import FAILED
from valuetrack.commands.options import Check


def check(given: Check, console: Console) -> int:
    """Run all comparisons; the exit code says whether every sampler has its law."""
    run = rates.run_rates if given.rates else report.run_check
    passed = run(
        given.out, chains=given.chains, seed=given.seed, quick=given.quick, console=console
    )
    return 0 if passed else FAILED
