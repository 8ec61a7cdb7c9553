"""Units on a Ray cluster of three nodes, of which one is killed; and a command that is."""

from __future__ import annotations

import signal
import sys
import threading

import pytest

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
from valuetrack.experiments.engines.ray import import_ray
from valuetrack.experiments.run import run

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.filterwarnings("default"),  # Ray leaves files and processes to the collector
    pytest.mark.skipif(sys.platform == "win32", reason="the nodes are processes of one machine"),
]


@pytest.fixture(scope="module")
def cluster():
    import_ray()
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The same run on the engine that every other one is compared with."""
    folder = new_run(tmp_path_factory.mktemp("local") / "run", long_spec())
    assert run(folder, engine=LocalEngine(folder, 2))
    return folder


def test_a_node_that_dies_changes_nothing(cluster, local, tmp_path):
    folder = new_run(tmp_path / "run", long_spec())
    node = cluster.add_node(num_cpus=2)
    with start_driver(folder, "ray", cluster.address) as driver:
        wait_until(lambda: units_with(folder, "checkpoint.vt") >= 3)
        cluster.remove_node(node, allow_graceful=False)
        assert units_with(folder, "unit.json") < 4  # there was something left to do
        assert driver.wait(300) == 0
    assert_same_bits(local, folder)


def test_a_command_that_is_killed_goes_on(cluster, local, tmp_path):
    folder = new_run(tmp_path / "run", long_spec())
    with start_driver(folder, "ray", cluster.address) as driver:
        wait_until(lambda: units_with(folder, "checkpoint.vt") >= 1)
        driver.send_signal(signal.SIGKILL)
    with start_driver(folder, "ray", cluster.address) as driver:
        assert driver.wait(300) == 0
    assert_same_bits(local, folder)


@pytest.mark.parametrize("shared", [False, True])
def test_a_stop_saves_all_units_where_they_are(cluster, local, tmp_path, shared, monkeypatch):
    monkeypatch.setattr(runner, "CHECKPOINT_SECONDS", 1e9)
    folder, stop, steps = new_run(tmp_path / "run", long_spec()), threading.Event(), []
    choice = EngineChoice("ray", address=cluster.address, shared_folder=shared)

    def advance(row, count):
        steps.append(count)
        if sum(steps) > 0:
            stop.set()

    assert not run(folder, engine=choice.make(folder), advance=advance, stop=stop)
    assert units_with(folder, "checkpoint.vt") >= 1
    steps.clear()
    assert run(folder, engine=choice.make(folder), advance=lambda row, count: steps.append(count))
    assert_same_bits(local, folder)
    finished_before = 4 * 2 * 30_000 - sum(steps)
    assert finished_before % (2 * 30_000) == 0  # what goes on counts from its first step


def test_a_unit_that_fails_says_why_and_the_others_are_saved(cluster, tmp_path):
    folder = new_run(tmp_path / "run", long_spec())
    path = folder.unit_path("dqn", "seeds-0000-0001")
    path.mkdir(parents=True)
    (path / "checkpoint.vt").write_bytes(b"not a checkpoint")
    choice = EngineChoice("ray", address=cluster.address)
    with pytest.raises(WorkerError, match="is not a checkpoint of valuetrack; delete it"):
        run(folder, engine=choice.make(folder))


def test_what_no_cluster_can_do_is_one_sentence(cluster, tmp_path):
    folder = new_run(tmp_path / "run", long_spec())
    with pytest.raises(ValueError, match="--num-cpus is 64, but no node has more than"):
        run(folder, engine=EngineChoice("ray", cluster.address, num_cpus=64).make(folder))
    with pytest.raises(ConnectionError, match=r"There is no Ray cluster at 127\.0\.0\.1:1;"):
        run(folder, engine=EngineChoice("ray", "127.0.0.1:1").make(folder))
