"""Units as jobs of SLURM, through submitit; needs the extra ``slurm``.

The run's folder must be on a disk that all nodes share: jobs write their units there, and the
command reads there how far they are. Jobs outlive the command. One that is started again finds
those of before, and two jobs never run the same unit at a time.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any, Self

from valuetrack.experiments.engines.base import Engine, Event, WorkerError
from valuetrack.experiments.engines.options import NodeOptions, SlurmOptions
from valuetrack.experiments.nodes.slurm_job import STOP, UnitJob
from valuetrack.experiments.runner import Unit
from valuetrack.experiments.spec import from_manifest
from valuetrack.interrupts import ignored
from valuetrack.io.progress import last_record
from valuetrack.io.run_folder import PROGRESS, RunFolder
from valuetrack.training.seed_groups import available_cores

FILES = "slurm"
"""The folder of the jobs' files in the run's folder."""
JOBS = f"{FILES}/jobs.json"
LOOK_SECONDS = 2.0
"""How often to look into the run's folder."""
ASK_SECONDS = 30.0
"""How often to ask SLURM which jobs there are."""
END_SECONDS = 5.0
"""How long to wait for the end of a job whose unit is finished."""
MOST_DEATHS = 5
MOST_TIMEOUTS = 1_000
SIGNAL_SECONDS = 120
"""How long before its time is up a job begins to save its state."""
LIVE = ("PENDING", "CONFIGURING", "RUNNING", "REQUEUED", "RESIZING", "SUSPENDED", "COMPLETING")


def import_submitit() -> Any:
    """Return submitit, or say how to install it."""
    try:
        import submitit  # noqa: PLC0415 - an extra
        import submitit.slurm.slurm  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            "--engine slurm needs an extra: pip install 'valuetrack[slurm]'."
        ) from error
    return submitit


class SlurmEngine(Engine):
    """Runs units as an array of jobs.

    Parameters
    ----------
    folder
        The run's folder.
    options, slurm
        How many cores a unit has, and what SLURM is told.
    """

    def __init__(self, folder: RunFolder, options: NodeOptions, slurm: SlurmOptions) -> None:
        self._submitit = import_submitit()
        self._folder, self._options, self._slurm = folder, options, slurm
        self._spec = from_manifest(folder.manifest())
        self._files = folder.path.resolve() / FILES
        self._waiting: deque[Unit] = deque()
        self._running: dict[Unit, Any] = {}
        self._steps: Counter[Unit] = Counter()
        self._deaths: Counter[Unit] = Counter()
        self._seen: dict[Unit, float] = {}
        self._looked = self._asked = -float("inf")
        self._stopped = False

    def __enter__(self) -> Self:
        """Prepare what submits jobs."""
        if self._slurm.cluster == "slurm" and shutil.which("sbatch") is None:
            raise ValueError(
                "This machine has no sbatch; start the command where you submit jobs to SLURM."
            )
        self._files.mkdir(exist_ok=True)
        (self._files / STOP).unlink(missing_ok=True)
        self._executor = self._make_executor()
        self._earlier = self._read_jobs()
        return self

    def __exit__(self, kind: object, error: object, traceback: object, /) -> None:
        """Ask jobs to save and end, and wait for them; a second Ctrl-C cancels them."""
        if self._running and isinstance(error, KeyboardInterrupt):
            for job in self._running.values():
                job.cancel(check=False)
        elif self._running:
            self.stop()
            while self._running:
                self._look(raises=False)
                time.sleep(LOOK_SECONDS)
        for path in self._files.glob("*.pkl"):
            path.unlink(missing_ok=True)

    def submit(self, unit: Unit) -> None:
        """Add a unit; its job is submitted with those of the others."""
        self._waiting.append(unit)

    def follow(self, seconds: float) -> list[Event]:
        """Return how far the jobs are; raise why one failed."""
        self._submit_waiting()
        due = self._looked + LOOK_SECONDS - time.monotonic()
        if due > 0:
            time.sleep(min(seconds, due))
            return []
        return self._look()

    def is_busy(self) -> bool:
        """Return whether there are units that run or wait."""
        return bool(self._waiting or self._running)

    def stop(self) -> None:
        """Ask all jobs to save and end; cancel those that have not begun."""
        if self._stopped:
            return
        self._stopped = True
        self._waiting.clear()
        (self._files / STOP).touch()
        for job in self._running.values():
            if job.state.startswith("PENDING"):
                job.cancel(check=False)

    def _make_executor(self) -> Any:
        given = self._slurm
        executor = self._submitit.AutoExecutor(
            folder=self._files, cluster=given.cluster, slurm_max_num_timeout=MOST_TIMEOUTS
        )
        executor.update_parameters(
            name="valuetrack",
            timeout_min=given.time,
            mem_gb=given.memory,
            cpus_per_task=self._options.num_cpus,
            slurm_partition=given.partition,
            slurm_account=given.account,
            slurm_qos=given.qos,
            slurm_constraint=given.constraint,
            slurm_array_parallelism=given.parallel or 1_000,
            slurm_signal_delay_s=SIGNAL_SECONDS,
        )
        return executor

    def _submit_waiting(self) -> None:
        """Submit units as one array; on this machine, as many as may run at a time."""
        room = len(self._waiting)
        if self._slurm.cluster == "local":
            cores = max(1, available_cores() // self._options.num_cpus)
            room = (self._slurm.parallel or cores) - len(self._running)
        new: list[Unit] = []
        while self._waiting and len(new) < room:
            unit = self._waiting.popleft()
            if (job := self._earlier.pop(_place(unit), None)) is not None:
                self._running[unit] = job
            else:
                new.append(unit)
        if not new:
            return
        with ignored(), self._executor.batch():  # Ctrl-C is for this process
            jobs = [self._executor.submit(self._job(unit), self._order(unit)) for unit in new]
        self._running.update(zip(new, jobs, strict=True))
        self._write_jobs()

    def _job(self, unit: Unit) -> UnitJob:
        failure = self._failure(unit)
        failure.unlink(missing_ok=True)
        return UnitJob(str(self._files), failure.name)

    def _order(self, unit: Unit) -> Any:
        return self._options.order(self._folder, unit, shares=True)

    def _failure(self, unit: Unit) -> Path:
        return self._files / f"{unit.row}.{unit.name}.json"

    def _look(self, *, raises: bool = True) -> list[Event]:
        """Look how far all units are, and which jobs have ended."""
        self._looked = now = time.monotonic()
        asks = now - self._asked > ASK_SECONDS
        events, died = [], []
        for unit, job in list(self._running.items()):
            is_finished = self._folder.is_finished(unit.row, unit.name)
            events.append(self._advance(unit, is_finished=is_finished))
            has_ended = job.done(force_check=asks)
            if asks:  # about all jobs at once
                asks, self._asked = False, now
            if is_finished:  # its job is about to end
                has_ended |= now > self._seen.setdefault(unit, now) + END_SECONDS
            if has_ended:
                del self._running[unit]
            if has_ended and not is_finished:
                died.append(unit)
        for unit in died if raises and not self._stopped else ():
            self._run_again(unit)
        return events

    def _advance(self, unit: Unit, *, is_finished: bool) -> Event:
        """Tell how far a unit has come since the last look."""
        record = last_record(self._folder.unit_path(unit.row, unit.name) / PROGRESS)
        steps = int((record or {}).get("steps", 0)) * unit.seeds
        if is_finished:
            steps = self._spec.row(unit.row).steps * unit.seeds
        before, self._steps[unit] = self._steps[unit], steps
        return Event(unit.row, steps - before)

    def _run_again(self, unit: Unit) -> None:
        """Submit a unit again whose job has ended before its end, unless it says why."""
        path = self._failure(unit)
        if path.is_file():
            raise WorkerError(self._folder.read_json(f"{FILES}/{path.name}")["error"])
        self._deaths[unit] += 1
        if self._deaths[unit] > MOST_DEATHS:
            raise WorkerError(
                f"{unit.row}, {unit.name}: its job has ended {self._deaths[unit]} times before it "
                f"was finished; the logs in {self._files} say why."
            )
        self._waiting.append(unit)

    def _read_jobs(self) -> dict[str, Any]:
        """Return the jobs of an earlier command that are still there."""
        if self._slurm.cluster != "slurm" or not (self._folder.path / JOBS).is_file():
            return {}
        kind = self._submitit.slurm.slurm.SlurmJob
        found = {}
        for place, number in self._folder.read_json(JOBS).items():
            job = kind(self._files, str(number))
            if job.watcher.get_state(job.job_id, mode="force").startswith(LIVE):
                found[place] = job
        return found

    def _write_jobs(self) -> None:
        jobs = {_place(unit): job.job_id for unit, job in self._running.items()}
        self._folder.write_json(JOBS, jobs)


def _place(unit: Unit) -> str:
    return f"{unit.row}/{unit.name}"
