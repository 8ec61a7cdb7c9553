"""The study behind a search: Optuna's journal in the run folder, and which process has which trial.

A process holds the lock of its trial's row. A trial that runs and whose lock is free belongs to a
process that was killed: it is marked as failed, and another with the same settings takes over its
row, and with it the checkpoint. All that is decided under the lock of the run folder.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from valuetrack.experiments.tuning.search import Search, add_rows, read_search
from valuetrack.io.errors import StoreError
from valuetrack.io.run_folder import RunFolder
from valuetrack.types import Json

try:
    import fcntl
except ImportError:  # Windows, where Optuna's own lock serves
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from optuna import Study
    from optuna.pruners import BasePruner
    from optuna.trial import FrozenTrial, Trial

JOURNAL = "study.jsonl"
TRIALS = "trials.json"
ROW, RETRIES, ERROR, DIVERGED = "row", "retries", "error", "diverged"
"""What is noted of a trial: its row, whom it retries, why it failed, and that a seed diverged."""
STARTUP_TRIALS = 5
"""How many trials the median is of, at least, before one is stopped for being below."""
MOST_ERRORS = 5


def import_optuna() -> Any:
    """Return Optuna, or say how to install it."""
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise ImportError(
            'A search needs Optuna: pip install "valuetrack[hpo]", then run it again.'
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class Claimed(NamedTuple):
    """A trial that is this process's to run, and its row, whose lock is held until closed."""

    trial: Trial
    row: str
    settings: Json
    held: contextlib.ExitStack


class TuneStudy:
    """The trials of a search, shared by processes through files.

    Parameters
    ----------
    folder
        The run folder of the search.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder, self.search = folder, read_search(folder)
        self._optuna = import_optuna()
        self.states = self._optuna.trial.TrialState
        with folder.changing():
            self.study: Study = self._open()

    def _open(self) -> Study:
        path, optuna = self.folder.path / JOURNAL, self._optuna
        drop_torn_line(path)
        lock = None if fcntl is None else _FileLock(self.folder.path / ".study.lock")
        backend = optuna.storages.journal.JournalFileBackend(str(path), lock_obj=lock)
        study: Study = optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            study_name=self.search.algorithm,
            direction="maximize",
            pruner=make_pruner(self.search),
            load_if_exists=True,
        )
        if not study.get_trials(deepcopy=False):
            study.enqueue_trial(self.search.first())
        return study

    def trials(self) -> list[FrozenTrial]:
        """Return all trials."""
        return self.study.get_trials(deepcopy=False)

    def count(self, *states: str) -> int:
        """Return how many trials are in one of some states, such as ``"COMPLETE"``."""
        return sum(trial.state.name in states for trial in self.trials())

    @property
    def best(self) -> FrozenTrial | None:
        """The best trial that came to its end, if one has."""
        done = [trial for trial in self.trials() if trial.state.name == "COMPLETE"]
        return max(done, key=lambda trial: trial.value or -np.inf, default=None)

    def claim(self, wanted: int) -> Claimed | None:
        """Begin a trial, unless as many as wanted are finished or run.

        Raises
        ------
        RuntimeError
            If too many trials have failed.
        """
        with self.folder.changing():
            self._retry_orphans()
            if self.count("COMPLETE", "PRUNED", "RUNNING") >= wanted:
                return None
            self._refuse_errors()
            self.study.sampler = self._sampler()
            trial = self.study.ask()
            chosen = {name: part.suggest(trial, name) for name, part in self.search.space.items()}
            row = trial.user_attrs.get(ROW, f"trial-{trial.number:04d}")
            trial.set_user_attr(ROW, row)
            made = self.search.row(row, chosen, f"trial {trial.number}")
            add_rows(self.folder, [made], [[self.search.first_seed, self.search.seeds]])
            held = contextlib.ExitStack()
            held.enter_context(self.folder.lock([row]))
        return Claimed(trial, row, chosen, held)

    def tell(self, trial: Trial, state: str, value: float | None = None) -> None:
        """Finish a trial, and write the table of all."""
        self.study.tell(trial, value, state=self.states[state])
        self.write_trials()

    def write_trials(self) -> None:
        """Write all trials, and how much each setting matters, for readers without Optuna."""
        with self.folder.changing():
            listed = [_described(trial, self.search) for trial in self.trials()]
            content = {"trials": listed, "importances": self._importances()}
            self.folder.write_json(TRIALS, content)

    def _sampler(self) -> Any:
        """Return a sampler whose draws depend on the search's seed and the trial's number alone."""
        entropy = [self.search.search_seed, len(self.trials())]
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        with warnings.catch_warnings():  # experimental before Optuna 5
            warnings.simplefilter("ignore")
            return self._optuna.samplers.TPESampler(seed=seed, constant_liar=True)

    def _retry_orphans(self) -> None:
        """Fail the trials whose process was killed, and queue their settings again."""
        trials = self.trials()
        retried = {trial.user_attrs.get(RETRIES) for trial in trials}
        for trial in trials:
            if trial.state.name != "RUNNING" or self._is_alive(trial):
                continue
            if trial.number not in retried and trial.params.keys() == self.search.space.keys():
                row = {ROW: trial.user_attrs[ROW]} if ROW in trial.user_attrs else {}
                self.study.enqueue_trial(trial.params, user_attrs={RETRIES: trial.number, **row})
            self.study.tell(trial.number, state=self.states.FAIL)

    def _is_alive(self, trial: FrozenTrial) -> bool:
        """Return whether a process holds the lock of a trial's row."""
        if ROW not in trial.user_attrs:  # which is set before the folder's lock is given back
            return False
        try:
            with self.folder.lock([trial.user_attrs[ROW]]):
                return False
        except StoreError:
            return True

    def _refuse_errors(self) -> None:
        errors = [trial.user_attrs[ERROR] for trial in self.trials() if ERROR in trial.user_attrs]
        if len(errors) >= MOST_ERRORS:
            raise RuntimeError(f"{len(errors)} trials have failed, the last because: {errors[-1]}")

    def _importances(self) -> dict[str, float]:
        """Return how much each setting matters, as far as the finished trials tell."""
        done = [trial for trial in self.trials() if trial.state.name == "COMPLETE"]
        if len(done) < 4 or len({trial.value for trial in done}) < 2:
            return {}
        importance = self._optuna.importance
        with warnings.catch_warnings(), contextlib.suppress(ValueError, RuntimeError):
            warnings.simplefilter("ignore")
            evaluator = importance.PedAnovaImportanceEvaluator()
            found = importance.get_param_importances(self.study, evaluator=evaluator)
            return {name: float(value) for name, value in found.items()}
        return {}


def make_pruner(search: Search) -> BasePruner:
    """Return what ends trials early.

    ``"median"`` ends one that is below the median of the others at the same point, after half of
    its points: before, those that explore longest look worst. ``"hyperband"`` lets a third go on,
    again and again.
    """
    pruners = import_optuna().pruners
    made: BasePruner
    if search.pruner == "median":
        made = pruners.MedianPruner(STARTUP_TRIALS, n_warmup_steps=search.points // 2)
    elif search.pruner == "hyperband":
        made = pruners.HyperbandPruner(min_resource=1, max_resource=search.points)
    else:
        made = pruners.NopPruner()
    return made


def drop_torn_line(path: Path) -> None:
    """Remove what a killed process left of a line; the next would be glued to it."""
    if not path.is_file():
        return
    with open(path, "rb+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        if size and file.read() != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


class _FileLock:
    """A lock that ends with its process; Optuna's own would outlive one that is killed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def acquire(self) -> bool:
        self._file = open(self._path, "wb")  # noqa: SIM115 - it is kept
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        if self._file is not None:
            self._file.close()


def _described(trial: FrozenTrial, search: Search) -> Json:
    """Return a trial as JSON."""
    notes = {name: trial.user_attrs.get(name) for name in (ROW, RETRIES, ERROR, DIVERGED)}
    duration = trial.duration
    return {
        "number": trial.number,
        "state": trial.state.name.lower(),
        "value": trial.value if trial.state.name == "COMPLETE" else None,
        "settings": search.settings(trial.params),
        "points": {str(step): value for step, value in trial.intermediate_values.items()},
        "seconds": None if duration is None else round(duration.total_seconds(), 1),
        **notes,
    }
