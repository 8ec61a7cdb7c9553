"""What the documentation says of a run is what the run says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from valuetrack.io.tables import read_table

ROOT = Path(__file__).parents[1]
RUN = ROOT / "results" / "indoor-escape"
RUNS = (RUN, ROOT / "results" / "indoor-escape-paper")
EQUATIONS = ROOT / "results" / "indoor-escape-forms"
CONTROL = ROOT / "results" / "classic-control"
SARSA = ROOT / "results" / "classic-control-sarsa"
SETTINGS = ROOT / "results" / "lktd-settings"
HONEST = ROOT / "results" / "honest-values"
STUDIES = ROOT / "results" / "studies"
MASKS = STUDIES / "wrong-mask" / "wrong-mask.md"
TRUTH = STUDIES / "simulated-truth" / "simulated-truth.md"
FORMS = ROOT / "results" / "lktd-forms"
DOC = (ROOT / "docs" / "indoor-escape.md").read_text(encoding="utf-8")


def table_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| ")]


def test_the_tables_are_those_of_the_runs():
    files = [*(run / "tables.md" for run in (*RUNS, EQUATIONS)), MASKS, TRUTH]
    written = [file.read_text(encoding="utf-8") for file in files]
    measured = {line for text in written for line in table_lines(text)}
    shown = [line for line in table_lines(DOC) if any(char.isdigit() for char in line)]
    assert len(shown) > 50
    assert [line for line in shown if line not in measured] == []


def test_the_run_is_of_one_clean_commit_and_large_enough():
    manifest = json.loads((RUN / "manifest.json").read_text(encoding="utf-8"))
    for row in manifest["rows"]:
        assert "dirty" not in row["commit"]
        seeds = sum(count for _, count in row["units"])
        assert seeds >= (5 if row["id"] == "kova" else 100)
        assert row["steps"] == 1_000_000


TASKS = {
    "FrozenLake": ("frozenlake", "1+"),
    "CliffWalking": ("cliffwalking", "1+"),
    "CartPole": ("cartpole", "all"),
    "Acrobot": ("acrobot", "all"),
}
"""The tasks of the page on honest values, and which state-actions its tables are about."""
NUMBERS = ("coverage_80", "coverage_95", "width", "interval_score", "rank")


def mean_scores(row: str, kind: str, visits: str) -> list[float]:
    """Return the numbers of one row of a run, means over its seeds."""
    tables = [read_table(p) for p in sorted((HONEST / "units" / row).glob("*/intervals.parquet"))]
    columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    chosen = columns["kind"] == kind
    chosen &= (columns["action"] == "all") & (columns["visits"] == visits)
    assert len(set(columns["seed"][chosen])) >= 5
    return [float(np.nanmean(columns[name][chosen])) for name in NUMBERS]


def test_the_numbers_of_honest_values_are_those_of_the_run():
    tables = (HONEST / "tables.md").read_text(encoding="utf-8")
    lines = table_lines((ROOT / "docs" / "honest-values.md").read_text(encoding="utf-8"))
    assert [line for line in lines if " ± " in line and line not in tables] == []
    by_action = [re.search(r"(\| \d\.\d\d \(\d\.\d+\) ){4}\|", line) for line in lines]
    shown = [found.group() for found in by_action if found]
    assert len(shown) == 12
    assert [numbers for numbers in shown if numbers not in tables] == []
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rows = [row for row in rows if row[0] in TASKS]
    assert len(rows) == 28
    for task, label, kind, *numbers in rows:
        name, visits = TASKS[task]
        row = f"{name}-{label.lower().replace('-', '')}"
        for shown_number, number in zip(numbers, mean_scores(row, kind, visits), strict=True):
            # As many digits as are shown.
            assert float(shown_number) == pytest.approx(number, rel=0.005, abs=0.0051), row


def test_the_run_of_honest_values_is_of_clean_commits():
    manifest = json.loads((HONEST / "manifest.json").read_text(encoding="utf-8"))
    assert not any("dirty" in row["commit"] for row in manifest["rows"])


def test_the_numbers_of_classic_control_are_those_of_the_run():
    written = [
        (run / "tables.md").read_text(encoding="utf-8") for run in (CONTROL, SARSA, SETTINGS, FORMS)
    ]
    measured = {line for text in written for line in table_lines(text)}
    text = (ROOT / "docs" / "classic-control.md").read_text(encoding="utf-8")
    shown = [line for line in table_lines(text) if " ± " in line]
    assert len(shown) >= 5
    assert [line for line in shown if line not in measured] == []


@pytest.mark.parametrize("run", [CONTROL, SETTINGS], ids=lambda run: run.name)
def test_the_rows_of_classic_control_are_whole_and_of_clean_commits(run):
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    for row in manifest["rows"]:
        assert "dirty" not in row["commit"]
        assert sum(count for _, count in row["units"]) >= 5
        for first, count in row["units"]:
            unit = run / "units" / row["id"] / f"seeds-{first:04d}-{first + count - 1:04d}"
            assert (unit / "points.parquet").is_file()


@pytest.mark.parametrize("run", [*RUNS, CONTROL, SARSA, SETTINGS, FORMS], ids=lambda run: run.name)
def test_the_runs_are_small_enough_to_travel(run):
    assert sum(path.stat().st_size for path in run.rglob("*") if path.is_file()) < 8e6


@pytest.mark.parametrize("share", ["0.977", "0.154"])
def test_the_shares_in_the_text_are_measured(share):
    assert share in (RUN / "tables.md").read_text(encoding="utf-8")
    assert share in DOC


def test_the_cost_of_thinning_is_the_measured_one():
    measured = table_lines(
        (ROOT / "results" / "benchmarks" / "thinning.md").read_text(encoding="utf-8")
    )
    page = table_lines((ROOT / "docs" / "intervals.md").read_text(encoding="utf-8"))
    shown = [line for line in page if line.endswith("% |")]
    assert len(shown) == 4
    assert [line for line in shown if line not in measured] == []


@pytest.mark.parametrize(
    "question", ["peers", "seeds", "updates", "optimisations", "throughput", "growth", "startup"]
)
def test_the_speeds_are_the_measured_ones(question):
    folder = ROOT / "results" / "benchmarks"
    measured = (folder / f"{question}.md").read_text(encoding="utf-8").strip()
    assert measured in (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert not json.loads((folder / f"{question}.json").read_text(encoding="utf-8"))["quick"]


def test_the_returns_of_the_zoos_training_are_measured():
    with np.load(ROOT / "results" / "sb3" / "cartpole-lktd.npz") as saved:
        returns = saved["results"].mean(axis=1)
    line = " | ".join(f"{value:.1f}" for value in returns)
    assert f"| return | {line} |" in (ROOT / "docs" / "sb3.md").read_text(encoding="utf-8")
