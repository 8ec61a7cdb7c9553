"""``valuetrack calibrate``: what a saved agent's own episodes teach about its values."""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from valuetrack.api import calibration
from valuetrack.api.agent import AnyAgent
from valuetrack.api.calibration import Calibration, Checked
from valuetrack.commands.arguments import import_modules
from valuetrack.commands.options import Calibrate
from valuetrack.commands.session import AGENT, say
from valuetrack.commands.train import lock_existing
from valuetrack.io.atomic import write_atomically
from valuetrack.registry import load
from valuetrack.report.reliability import reliability_diagram
from valuetrack.values.conformal import Line

LEVELS = tuple(np.round(np.arange(0.05, 1.0, 0.05), 2).tolist())
"""The levels in the figure."""
SHOWN = (0.5, 0.8, 0.9, 0.95)
"""Those in the table."""
FIGURE = ".calibration.png"
"""The ending of the figure's name, in place of the model's."""


def calibrate(given: Calibrate, console: Console) -> None:
    """Calibrate, save, print what was learned, and draw how reliable it is."""
    import_modules(given.import_)
    if given.env is not None and given.out is None:
        raise ValueError(
            "In another environment the agent would be saved as one of that; name a new file with "
            "--out."
        )
    with contextlib.ExitStack() as held:
        model = given.model
        if model.is_dir():
            lock_existing(model, held)  # before the agent is read, which a training may replace
            model = model / AGENT
        agent = load(model, given.env)
        with contextlib.closing(agent):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", RuntimeWarning)
                agent.calibrate(given.episodes, seed=given.seed)
            for warning in caught:
                say(console, str(warning.message))
            path = model if given.out is None else given.out
            agent.save(path)
            checked = calibration.check(agent, LEVELS, given.episodes, given.seed)
            _show(agent, checked, given.episodes, console)
            say(console, f"Calibrated agent: {path}")
            _draw(agent, checked, path, console)


def _draw(agent: AnyAgent, checked: list[Checked | None], path: Path, console: Console) -> None:
    try:
        import matplotlib  # noqa: F401, PLC0415 - an extra
    except ImportError:
        say(console, "No figure, as Matplotlib is missing: pip install 'valuetrack[plot]'.")
        return
    members = agent.calibration.members
    title = f"{type(agent).__name__} in {agent.env.label}"
    png = reliability_diagram(title, agent.seeds, members, checked, LEVELS)
    figure = path.with_suffix(FIGURE)
    write_atomically(figure, lambda file: file.write(png))
    say(console, f"Reliability diagram: {figure}")


def _show(agent: AnyAgent, checked: list[Checked | None], episodes: int, console: Console) -> None:
    """Print a row per seed: the correction, the factor, and what fresh episodes say."""
    levels = [f"{level:.0%}" for level in SHOWN]
    numbers = ("seed", "bias", "after", "factor", *levels)
    columns = [Column(name, justify="right") for name in numbers]
    columns.insert(3, Column("correction"))
    table = Table(
        *columns,
        title=escape(f"{type(agent).__name__} in {agent.env.label}, {episodes} episodes"),
        caption="Bias: mean of return minus value in as many fresh episodes, before and after the "
        "correction. Factor: of the width of 95 % intervals for the value. Last: how many of the "
        "fresh returns are in their intervals, by level.",
    )
    rows = zip(agent.seeds, agent.calibration.members, checked, strict=True)
    for seed, learned, fresh in rows:
        table.add_row(str(seed), *_cells(learned, fresh))
    console.print(table)


def _cells(learned: Calibration | None, fresh: Checked | None) -> list[str]:
    if learned is None:
        return ["", "", "not calibrated"]
    agreement = learned.agreement
    factor = f"{agreement.factor(0.95):.2f}" if len(agreement.distances) else "unknown"
    if fresh is None:
        return ["", "", _correction(learned.bias), factor]
    before = float(np.mean(fresh.returns - fresh.values))
    after = float(np.mean(fresh.returns - fresh.values - learned.bias(fresh.values)))
    shares = (fresh.covered[LEVELS.index(level)].mean() for level in SHOWN)
    covered = ["-" if np.isnan(share) else f"{share:.0%}" for share in shares]
    return [f"{before:+.3g}", f"{after:+.3g}", _correction(learned.bias), factor, *covered]


def _correction(bias: Line) -> str:
    if not bias.intercept and not bias.slope:
        return "off"
    line = f" {bias.slope:+.3g} v" if bias.slope else ""
    return f"{bias.intercept:+.3g}{line}"
