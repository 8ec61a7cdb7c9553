"""``valuetrack watch``, and ``--watch`` beside a training."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.live_page.folders import ROW, make_grown
from valuetrack.cli import app
from valuetrack.commands import watch
from valuetrack.commands.watch import make_server, open_browser, watched
from valuetrack.live_page.run_view import RunView

runner = CliRunner()
TINY = ["--set", "hidden=[8]", "--set", "batch_size=8", "--set", "learning_starts=20",
        "--set", "replay_capacity=200", "--set", "samples=50", "--set", "thinning=1",
        "--set", "steps_per_update=1", "--env-set", "width=3",
        "--env-set", "height=2"]  # fmt: skip
ESCAPE = "valuetrack/IndoorEscape-v0"


def read(address, path="api/run"):
    with urllib.request.urlopen(address + path, timeout=20) as answer:
        return json.load(answer)


def is_served(address):
    try:
        return bool(read(address))
    except OSError:
        return False


def quiet_console():
    return Console(file=io.StringIO(), width=200)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watch_serves_until_it_is_stopped(tmp_path, number):
    path = make_grown(tmp_path / "run").path
    command = [sys.executable, "-m", "valuetrack.cli", "watch", str(path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        line = process.stdout.readline().decode()
        address = line.split()[2]
        assert address.startswith("http://127.0.0.1:")
        assert read(address)["rows"][0]["id"] == ROW
        process.send_signal(number)
        printed, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert (printed.decode(), errors.decode()) == ("The page is closed.\n", "")


@pytest.mark.parametrize(
    ("name", "said"),
    [("missing", "is no folder; name the folder of a run."),
     ("file", "is no folder; name the folder of a run."),
     ("empty", "holds no run: it has no manifest.json.")],
)  # fmt: skip
def test_a_wrong_folder_is_one_sentence(tmp_path, name, said):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    result = runner.invoke(app, ["watch", str(tmp_path / name)])
    assert result.exit_code == 2
    assert result.stderr == f"Error: {tmp_path / name} {said}\n"


def test_ports_that_are_taken(tmp_path, monkeypatch):
    path = make_grown(tmp_path / "run").path
    with make_server(RunView(path), 0) as first:
        result = runner.invoke(app, ["watch", str(path), "--port", str(first.port)])
        assert result.exit_code == 2
        assert result.stderr.startswith(f"Error: Port {first.port} is in use; choose another")
        monkeypatch.setattr(watch, "USUAL_PORT", first.port)
        with make_server(RunView(path), None) as second:
            assert second.port not in (0, first.port)


def test_the_browser_opens_only_before_a_screen(monkeypatch):
    opened = []
    monkeypatch.setattr(watch.webbrowser, "open", opened.append)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("DISPLAY", ":0")
    open_browser("one", quiet_console())
    terminal = Console(file=io.StringIO(), force_terminal=True)
    open_browser("two", terminal)
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    open_browser("three", terminal)
    assert opened == ["two"]


def test_a_page_that_is_killed_does_nothing_to_the_run(tmp_path):
    path, console = make_grown(tmp_path / "run").path, quiet_console()
    with watched(path, 0, console, wanted=True) as page:
        address = console.file.getvalue().split()[2]
        assert read(address)["rows"][0]["id"] == ROW
        page.stay()  # does not wait: nobody is at a terminal
        page.process.kill()
        page.process.join()
    assert not page.process.is_alive()


def test_a_page_that_cannot_start_does_nothing_to_the_run(tmp_path):
    console = quiet_console()
    with watched(tmp_path / "missing", 0, console, wanted=True) as page:
        assert page.process is None
    said = " ".join(console.file.getvalue().split())
    assert said.startswith("No live page: ")
    assert said.endswith("The run goes on without it.")


def test_the_page_stays_after_the_run_until_ctrl_c(tmp_path):
    path = make_grown(tmp_path / "run").path
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    with watched(path, 0, console, wanted=True) as page:
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        page.stay()
        timer.join()
        assert page.process.is_alive()
    assert not page.process.is_alive()
    assert "stays open until Ctrl-C" in console.file.getvalue()


def test_the_page_ends_with_a_run_that_is_killed(tmp_path):
    path = make_grown(tmp_path / "run").path
    script = tmp_path / "run_forever.py"
    script.write_text(
        "import sys, time\nfrom pathlib import Path\nfrom rich.console import Console\n"
        "from valuetrack.commands.watch import watched\n"
        "if __name__ == '__main__':\n"
        "    with watched(Path(sys.argv[1]), 0, Console(width=200), wanted=True):\n"
        "        sys.stdout.flush()\n        time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, script, str(path)], stdout=subprocess.PIPE) as process:
        address = process.stdout.readline().decode().split()[2]
        read(address)
        process.kill()
    end = time.monotonic() + 20
    while is_served(address):
        assert time.monotonic() < end
        time.sleep(0.1)


def records(path: Path, name: str):
    (file,) = path.glob(f"units/*/*/{name}")
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_training_on_a_grid_writes_its_maps(tmp_path):
    out = tmp_path / "run"
    start = ["train", "--env", ESCAPE, "--seeds", "2", "--out", str(out), *TINY]
    shown = ["--watch", "--port", "0", "--track-intervals-every", "40"]
    result = runner.invoke(app, [*start, *shown, "--steps", "160"])
    assert result.exit_code == 0, result.output
    assert "Live page: http://127.0.0.1:" in result.output
    (grid,) = records(out, "grid.json")
    assert (grid["width"], grid["height"], grid["seeds"]) == (3, 2, [0, 1])
    truth = np.array(grid["truth"], float)
    assert truth[:, 0][[0, 1]].tolist() == [pytest.approx(-2.9701), pytest.approx(-1.99)]
    maps = records(out, "maps.jsonl")
    assert len(maps) == 8
    assert [one["steps"] for one in maps] == list(range(20, 161, 20))
    last = maps[-1]
    legal = np.isfinite(truth)
    for name in ("mean", "width", "probability"):
        values = np.array(last[name], float)
        assert values.shape == (2, 6, 4)
        assert (np.isfinite(values) == legal).all()
    assert np.nansum(np.array(last["probability"], float), axis=-1)[0, 0] == pytest.approx(1, 0.01)
    solved = [one for one in maps if "solved" in one]
    assert 2 <= len(solved) <= 4
    assert (np.array(solved[-1]["solved_width"], float)[:, legal] >= 0).all()


def test_intervals_need_states_elsewhere(tmp_path):
    command = ["train", "--env", "CartPole-v1", "--steps", "10", "--out", str(tmp_path / "run")]
    result = runner.invoke(app, [*command, "--track-intervals-every", "5"])
    assert result.exit_code == 2
    assert "needs observations to solve for: --track" in result.stderr
