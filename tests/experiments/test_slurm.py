"""Units as jobs, which submitit runs on this machine; commands are killed and jobs preempted."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from tests.experiments import small_slurm
from tests.experiments.engine_runs import (
    assert_same_bits,
    long_spec,
    new_run,
    start_driver,
    units_with,
    wait_until,
)
from valuetrack.experiments import runner
from valuetrack.experiments.engines import EngineChoice, LocalEngine, WorkerError
from valuetrack.experiments.run import run

pytest.importorskip("submitit")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jobs are found in /proc")
ON_THIS_MACHINE = "cluster=local"


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    folder = new_run(tmp_path_factory.mktemp("local") / "run", long_spec())
    assert run(folder, engine=LocalEngine(folder, 2))
    return folder


def jobs_of(folder) -> list[int]:
    """Return the processes of submitit that run a unit of this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text().split("\0")
        except OSError:
            continue
        if "submitit.core._submit" in words and str(folder.path.resolve() / "slurm") in words:
            found.append(int(path.parent.name))
    return found


def test_killed_commands_and_preempted_jobs_change_nothing(local, tmp_path):
    folder = new_run(tmp_path / "run", long_spec())
    with start_driver(folder, "slurm", "", ON_THIS_MACHINE) as driver:
        wait_until(lambda: units_with(folder, "checkpoint.vt") >= 1)
        driver.send_signal(signal.SIGKILL)
    with start_driver(folder, "slurm", "", ON_THIS_MACHINE) as driver:
        wait_until(lambda: len(jobs_of(folder)) > 0)
        for job in jobs_of(folder):
            os.kill(job, signal.SIGUSR2)  # as SLURM does when a job is preempted
        assert driver.wait(300) == 0
    assert_same_bits(local, folder)
    assert not list(folder.path.rglob("*.pkl"))


def test_an_array_of_jobs_outlives_the_command_and_is_found_again(local, tmp_path, monkeypatch):
    small_slurm.install(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    folder = new_run(tmp_path / "run", long_spec())
    with start_driver(folder, "slurm", "", "partition=short", "parallel=2") as driver:
        wait_until(lambda: units_with(folder, "progress.jsonl") >= 1)
        driver.send_signal(signal.SIGKILL)
    submitted = sorted(path.name for path in (tmp_path / "bin" / "jobs").iterdir())
    assert submitted == ["100_0", "100_1", "100_2", "100_3"]
    (script,) = {path.read_text() for path in folder.path.glob("slurm/*.sh")}
    for line in ("--array=0-3%2", "--partition=short", "--cpus-per-task=1", "--signal=USR2@120"):
        assert line in script
    with start_driver(folder, "slurm", "", "partition=short", "parallel=2") as driver:
        assert driver.wait(300) == 0
    assert sorted(path.name for path in (tmp_path / "bin" / "jobs").iterdir()) == submitted
    assert_same_bits(local, folder)


def test_a_stop_saves_all_units_where_they_are(local, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "CHECKPOINT_SECONDS", 1e9)
    monkeypatch.setattr("valuetrack.experiments.engines.slurm.LOOK_SECONDS", 0.2)
    folder, stop, steps = new_run(tmp_path / "run", long_spec()), threading.Event(), []
    choice = EngineChoice("slurm", slurm={"cluster": "local"})

    def advance(row, count):
        steps.append(count)
        if sum(steps) > 0:
            stop.set()

    assert not run(folder, engine=choice.make(folder), advance=advance, stop=stop)
    assert units_with(folder, "checkpoint.vt") >= 1
    assert run(folder, engine=choice.make(folder))
    assert_same_bits(local, folder)


def test_a_job_that_fails_says_why(tmp_path):
    folder = new_run(tmp_path / "run", long_spec(), rows=("dqn",), seeds=2)
    path = folder.unit_path("dqn", "seeds-0000-0001")
    path.mkdir(parents=True)
    (path / "checkpoint.vt").write_bytes(b"not a checkpoint")
    choice = EngineChoice("slurm", slurm={"cluster": "local"})
    with pytest.raises(WorkerError, match="is not a checkpoint of valuetrack; delete it"):
        run(folder, engine=choice.make(folder))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"partitoin": "gpu"}, "--slurm has no option 'partitoin'; did you mean partition?"),
        ({"time": 1}, "--slurm's time is wrong"),
        ({"cluster": "pbs"}, "--slurm's cluster is wrong"),
    ],
)
def test_what_slurm_is_told_is_checked(given, sentence):
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?")):
        EngineChoice("slurm", slurm=given)


def test_a_machine_without_slurm_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = new_run(tmp_path / "run", long_spec(), rows=("dqn",), seeds=1)
    with pytest.raises(ValueError, match="This machine has no sbatch"):
        run(folder, engine=EngineChoice("slurm").make(folder))
