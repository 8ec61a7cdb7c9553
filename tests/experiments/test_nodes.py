"""A unit in a process of its own, on whichever node: the same bits, and no surprise."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from tests.experiments.engine_runs import assert_same_bits, new_run, wait_until
from valuetrack.experiments.engines import EngineChoice, LocalEngine
from valuetrack.experiments.engines.options import NodeOptions
from valuetrack.experiments.nodes import orders, parcels, surroundings
from valuetrack.experiments.nodes.process import UnitProcess
from valuetrack.experiments.run import planned_units, run
from valuetrack.io.progress import append_record, last_record
from valuetrack.programs import default_folder


def run_first_unit(run_folder, **changes):
    """Run the first unit of a folder in a process; return what there is to say about that."""
    unit = planned_units(run_folder.manifest())[0]
    order = {**NodeOptions().order(run_folder, unit, shares=True), **changes}
    with UnitProcess(order) as process:
        while process.end is None:
            process.read(1.0)
    return process


def test_a_process_of_its_own_gives_the_bits_of_the_local_engine(small_spec, tmp_path):
    local = new_run(tmp_path / "local", small_spec, rows=("dqn",), seeds=2)
    assert run(local, engine=LocalEngine(local, 1))
    own = new_run(tmp_path / "own", small_spec, rows=("dqn",), seeds=2)
    process = run_first_unit(own)
    assert process.end.done, process.end
    assert process.steps == 2 * 1_200
    assert_same_bits(local, own)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"versions": {"jax": "0.1"}}, "and the command runs with 0.1; install the same"),
        ({"versions": {"source": "another"}}, "with other source code; install the same"),
        ({"folder": "/nowhere"}, "Leave out --shared-folder, or choose a folder that all nodes"),
    ],
)
def test_what_is_wrong_on_a_node_is_one_sentence(changes, sentence, small_spec, tmp_path):
    folder = new_run(tmp_path / "run", small_spec, rows=("dqn",), seeds=1)
    process = run_first_unit(folder, **changes)
    assert sentence in process.end.error
    assert "\n" not in process.end.error
    assert not list(folder.path.rglob("unit.json"))


PARENT = """
import json, sys, time
from valuetrack.experiments.nodes.process import UnitProcess
with UnitProcess(json.loads(sys.argv[1])) as process:
    print(process._process.pid, flush=True)
    while process.end is None:
        process.read(1.0)
"""


def test_a_unit_ends_with_the_process_that_started_it(small_spec, tmp_path):
    folder = new_run(tmp_path / "run", small_spec, rows=("dqn",), seeds=1)
    order = NodeOptions().order(folder, planned_units(folder.manifest())[0], shares=True)
    with folder.lock_unit("dqn", "seeds-0000-0000", threading.Event()):  # it waits for ever
        command = [sys.executable, "-c", PARENT, json.dumps(order)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
            child = int(parent.stdout.readline())
            assert is_alive(child)
            parent.send_signal(signal.SIGKILL)
        wait_until(lambda: not is_alive(child), 60)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:  # one that nobody waits for is a zombie
        return file.read().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not hasattr(signal, "SIGUSR2"), reason="the system has no such signals")
def test_a_preempted_job_whose_unit_is_just_ending_does_not_wait_for_ever():
    process, called = UnitProcess({"variables": {}}), []

    def preempt(number, frame):
        process.stop()
        process.wait()
        called.append(number)

    before = signal.signal(signal.SIGUSR2, preempt)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR2))
    command = [sys.executable, "-c", "import time; time.sleep(1)"]
    process._process = subprocess.Popen(command, stdin=subprocess.PIPE)
    process._listener = threading.Thread(target=lambda: None)
    process._listener.start()
    try:
        timer.start()
        process.__exit__()  # closes the input, and waits
        timer.join()
    finally:
        signal.signal(signal.SIGUSR2, before)
        process._process.kill()
    assert called == [signal.SIGUSR2]


def test_a_unit_that_another_process_runs_is_waited_for(small_spec, tmp_path):
    folder, stop = new_run(tmp_path / "run", small_spec), threading.Event()
    place = ("dqn", "seeds-0000-0001")
    taken = threading.Event()

    def take():
        with folder.lock_unit(*place, stop) as is_ours:
            assert is_ours
            taken.set()

    with folder.lock_unit(*place, stop) as is_ours:
        assert is_ours
        other = threading.Thread(target=take)
        other.start()
        assert not taken.wait(0.5)
    assert taken.wait(10)
    other.join()
    stop.set()
    with folder.lock_unit(*place, stop) as is_ours:
        assert not is_ours


# -- files on their way -------------------------------------------------------------------------


def test_files_arrive_as_they_were_sent(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    for name in ("unit.json", "metrics.parquet", ".lock"):
        (there / name).write_bytes(name.encode())
    here.mkdir()
    (here / "checkpoint.vt").write_bytes(b"old")
    sent = parcels.pack_finished(there)
    assert [parcel.name for parcel in sent] == ["metrics.parquet", "unit.json"]
    parcels.unpack(sent, here)
    assert sorted(path.name for path in here.iterdir()) == ["metrics.parquet", "unit.json"]
    assert (here / "metrics.parquet").read_bytes() == b"metrics.parquet"


@pytest.mark.parametrize("changes", [{"data": b"changed"}, {"name": "../elsewhere"}])
def test_a_parcel_that_has_changed_is_refused_before_anything_is_written(changes, tmp_path):
    (tmp_path / "unit.json").write_bytes(b"{}")
    parcel = parcels.pack(tmp_path / "unit.json")
    with pytest.raises(parcels.DamagedError, match="has changed on its way"):
        parcels.unpack([parcel, parcel._replace(**changes)], tmp_path / "here")
    assert not (tmp_path / "here").exists()


def test_progress_and_state_travel_when_they_are_new(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    courier = parcels.Courier(there)
    assert courier.news() == []
    written = []
    for text in ("one\n", "two\n", "thr"):
        with open(there / "progress.jsonl", "a") as file:
            file.write(text)
        parcels.unpack(courier.news(), here)
        written.append((here / "progress.jsonl").read_text())
        assert courier.news() == []
    assert written == ["one\n", "one\ntwo\n", "one\ntwo\nthr"]
    (there / "checkpoint.vt").write_bytes(b"state")
    (there / "new").write_text("one\n")
    os.replace(there / "new", there / "progress.jsonl")  # cut, as by a unit that is resumed
    parcels.unpack(courier.news(), here)
    assert (here / "checkpoint.vt").read_bytes() == b"state"
    assert (here / "progress.jsonl").read_text() == "one\n"
    assert courier.news() == []


def test_the_last_record_is_read_without_the_others(tmp_path):
    path = tmp_path / "progress.jsonl"
    assert last_record(path) is None
    for steps in range(3):
        append_record(path, {"steps": steps, "padding": "x" * 40_000})
    with open(path, "a") as file:
        file.write('{"steps": 3')
    assert last_record(path)["steps"] == 2
    path.write_text("damaged\n")
    assert last_record(path) is None


# -- surroundings -------------------------------------------------------------------------------


def test_a_node_computes_with_the_flags_of_the_command(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--mine")
    monkeypatch.setenv("JAX_ENABLE_X64", "0")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(default_folder()))
    carried = surroundings.carried_variables()
    assert (carried["XLA_FLAGS"], carried["JAX_ENABLE_X64"]) == ("--mine", "0")
    assert "JAX_COMPILATION_CACHE_DIR" not in carried  # it is for this kind of processor
    monkeypatch.setenv("XLA_FLAGS", "--of-the-node")
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    found = surroundings.variables_here({"XLA_FLAGS": "--mine"})
    assert found["XLA_FLAGS"] == f"--mine {surroundings.FLAGS}"
    assert found["JAX_PLATFORMS"] == "cpu"
    assert found["OMP_NUM_THREADS"] == found["OPENBLAS_NUM_THREADS"] == "1"
    assert "JAX_ENABLE_X64" not in found
    assert found["PATH"] == os.environ["PATH"]


PIN = """
import os
from valuetrack.experiments.nodes.surroundings import pin
held = pin(1)
print(len(held), *sorted(os.sched_getaffinity(0)), flush=True)
input()
"""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system cannot pin")
def test_every_process_has_a_core_of_its_own_while_there_are_any(tmp_path):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1:
        pytest.skip("there is one core only")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    chosen, processes = [], []
    for _ in range(len(cores) + 1):
        process = subprocess.Popen([sys.executable, "-c", PIN], env=environment, **pipes)
        chosen.append([int(word) for word in process.stdout.readline().split()])
        processes.append(process)
    for process in processes:
        process.communicate("\n")
    assert sorted(chosen[:-1]) == [[1, core] for core in cores]
    assert chosen[-1] == [0, *cores]  # none is left for the last one


# -- what users choose --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ({"address": "auto"}, "--address is for --engine ray, not for local"),
        ({"shared_folder": True}, "--shared-folder is for --engine ray"),
        ({"slurm": {"time": 60}}, "--slurm is for --engine slurm"),
        ({"engine": "ray", "address": "ray://head:10001"}, "takes auto or HOST:PORT"),
        ({"engine": "ray", "address": "head"}, "takes auto or HOST:PORT"),
        ({"engine": "ray"}, r"pip install 'valuetrack\[ray\]'\.$"),
        ({"engine": "slurm"}, r"pip install 'valuetrack\[slurm\]'\.$"),
    ],
)
def test_a_wrong_choice_is_one_sentence(choice, sentence, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises((ValueError, ImportError), match=sentence):
        EngineChoice(**choice)


def test_more_cores_per_unit_make_fewer_units_at_a_time(small_spec, tmp_path, monkeypatch):
    folder = new_run(tmp_path / "run", small_spec)
    monkeypatch.setattr("valuetrack.experiments.engines.choice.available_cores", lambda: 5)
    assert [EngineChoice(num_cpus=n).make(folder)._workers for n in (1, 2, 8)] == [5, 2, 1]


def test_versions_are_those_of_the_manifest(small_spec, tmp_path):
    manifest = new_run(tmp_path / "run", small_spec).manifest()
    found = orders.versions()
    for name in ("jax", "jaxlib", "numpy", "valuetrack"):
        assert found[name] == manifest["versions"][name]
    orders.check_versions(found)
