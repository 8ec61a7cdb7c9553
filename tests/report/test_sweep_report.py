"""The report of a sweep from made-up seeds: who is best, and how sure that is."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.report import folders
from tests.report.folders import spec_row
from valuetrack.report import write_report
from valuetrack.report.run_data import read_manifest
from valuetrack.report.sweep.data import improvement, load
from valuetrack.report.sweep.tables import claims

RETURNS = {
    "good": [10.0, 11.0, 12.0, 13.0, 14.0],
    "brave": [90.0, 9.0, 9.0, 9.0, 9.0],  # the last four diverge
    "same": [9.5, 10.5, 12.5, 13.5, 13.0],
    "other": [1.0, 2.0, 3.0, 4.0, 5.0],
}
OTHERS = (
    "discounted_return", "start_value", "value_rmse", "value_bias", "acted_rmse", "policy_value",
    "best_value", "halvings", "looking_seconds",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    rows = [
        spec_row(name, "lktd" if name == "other" else "dqn", "Some|Env-v0", 100, {"tau": 0.5})
        for name in RETURNS
    ]
    labelled = [row | {"label": f"{row['algorithm'].upper()}, {row['id']}"} for row in rows]
    measure = {"kind": "outcome", "points": 2, "episodes": 1}
    made = folders.create(tmp_path / "run", "sweep", measure, rows, labelled, 5)
    for name, returns in RETURNS.items():
        fill(made, name, returns, lost=4 if name == "brave" else 0)
    return made


def fill(folder, name, returns, lost):
    count, points = len(returns), 2
    diverged = np.array([-1] * (count - lost) + [7] * lost)
    seeds = {"row": np.full(count, name), "seed": np.arange(count), "diverged_at": diverged}
    numbers = {column: np.ones(count) for column in OTHERS}
    grid = {
        "row": np.full(count * points, name),
        "seed": np.repeat(np.arange(count), points),
        "point": np.tile([1, 2], count),
        "step": np.tile([50, 100], count),
        "training_return": np.repeat(returns, points),
        "training_episodes": np.ones(count * points),
        "evaluation_return": np.repeat(returns, points),
    }
    tables = {
        "seeds": {
            **seeds, "wall_seconds": np.ones(count), "final_return": np.array(returns), **numbers,
        },
        "points": grid,
    }  # fmt: skip
    folder.finish_unit(name, "seeds-0000-0004", tables, {})


def test_settings_that_fail_often_are_not_the_best(folder):
    (task,) = load(folder, read_manifest(folder)).tasks
    assert [row.id for row in task.rows] == ["good", "same", "other", "brave"]
    assert [row.id for row in task.best_of_each] == ["good", "other"]
    good, same, other, brave = task.rows
    assert improvement(good, brave).probability == pytest.approx(20 / 25)  # failures lose
    assert improvement(good, other) == (1.0, (1.0, 1.0))
    low, high = improvement(good, same).interval
    assert low < 0.5 < high


def test_the_claim_is_about_the_best_of_another_algorithm(folder):
    (claim,) = claims(load(folder, read_manifest(folder)))
    assert claim.statement == "Some|Env-v0: DQN, good is better than LKTD, other"
    assert claim.holds is True
    assert "1.00 [1.00, 1.00]" in claim.measured


def test_the_report_names_what_is_left_out_and_how_to_train_the_best(folder):
    write_report(folder, folders.console())
    tables = (folder.path / "tables.md").read_text()
    assert "diverged and left out: seed 1 (update 7), seed 2 (update 7), seed 3" in tables
    assert "valuetrack train --algo dqn --env 'Some\\|Env-v0' --steps 100 --set tau=0.5" in tables
    summary = json.loads((folder.path / "summary.json").read_text())
    assert summary["best"] == {"Some|Env-v0": ["good", "other"]}
