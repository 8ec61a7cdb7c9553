"""Where a training's numbers go."""

from __future__ import annotations

import contextlib
import csv
import functools
import json
import math
import sqlite3
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.small_envs import Counter
from valuetrack.api.loggers import CSVLogger, JSONLinesLogger, TrackioLogger, WandbLogger
from valuetrack.api.tensorboard import TensorBoardLogger
from valuetrack.cli import app
from valuetrack.registry import DQN

OPTIONS = {"hidden": (8,), "learning_starts": 20, "batch_size": 8, "replay_capacity": 200}
NAMES = [
    "rollout/ep_rew_mean",
    "rollout/ep_len_mean",
    "rollout/exploration_rate",
    "rollout/value_at_start",
    "rollout/discounted_return",
    "train/loss",
    "eval/mean_reward",
    "time/fps",
]


class Told:
    """A logger of one's own."""

    def __init__(self):
        self.lines, self.closed = [], False

    def log(self, step, values):
        self.lines.append((step, dict(values)))

    def close(self):
        self.closed = True


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def objects_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_all_loggers_are_told_the_same_once_per_report_and_seed(tmp_path):
    told = Told()
    loggers = [told, CSVLogger(tmp_path / "a" / "log.csv"), JSONLinesLogger(tmp_path / "log.jsonl")]
    agent = DQN("CartPole-v1", seeds=2, seed=3, **OPTIONS)
    agent.learn(160, logger=loggers, report_every=40, evaluate_every=80)
    assert [(step, values["seed"]) for step, values in told.lines] == [
        (step, seed) for step in (40, 80, 120, 160) for seed in (3, 4)
    ]
    assert list(told.lines[0][1]) == ["seed", *NAMES]
    assert math.isnan(told.lines[0][1]["eval/mean_reward"])
    assert told.lines[2][1]["eval/mean_reward"] > 0
    assert not told.closed  # another training may follow
    rows, objects = rows_of(tmp_path / "a" / "log.csv"), objects_of(tmp_path / "log.jsonl")
    assert list(rows[0]) == list(objects[0]) == ["step", "seed", *NAMES]
    for (step, values), row, read in zip(told.lines, rows, objects, strict=True):
        assert int(row["step"]) == read["step"] == step
        for name, value in values.items():
            if math.isfinite(value):
                assert float(row[name]) == read[name] == value
            else:
                assert (row[name], read[name]) == ("", None)


def test_pace_and_tracked_values_are_told():
    told = Told()
    agent = DQN(functools.partial(Counter, last=99), seeds=2, **OPTIONS)
    agent.learn(240, logger=told, report_every=60, track=[[1.0, 2.0], [3.0, 0.0]])
    *_, before, last = (values for _, values in told.lines if values["seed"] == 0)
    assert {values["rollout/ep_len_mean"] for _, values in told.lines} == {4.0}
    assert last["rollout/exploration_rate"] == pytest.approx(agent.options.exploration()(240))
    assert last["time/fps"] > 0
    found = agent.tracking()
    low, high = found.interval(0.95, window=100)
    for state, action in np.ndindex(2, 3):
        name = f"tracked/state-{state}/action-{action}"
        assert last[f"{name}/mean"] == pytest.approx(found.mean(100)[-1, 0, state, action])
        width = (high - low)[-1, 0, state, action]
        assert last[f"{name}/width"] == pytest.approx(width)
        assert math.isnan(last[f"{name}/value_width"])
    assert list(told.lines[0][1]) == list(before) == list(last)  # columns of a table


def test_lengths_count_the_steps_of_reports_without_an_end():
    told = Told()
    agent = DQN(functools.partial(Counter, last=99, horizon=8), **OPTIONS)
    agent.learn(40, logger=told, report_every=4)
    lengths = [values["rollout/ep_len_mean"] for _, values in told.lines]
    np.testing.assert_array_equal(lengths, [np.nan, 8.0] * 5)


@pytest.mark.parametrize(("kind", "read"), [(CSVLogger, rows_of), (JSONLinesLogger, objects_of)])
def test_a_training_that_goes_on_has_every_line_once(kind, read, tmp_path):
    path = tmp_path / "log"
    first = kind(path)
    for step in (10, 20, 30):
        first.log(step, {"seed": 0, "loss": step})
    with open(path, "a") as file:
        file.write('{"step": 4')  # a kill in the middle of a line
    second = kind(path)
    for step in (20, 30, 40):  # from where it was saved
        second.log(step, {"seed": 0, "loss": -step})
    assert [(int(row["step"]), float(row["loss"])) for row in read(path)] == [
        (10, 10), (20, -20), (30, -30), (40, -40),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [CSVLogger, JSONLinesLogger])
@pytest.mark.parametrize("content", [b"precious\n", b"step,mine\n1,2\n", b"\xff\xfe\n", b"{}\n"])
def test_a_file_of_something_else_is_left_alone(kind, content, tmp_path):
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not a log of this kind; choose another file"):
        kind(path).log(1, {"loss": 1.0})
    assert path.read_bytes() == content


def test_a_column_that_comes_later_is_refused(tmp_path):
    logger = CSVLogger(tmp_path / "log.csv")
    logger.log(1, {"loss": 1.0})
    with pytest.raises(ValueError, match="has no column 'return'"):
        logger.log(2, {"loss": 1.0, "return": 2.0})


def test_what_is_no_logger_is_refused():
    with pytest.raises(TypeError, match=r"log\(step, values\) and close\(\)"):
        DQN("CartPole-v1", **OPTIONS).learn(50, logger=object())


@pytest.mark.parametrize(
    ("kind", "module", "extra"),
    [
        (WandbLogger, "wandb", "wandb"),
        (TrackioLogger, "trackio", "trackio"),
        (lambda: TensorBoardLogger("boards"), "tensorboardX", "tensorboard"),
    ],
)
def test_a_missing_extra_is_one_sentence(kind, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"pip install 'valuetrack\[{extra}\]'\."):
        kind()


def test_the_command_line_writes_them_into_the_folder(tmp_path):
    words = [
        "train", "--env", "CartPole-v1", "--algo", "dqn", "--steps", "200", "--seeds", "2",
        "--logger", "csv", "--logger", "jsonl", "--out", str(tmp_path / "run"),
        "--set", "hidden=[8]", "--set", "learning_starts=20", "--episodes", "1",
    ]  # fmt: skip
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    rows, objects = rows_of(tmp_path / "run" / "log.csv"), objects_of(tmp_path / "run/log.jsonl")
    assert len(rows) == len(objects) == 2 * 50
    assert rows[-1]["step"] == "200"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "wandb", None)
        words[words.index("--out") + 1] = str(tmp_path / "other")
        result = CliRunner().invoke(app, [*words, "--logger", "wandb"])
    assert result.exit_code == 2
    assert "pip install 'valuetrack[wandb]'" in result.stderr
    assert not (tmp_path / "other").exists()


def test_weights_and_biases_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = WandbLogger(mode="offline", dir=str(tmp_path), name="test")
    logger.log(10, {"seed": 3, "train/loss": 0.5, "eval/mean_reward": math.nan})
    logger.close()
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    deadline = time.monotonic() + 30
    while b"train/loss/seed-3" not in path.read_bytes():  # another process writes it
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert b"eval/mean_reward" not in path.read_bytes()


def test_trackio_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    pytest.importorskip("trackio")
    logger = TrackioLogger(project="tests", name="run")
    logger.log(10, {"seed": 3, "train/loss": 0.5, "eval/mean_reward": math.nan})
    logger.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "tests.db")) as stored:
        ((step, metrics),) = stored.execute("select step, metrics from metrics").fetchall()
    assert (step, json.loads(metrics)) == (10, {"train/loss/seed-3": 0.5})
