"""``valuetrack train`` and ``valuetrack evaluate``: an agent for any environment."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from valuetrack.algorithms import ALGORITHMS, Algorithm, Progress, load

AGENT = "agent.vt"
HISTORY = "history.json"
SAVE_SECONDS = 60.0
"""How often a training in progress is saved."""


def train(
    algorithm: str,
    env: str,
    *,
    steps: int,
    seed: int,
    seeds: int,
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
) -> None:
    """Train, save, and say how good the agent is."""
    import_modules(imports)
    kind = algorithm_type(algorithm)
    observations = None if track is None else read_observations(track)
    folder = out or Path("runs") / f"{kind.name}-{env.replace('/', '-')}"
    if resume:
        agent = _go_on(folder, kind, env)
    else:
        agent = kind(
            env,
            seed=seed,
            seeds=seeds,
            env_options=assignments(env_options, "--env-set"),
            **assignments(options, "--set"),
        )
        _make_folder(folder)
    left = steps - agent.num_timesteps
    if left < 1:
        raise ValueError(
            f"The agent in {folder} has {agent.num_timesteps:,} steps already; ask for more."
        )
    recorder = _Recorder(folder, _history(folder) if resume else [])
    agent.learn(
        left,
        callback=recorder,
        progress_bar=True,
        evaluate_every=evaluate_every,
        evaluation_episodes=episodes,
        tensorboard=folder / "tensorboard" if tensorboard else None,
        track=observations,
        track_every=track_every,
    )
    recorder.save(agent)
    if observations is not None:
        tracking = agent.tracking()
        tracking.save(folder / "tracking.npz")
        tracking.plot(folder / "tracking.png")
        console.print(f"Tracked values: {folder / 'tracking.npz'} and {folder / 'tracking.png'}")
    _show(agent, agent.evaluate(episodes), console)
    console.print(f"Agent: {folder / AGENT}")


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
    agent = load(model, env)
    _show(agent, agent.evaluate(episodes, seed=seed), console)


def algorithm_type(name: str) -> type[Algorithm]:
    """Return the class of an algorithm."""
    kind = ALGORITHMS.get(name.lower())
    if kind is None:
        raise ValueError(f"There is no algorithm {name!r}; there are {', '.join(ALGORITHMS)}.")
    return kind


def import_modules(names: Sequence[str]) -> None:
    """Import modules, those in the working directory included, so that they register theirs."""
    here = os.getcwd()
    if names and here not in sys.path:
        sys.path.insert(0, here)
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ValueError(f"The module {name} cannot be imported: {error}.") from error


def assignments(pairs: Sequence[str], option: str) -> dict[str, Any]:
    """Turn ``key=value`` into a dictionary; values are JSON, or else plain text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"{option} takes key=value, for instance discount=0.9, not {pair!r}.")
        if key.strip() in found:
            raise ValueError(f"{option} sets {key.strip()} twice.")
        try:
            found[key.strip()] = json.loads(text)
        except json.JSONDecodeError:
            found[key.strip()] = text.strip()
    return found


def read_observations(path: Path) -> Any:
    """Read a batch of observations from an ``.npy`` file, which cannot hold code."""
    try:
        with open(path, "rb") as file:
            array = np.load(file, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(
            f"{path} is not an .npy file of numbers; write one with numpy.save."
        ) from error
    if not isinstance(array, np.ndarray) or array.ndim < 2 or not len(array):
        raise ValueError(f"{path} should hold an array of observations, one row each.")
    return array


class _Recorder:
    """Keeps the history of a training, and saves it and the agent from time to time."""

    def __init__(self, folder: Path, history: list[dict[str, Any]]) -> None:
        self.folder, self.history = folder, history
        self.saved = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        evaluation = progress.evaluation
        self.history.append(
            {
                "steps": progress.steps,
                "updates": progress.updates,
                "episode_return": _numbers(progress.episode_return),
                "loss": _numbers(progress.loss),
                "evaluation": None if evaluation is None else [_numbers(r) for r in evaluation],
            }
        )
        if time.monotonic() - self.saved > SAVE_SECONDS:
            self.save(progress.agent)

    def save(self, agent: Algorithm) -> None:
        from valuetrack.files import write_atomically  # noqa: PLC0415 - only here

        agent.save(self.folder / AGENT)
        text = json.dumps(self.history, indent=1) + "\n"
        write_atomically(self.folder / HISTORY, lambda file: file.write(text.encode()))
        self.saved = time.monotonic()


def _go_on(folder: Path, kind: type[Algorithm], env: str) -> Algorithm:
    agent = load(folder / AGENT)
    if not isinstance(agent, kind) or agent.place.id != env:
        raise ValueError(
            f"{folder / AGENT} holds {type(agent).__name__} in {agent.place.id}, "
            f"not {kind.__name__} in {env}."
        )
    return agent


def _make_folder(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(
            f"{folder} is there already; choose another folder with --out, or go on in it with "
            "--resume."
        )
    folder.mkdir(parents=True, exist_ok=True)


def _history(folder: Path) -> list[dict[str, Any]]:
    path = folder / HISTORY
    if not path.is_file():
        return []
    content = json.loads(path.read_text(encoding="utf-8"))
    return list(content)


def _numbers(values: Any) -> list[float | None]:
    """Return numbers for JSON, which knows no NaN."""
    return [float(value) if np.isfinite(value) else None for value in np.asarray(values).ravel()]


def _show(agent: Algorithm, returns: Any, console: Console) -> None:
    """Print the mean return of every seed, and over seeds its spread."""
    table = Table(
        title=f"{type(agent).__name__} in {agent.place.id}, {agent.num_timesteps:,} steps"
    )
    table.add_column("seed", justify="right")
    table.add_column(f"mean return of {returns.shape[1]} greedy episodes", justify="right")
    table.add_column("note")
    for seed, row in zip(agent.seeds, returns, strict=True):
        at = agent.diverged.get(seed)
        table.add_row(str(seed), f"{row.mean():.2f}", "" if at is None else f"diverged at {at:,}")
    if len(returns) > 1:
        means = returns.mean(axis=1)
        error = means.std(ddof=1) / np.sqrt(len(means))
        table.add_section()
        table.add_row("all", f"{means.mean():.2f} ± {error:.2f}", "mean and standard error")
    console.print(table)
