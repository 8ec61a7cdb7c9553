"""Where a training's numbers go while it runs: files, TensorBoard, Weights & Biases, trackio.

A logger is anything with ``log(step, values)`` and ``close()``::

    class Printer:
        def log(self, step, values):
            print(step, values["seed"], values["rollout/ep_rew_mean"])

        def close(self):
            pass


    agent.learn(100_000, logger=Printer())
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from valuetrack.io.atomic import write_atomically

if TYPE_CHECKING:
    from valuetrack.api.training import Progress

SEED = "seed"
STEP = "step"
StrPath = str | os.PathLike[str]
Values = Mapping[str, float]
"""Numbers by their names; NaN stands for one that is not known now."""


class Logger(Protocol):
    """Takes numbers as a training goes on, once per report and seed."""

    def log(self, step: int, values: Values) -> None:
        """Take the numbers of one seed, which ``values["seed"]`` names, after so many steps."""
        ...

    def close(self) -> None:
        """Write what is left, and take no more."""
        ...


def log_progress(loggers: Sequence[Logger], progress: Progress) -> None:
    """Give every seed's numbers to all loggers."""
    tracked = progress.agent.recently_tracked() if loggers else []
    for place, seed in enumerate(progress.agent.seeds if loggers else ()):
        played = progress.evaluation
        values = {
            SEED: seed,
            "rollout/ep_rew_mean": float(progress.episode_return[place]),
            "rollout/ep_len_mean": float(progress.episode_length[place]),
            "rollout/exploration_rate": progress.epsilon,
            "rollout/value_at_start": float(progress.value_at_start[place]),
            "rollout/discounted_return": float(progress.discounted_return[place]),
            "train/loss": float(progress.loss[place]),
            "eval/mean_reward": math.nan if played is None else float(played[place].mean()),
            "time/fps": progress.steps_per_second,
            **tracked[place],
        }
        for logger in loggers:
            logger.log(progress.steps, values)


class _FileLogger(Logger):
    """Lines in a file, each complete as soon as it is logged.

    A file that exists goes on: what it holds from the first step that is logged on is replaced, so
    that a training that was killed and resumed has every line once.
    """

    def __init__(self, path: StrPath) -> None:
        self.path = Path(path)
        self._is_new = True

    def log(self, step: int, values: Values) -> None:
        """Append a line."""
        if self._is_new:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            text = self._read()
            kept = self._begin(text, step, values)
            if kept != text:
                write_atomically(self.path, lambda file: file.write(kept.encode()))
            self._is_new = False
        with open(self.path, "a", encoding="utf-8", newline="") as file:
            file.write(self._line(step, values))

    def close(self) -> None:
        """Do nothing: every line is in the file already."""

    def _read(self) -> str:
        """Return the complete lines that exist."""
        try:
            text = self.path.read_bytes().decode()
        except FileNotFoundError:
            return ""
        except UnicodeDecodeError as error:
            raise self._foreign() from error
        return text

    @abstractmethod
    def _begin(self, text: str, step: int, values: Values) -> str:
        """Return what is kept of a file, with what stands before its first line."""

    @abstractmethod
    def _line(self, step: int, values: Values) -> str:
        """Return the numbers as a line."""

    def _foreign(self) -> ValueError:
        return ValueError(f"{self.path} is not a log of this kind; choose another file.")


class CSVLogger(_FileLogger):
    """A table as CSV: a column for each number, a row for each report and seed.

    The first row decides about the columns. Numbers that are not known are empty.

    Examples
    --------
    ::

        agent.learn(100_000, logger=CSVLogger("log.csv"))
    """

    _columns: tuple[str, ...] = ()

    def _begin(self, text: str, step: int, values: Values) -> str:
        self._columns = (STEP, *values)
        head, *rows = text.splitlines(keepends=True) or [""]
        if head and tuple(next(csv.reader([head]))) != self._columns:
            raise self._foreign()
        try:
            kept = [row for row in rows if row.endswith("\n") and int(row.split(",")[0]) < step]
        except ValueError as error:
            raise self._foreign() from error
        return _row(self._columns) + "".join(kept)

    def _line(self, step: int, values: Values) -> str:
        extra = [name for name in values if name not in self._columns]
        if extra:
            raise ValueError(
                f"{self.path} has no column {extra[0]!r}: the first row decides about them."
            )
        known = {STEP: step, **{n: value for n, value in values.items() if math.isfinite(value)}}
        return _row([str(known.get(name, "")) for name in self._columns])


class JSONLinesLogger(_FileLogger):
    """One JSON object per line and seed; numbers that are not known are ``null``.

    Examples
    --------
    ::

        agent.learn(100_000, logger=JSONLinesLogger("log.jsonl"))
    """

    def _begin(self, text: str, step: int, values: Values) -> str:
        lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
        try:
            return "".join(line for line in lines if json.loads(line)[STEP] < step)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise self._foreign() from error

    def _line(self, step: int, values: Values) -> str:
        known = {n: value if math.isfinite(value) else None for n, value in values.items()}
        return json.dumps({STEP: step, **known}) + "\n"


class _ServiceLogger(Logger):
    """A run of a service; names end with the seed, as in ``train/loss/seed-0``."""

    def __init__(self, name: str, begin: Callable[[], Any], cure: str) -> None:
        try:
            self._run = begin()
        except Exception as error:  # of its own kinds, about accounts and networks
            reason = " ".join(str(error).split()).rstrip(".")
            raise RuntimeError(f"{name} could not begin a run: {reason}; {cure}.") from error

    def log(self, step: int, values: Values) -> None:
        """Send what is finite."""
        end = f"/seed-{values[SEED]}" if SEED in values else ""
        known = {
            f"{name}{end}": value
            for name, value in values.items()
            if name != SEED and math.isfinite(value)
        }
        if known:
            self._run.log(known, step=step)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


class WandbLogger(_ServiceLogger):
    """A run of Weights & Biases (needs the extra ``wandb``).

    ``options`` are those of ``wandb.init``: project, name, config, mode and so on. Without an
    account, ``mode="offline"`` or ``WANDB_MODE=offline`` writes to the disk.
    """

    def __init__(self, **options: Any) -> None:
        wandb = import_wandb()
        given = {"project": "valuetrack", **options}
        cure = "log in with `wandb login`, or set WANDB_MODE=offline to write to the disk"
        super().__init__("Weights & Biases", lambda: wandb.init(**given), cure)


class TrackioLogger(_ServiceLogger):
    """A run of trackio (needs the extra ``trackio``), by default on this machine's disk.

    ``options`` are those of ``trackio.init``: project, name, config, space_id and so on.
    """

    def __init__(self, **options: Any) -> None:
        trackio = import_trackio()
        given = {"project": "valuetrack", "embed": False, "auto_log_cpu": False, **options}
        super().__init__("trackio", lambda: trackio.init(**given), "check its options")


def _row(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def import_wandb() -> Any:
    """Return Weights & Biases, or say how to install it."""
    try:
        import wandb  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise _missing("Weights & Biases", "wandb") from error
    return wandb


def import_trackio() -> Any:
    """Return trackio, or say how to install it."""
    try:
        import trackio  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise _missing("trackio", "trackio") from error
    return trackio


def _missing(what: str, extra: str) -> ImportError:
    return ImportError(f"{what} needs an extra: pip install 'valuetrack[{extra}]'.")
