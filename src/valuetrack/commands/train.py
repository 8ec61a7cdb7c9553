"""``valuetrack train`` and ``valuetrack evaluate``: an agent for any environment."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from valuetrack.api.agent import Agent
from valuetrack.api.options import parse
from valuetrack.api.training import REPORTS, show_progress
from valuetrack.commands.arguments import assignments, import_modules, read_observations
from valuetrack.commands.session import (
    AGENT,
    Recorder,
    Tracked,
    divergence_told_later,
    save,
    stoppable,
)
from valuetrack.envs.gym.guards import EnvironmentFailedError
from valuetrack.experiments import provenance
from valuetrack.experiments.runner import Unit
from valuetrack.io.manifest import FORMAT
from valuetrack.io.run_folder import MANIFEST, RunFolder, StoreError
from valuetrack.registry import agent_type, load
from valuetrack.training.evaluation import Episodes

BOARD = "tensorboard"


class Choices(NamedTuple):
    """What a training keeps for life; ``None``, or left out, where nothing was said."""

    seed: int | None
    seeds: int | None
    backend: str | None
    env_options: dict[str, Any]
    options: dict[str, Any]


def train(
    algorithm: str,
    env: str,
    *,
    steps: int,
    seed: int | None,
    seeds: int | None,
    backend: str | None,
    options: Sequence[str],
    env_options: Sequence[str],
    imports: Sequence[str],
    out: Path | None,
    resume: bool,
    evaluate_every: int | None,
    episodes: int,
    track: Path | None,
    track_every: int,
    tensorboard: bool,
    console: Console,
) -> bool:
    """Train, save, and say how good the agent is; return False if a seed diverged."""
    import_modules(imports)
    kind = agent_type(algorithm)
    observations = None if track is None else read_observations(track)
    choices = Choices(
        seed, seeds, backend, assignments(env_options, "--env-set"), assignments(options, "--set")
    )
    path = out or Path("runs") / f"{kind.name}-{env.replace('/', '-')}"

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    with contextlib.ExitStack() as held:
        _lock_existing(path, held)  # before an agent is read that another process may replace
        agent, resumes = _make_agent(path, kind, env, choices, resume=resume)
        left = steps - agent.num_timesteps
        if left < 1:
            say(f"The training in {path} is finished: the agent has {agent.num_timesteps:,} steps.")
            return say_if_diverged(agent)
        tracked = None
        if track is not None:
            tracked = Tracked(agent, path, observations, track, resume=resumes)
        board = _board(path) if tensorboard else None
        unit = Unit(kind.name, agent.seeds[0], len(agent.seeds))
        folder = _open_folder(path, _manifest(agent, steps, unit), held)
        recorder = Recorder(agent, folder, unit, tracked, say)
        schedule = {
            "report_every": -(-steps // REPORTS),
            "evaluate_every": evaluate_every,
            "evaluation_episodes": episodes,
            "tensorboard": board,
            "track": observations,
            "track_every": track_every,
        }
        _learn(agent, left, recorder, schedule, console)
    if tracked is not None:
        tracked.show(say)
    _show(agent, agent.play(episodes), console)
    say(f"Agent: {path / AGENT}")
    return say_if_diverged(agent)


def _lock_existing(path: Path, held: contextlib.ExitStack) -> None:
    """Keep other processes from training in a folder that exists."""
    if not (path / MANIFEST).exists():
        return
    folder = RunFolder.open(path)
    manifest = folder.manifest()
    if manifest["experiment"] != "train":
        raise StoreError(f"{path} holds an experiment; choose another folder with --out.")
    held.enter_context(folder.lock(row["id"] for row in manifest["rows"]))


def _make_agent(
    path: Path, kind: type[Agent[Any]], env: str, choices: Choices, *, resume: bool
) -> tuple[Agent[Any], bool]:
    """Return a new agent or the saved one, and whether it is the saved one."""
    is_saved, is_begun = (path / AGENT).exists(), (path / MANIFEST).exists()
    if is_saved and not resume:
        raise ValueError(
            f"{path} is there already; choose another folder with --out, or go on in it with "
            "--resume."
        )
    resumes = resume and (is_saved or not is_begun)  # what was begun may never have been saved
    with stoppable() as stop:  # while JAX compiles, an interrupt would end in a crash
        agent = (_go_on if resumes else _begin)(path, kind, env, choices)
    if stop.asked:
        raise KeyboardInterrupt("Interrupted before the first step; nothing is saved.")
    return agent, resumes


def _board(path: Path) -> Path:
    """Return the folder for TensorBoard's files."""
    board = path / BOARD
    if board.exists() and not board.is_dir():
        raise ValueError(f"{board} is a file; TensorBoard's files need a folder of that name.")
    return board


def _learn(
    agent: Agent[Any], left: int, recorder: Recorder, schedule: dict[str, Any], console: Console
) -> None:
    """Train to the end or until a stop, and save."""
    with stoppable() as stop:
        bar = show_progress(agent, left, from_start=True, console=console)
        with bar as advance, divergence_told_later():

            def heartbeat() -> bool:
                advance()
                recorder.save_in_time()
                return not stop.asked

            try:
                agent.learn(left, callback=recorder, heartbeat=heartbeat, **schedule)
            except KeyboardInterrupt:
                stop.asked = True
            except EnvironmentFailedError:
                recorder.save()  # what was learned until then
                raise
            stop.is_deaf = True  # from here on all is saved, which must not be cut off
        save(recorder, stop)


def _manifest(agent: Agent[Any], steps: int, unit: Unit) -> dict[str, Any]:
    """Return what the run's folder says is trained."""
    row = {
        "id": unit.row,
        "label": agent.label,
        "algorithm": agent.name,
        "env": agent.env.label,
        "env_options": agent.env.saved[1],
        "steps": steps,
        "options": agent.options.model_dump(mode="json"),
    }
    spec = {
        "name": "train",
        "measure": {"kind": "training"},
        "seeds_per_unit": unit.seeds,
        "rows": [row],
        "quick": None,
    }
    source = provenance.commit()
    return {
        "format": FORMAT,
        "experiment": "train",
        "preset": "none",
        "spec": spec,
        "spec_hash": "",
        "seeds": {"first": unit.first_seed, "count": unit.seeds},
        "rows": [{**row, "units": [[unit.first_seed, unit.seeds]], "commit": source}],
        **provenance.describe(source),
    }


def _open_folder(path: Path, manifest: dict[str, Any], held: contextlib.ExitStack) -> RunFolder:
    """Return the run's folder, made new and locked, or the one that is locked already."""
    if not (path / MANIFEST).exists():
        folder = RunFolder.create(path, manifest)
        held.enter_context(folder.lock(row["id"] for row in manifest["rows"]))
        return folder
    folder = RunFolder.open(path)
    begun, row = folder.manifest()["rows"], manifest["rows"][0]
    if [entry["id"] for entry in begun] != [row["id"]]:
        raise StoreError(
            f"{path} holds a training of {begun[0]['label']}; choose another folder with --out."
        )
    with folder.changing():
        folder.write_json(MANIFEST, manifest)
    return folder


def evaluate(
    model: Path,
    *,
    episodes: int,
    seed: int,
    env: str | None,
    imports: Sequence[str],
    console: Console,
) -> None:
    """Play episodes with a saved agent."""
    import_modules(imports)
    agent = load(model / AGENT if model.is_dir() else model, env)
    _show(agent, agent.play(episodes, seed=seed), console)


def _begin(folder: Path, kind: type[Agent[Any]], env: str, choices: Choices) -> Agent[Any]:
    # The class has arguments beside its options, which --set does not reach.
    parse(kind.options_type, choices.options, kind.__name__)
    try:
        return kind(
            env,
            seed=choices.seed or 0,
            seeds=1 if choices.seeds is None else choices.seeds,
            backend=choices.backend or "auto",  # type: ignore[arg-type]  # the class checks it
            env_options=choices.env_options,
            **choices.options,
        )
    except ValueError as error:  # whose sentence is written for Python
        raise ValueError(str(error).replace('backend="host"', "--backend host")) from error


def _go_on(folder: Path, kind: type[Agent[Any]], env: str, choices: Choices) -> Agent[Any]:
    agent = load(folder / AGENT)
    if not isinstance(agent, kind) or agent.env.label != env:
        raise ValueError(
            f"{folder / AGENT} holds {type(agent).__name__} in {agent.env.label}, "
            f"not {kind.__name__} in {env}."
        )
    for option, saved, given in _saved_and_given(agent, choices):
        if saved != given:
            raise ValueError(
                f"{option} is {_text(given)}, but the agent in {folder} was made with "
                f"{_text(saved)}; leave it out to go on, or begin anew with another --out."
            )
    return agent


def _saved_and_given(agent: Agent[Any], choices: Choices) -> Iterator[tuple[str, Any, Any]]:
    """Yield what was said about the agent: the option, the saved value, the given one."""
    if choices.seed is not None:
        yield "--seed", agent.seeds[0], choices.seed
    if choices.seeds is not None:
        yield "--seeds", len(agent.seeds), choices.seeds
    if choices.backend not in (None, "auto"):
        yield "--backend", agent.backend, choices.backend
    given = parse(type(agent).options_type, choices.options, type(agent).__name__)
    for name in choices.options:
        yield f"--set {name}", getattr(agent.options, name), getattr(given, name)
    for name, value in choices.env_options.items():
        yield f"--env-set {name}", agent.env.options.get(name, "its default"), value


def _text(value: Any) -> str:
    """Write a value as the command line takes it."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def say_if_diverged(agent: Agent[Any]) -> bool:
    """Return whether all seeds are whole; name those that are not."""
    if not agent.diverged:
        return True
    told = ", ".join(f"seed {seed} at update {at:,}" for seed, at in agent.diverged.items())
    name = "step_size" if hasattr(agent.options, "step_size") else "learning_rate"
    rate = getattr(agent.options, name)
    used = f"{rate:g}" if isinstance(rate, int | float) else "that of this schedule"
    typer.echo(
        f"{type(agent).__name__} diverged: {told}; its values are NaN from there on, so use a "
        f"smaller {name} than {used}.",
        err=True,
    )
    return False


def _show(agent: Agent[Any], played: Episodes, console: Console) -> None:
    """Print what every seed expected and what it got, and over seeds the spread."""
    table = Table(
        title=escape(f"{type(agent).__name__} in {agent.env.label}, {agent.num_timesteps:,} steps"),
        caption=f"Means of {played.returns.shape[1]} greedy episodes. The value is the largest Q "
        "where they begin; it is right if it agrees with the discounted return.",
    )
    for name in ("seed", "mean return", "discounted", "value at the start"):
        table.add_column(name, justify="right")
    table.add_column("note")
    means = np.stack([part.mean(axis=1) for part in played], axis=1)
    for seed, row in zip(agent.seeds, means, strict=True):
        at = agent.diverged.get(seed)
        note = "" if at is None else f"diverged at {at:,}"
        table.add_row(str(seed), *(f"{value:.2f}" for value in row), note)
    if len(means) > 1:
        errors = means.std(axis=0, ddof=1) / np.sqrt(len(means))
        cells = (f"{m:.2f} ± {e:.2f}" for m, e in zip(means.mean(axis=0), errors, strict=True))
        table.add_section()
        table.add_row("all", *cells, "mean and standard error")
    console.print(table)
