"""``valuetrack train`` on several machines: a unit for each seed, on the chosen engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import typer
from rich.console import Console

from valuetrack.api.agent import AnyAgent
from valuetrack.commands import FAILED, INTERRUPTED
from valuetrack.commands.options import Train
from valuetrack.commands.reproduce import run_units
from valuetrack.commands.session import say, stoppable
from valuetrack.commands.tables import show_episodes
from valuetrack.experiments import run as runs
from valuetrack.experiments.engines import EngineChoice
from valuetrack.experiments.measure.training import AGENT
from valuetrack.experiments.spec import Experiment, Row
from valuetrack.io.run_folder import RunFolder
from valuetrack.training.evaluation import Episodes

NAME = "train-units"
LOCAL_ONLY = ("track", "track_intervals_every", "logger", "tensorboard", "backend")
"""What only a training in this process can do."""


def train_units(
    agent: AnyAgent, given: Train, path: Path, choice: EngineChoice, console: Console
) -> int:
    """Train every seed as a unit of its own, and say how good the agents are.

    ``agent`` is an example of what is trained.
    """
    for name in LOCAL_ONLY:
        if getattr(given, name, None):
            option = name.replace("_", "-")
            raise ValueError(f"--{option} is for --engine local; leave out one of the two.")
    request = _request(agent, given)
    folder = runs.open_or_create(path, request, resume=given.resume)
    with stoppable() as stop:
        finished = run_units(folder, request.rows, stop, console, choice)
    if not finished:
        say(console, f"Stopped. The same command with --resume goes on; the run is in {path}.")
        return INTERRUPTED
    title = f"{type(agent).__name__} in {agent.env.label}, {given.steps:,} steps"
    show_episodes(title, *_outcome(folder), console)
    say(console, f"Agents: {path / 'units' / agent.name / '*' / AGENT}")
    return _say_if_diverged(folder)


def _request(agent: AnyAgent, given: Train) -> runs.Request:
    """Return the training as an experiment of one row, with a unit for each seed."""
    row = Row(
        id=agent.name,
        label=agent.label,
        algorithm=agent.name,
        env=agent.env.label,
        env_options=agent.env.saved[1],
        steps=given.steps,
        options=agent.options.model_dump(mode="json"),
    )
    measure = {
        "kind": "training",
        "evaluate_every": given.evaluate_every,
        "episodes": given.episodes,
    }
    spec = Experiment(name=NAME, measure=measure, seeds_per_unit=1, rows=(row,))
    return runs.Request(spec, "none", (row.id,), given.seed or 0, given.seeds or 1)


def _outcome(folder: RunFolder) -> tuple[Episodes, dict[int, int]]:
    """Return the last episodes of all seeds, and the update at which each diverged, or -1."""
    played, seeds = folder.table("episodes"), folder.table("seeds")
    count = len(seeds["seed"])
    names = ("return", "discounted_return", "start_value")
    parts = (np.asarray(played[name]).reshape(count, -1) for name in names)
    diverged = dict(zip(seeds["seed"].tolist(), seeds["diverged_at"].tolist(), strict=True))
    return Episodes(*parts), diverged


def _say_if_diverged(folder: RunFolder) -> int:
    seeds = folder.table("seeds")
    lost = [
        f"seed {seed} at update {at:,}"
        for seed, at in zip(seeds["seed"], seeds["diverged_at"], strict=True)
        if at >= 0
    ]
    if lost:
        typer.echo(f"Diverged: {', '.join(lost)}; use a smaller step size.", err=True)
    return FAILED if lost else 0
