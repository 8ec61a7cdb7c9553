"""The loggers that ``valuetrack train --logger`` opens, with their files in the run's folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from valuetrack.api.agent import AnyAgent
from valuetrack.api.loggers import (
    CSVLogger,
    JSONLinesLogger,
    Logger,
    TrackioLogger,
    WandbLogger,
    import_trackio,
    import_wandb,
)
from valuetrack.api.tensorboard import TensorBoardLogger, import_tensorboard
from valuetrack.commands.options import Train
from valuetrack.types import Json

BOARD = "tensorboard"
EXTRAS = {"tensorboard": import_tensorboard, "wandb": import_wandb, "trackio": import_trackio}


def chosen_loggers(given: Train, path: Path) -> list[str]:
    """Return the names of the loggers, each once; refuse those that could not be opened."""
    names = [logger.value for logger in given.logger or ()] + [BOARD] * given.tensorboard
    for name in names:
        if name in EXTRAS:
            EXTRAS[name]()
    board = path / BOARD
    if BOARD in names and board.exists() and not board.is_dir():
        raise ValueError(f"{board} is a file; TensorBoard's files need a folder of that name.")
    return list(dict.fromkeys(names))


@contextlib.contextmanager
def opened(names: list[str], path: Path, agent: AnyAgent) -> Iterator[list[Logger]]:
    """Open loggers, and close them at the end."""
    with contextlib.ExitStack() as held:
        loggers = []
        for name in names:
            loggers.append(_open(name, path, agent))
            held.callback(loggers[-1].close)
        yield loggers


def _open(name: str, path: Path, agent: AnyAgent) -> Logger:
    if name == "csv":
        return CSVLogger(path / "log.csv")
    if name == "jsonl":
        return JSONLinesLogger(path / "log.jsonl")
    if name == BOARD:
        return TensorBoardLogger(path / BOARD)
    if name == "wandb":
        return WandbLogger(name=path.name, dir=str(path), config=_config(agent))
    return TrackioLogger(name=path.name, config=_config(agent))


def _config(agent: AnyAgent) -> Json:
    """Return what a service shows of a run: the algorithm, where it learns, its options."""
    options = agent.options.model_dump(mode="json")
    return {"algorithm": agent.name, "env": agent.env.label, "seeds": len(agent.seeds), **options}
