"""``valuetrack check``: samplers beside their exact laws."""

from __future__ import annotations

from rich.console import Console

from valuetrack.checks import report
from valuetrack.commands import FAILED
from valuetrack.commands.options import Check


def check(given: Check, console: Console) -> int:
    """Run all comparisons; the exit code says whether every sampler has its law."""
    passed = report.run_check(
        given.out, chains=given.chains, seed=given.seed, quick=given.quick, console=console
    )
    return 0 if passed else FAILED
