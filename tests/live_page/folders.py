"""Run folders for the live page, written by the same code as those of runs."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator

import numpy as np

from tests.report import folders
from valuetrack.io.run_folder import RunFolder
from valuetrack.live_page import run_view
from valuetrack.live_page.run_view import RunView
from valuetrack.live_page.server import PageServer

ESCAPE = "valuetrack/IndoorEscape-v0"
SIZE = {"width": 3, "height": 2}
CELLS, ACTIONS = 6, 4
STEPS = 1_000
GRID = {
    **SIZE,
    "walls": [[1, 0]],
    "start": [0, 0],
    "goal": [2, 1],
    "actions": list("ENWS"),
    "level": 0.95,
    "seeds": [0, 1],
    "truth": [[None, -1.0 - cell, None, None] for cell in range(CELLS)],
}
ROW, UNIT = "lktd", "seeds-0000-0001"


def make_run(path, *, label="LKTD", rows=(ROW,), units=((0, 2), (2, 2)), env=ESCAPE) -> RunFolder:
    """Make a run of a small grid without records."""
    options = {"exploration_final": 0.01, "discount": 0.9}
    entries = [folders.spec_row(row, "lktd", env, STEPS, options, SIZE) for row in rows]
    shown = [
        {**entry, "label": label, "units": [list(unit) for unit in units]} for entry in entries
    ]
    seeds = sum(count for _, count in units)
    return folders.create(path, "indoor-escape", {"kind": "values"}, entries, shown, seeds)


def record(steps, seeds=2, **more):
    """Return a progress record whose numbers are easily known again."""
    values = [float(steps + seed) for seed in range(seeds)]
    own = {"steps": steps, "updates": steps // 10, "rate": 50.0}
    return {**own, "return": values, "loss": [1.0 / (1 + v) for v in values], **more}


def frame(steps, **more):
    """Return a map whose values are all minus the number of steps."""
    shape = (2, CELLS, ACTIONS)
    return {
        "steps": steps,
        "mean": np.full(shape, -float(steps)).tolist(),
        "width": np.full(shape, 0.5).tolist(),
        "probability": np.full(shape, 0.25).tolist(),
        **more,
    }


def make_grown(path) -> RunFolder:
    """Make a run that has gone on for a while."""
    folder = make_run(path)
    for steps in (100, 200, 300):
        folder.append_progress(ROW, UNIT, record(steps))
        folder.append_map(ROW, UNIT, GRID, frame(steps))
    return folder


@contextlib.contextmanager
def served(path) -> Iterator[PageServer]:
    """Serve a folder, from a thread."""
    with PageServer(RunView(path)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server, path, method="GET", **headers):
    """Return the status, the headers and the content of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request(
            method, path, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def ask_json(server, path):
    status, _, content = ask(server, path)
    return status, json.loads(content)


@contextlib.contextmanager
def always_fresh() -> Iterator[None]:
    """Let every question read the folder again."""
    before, run_view.FRESH_SECONDS = run_view.FRESH_SECONDS, 0.0
    try:
        yield
    finally:
        run_view.FRESH_SECONDS = before
