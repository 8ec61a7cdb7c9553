"""The studies run, and the page shows what they found."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from rich.console import Console

from valuetrack.checks import rates, rates_report

ROOT = Path(__file__).parents[1]
STUDIES = ROOT / "studies"
RESULTS = ROOT / "results" / "studies"
FOUND = {"gradient_noise": "gradient-noise", "sparsity": "sparsity", "monitoring": "monitoring"}


def run(script: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.syspath_prepend(STUDIES)
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    mpl.use("agg")
    try:
        runpy.run_path(str(STUDIES / f"{script}.py"), run_name="__main__")
    finally:
        sys.modules.pop("common", None)


def test_every_study_is_tested():
    scripts = {path.stem for path in STUDIES.glob("*.py")} - {"common"}
    assert scripts == set(FOUND)


@pytest.mark.parametrize("script", FOUND)
def test_a_quick_study_writes_everything(script, tmp_path, monkeypatch, capsys):
    run(script, monkeypatch, "--quick", "--out", str(tmp_path))
    name = FOUND[script]
    document = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    assert document["study"] == name
    table = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    assert "nan" not in table
    assert table in capsys.readouterr().out
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    if script == "gradient_noise":  # one set of minibatches for all: ratios are precise
        for row in document["problems"]["linear regression"]["rows"]:
            assert row["measured_same_step"] == pytest.approx(row["same_step"], rel=0.15)


@pytest.mark.parametrize("script", FOUND)
def test_the_kept_tables_and_figures_follow_from_the_kept_numbers(script, tmp_path, monkeypatch):
    name = FOUND[script]
    (tmp_path / f"{name}.json").write_bytes((RESULTS / name / f"{name}.json").read_bytes())
    run(script, monkeypatch, "--redraw", "--out", str(tmp_path))
    assert (tmp_path / f"{name}.md").read_text() == (RESULTS / name / f"{name}.md").read_text()


def test_quick_rates_write_everything_and_agree(tmp_path):
    assert rates_report.run_rates(tmp_path, quick=True, seed=1, console=Console(quiet=True))
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"rates.json", "rates.md", "rates.png", "w2.png"}
    curves = rates.load(tmp_path)
    assert [curve.setting for curve in curves] == rates.settings(rates.POWERS[1:2])
    written = (tmp_path / "rates.md").read_text(encoding="utf-8")
    assert rates.markdown(curves) in written


def test_the_kept_table_of_rates_follows_from_the_kept_numbers():
    curves = rates.load(RESULTS / "rates")
    assert max(abs(z) for curve in curves for z in curve.chains.z.values()) < rates_report.LARGEST_Z
    written = (RESULTS / "rates" / "rates.md").read_text(encoding="utf-8")
    for table in (rates.markdown, rates.own_markdown, rates.proof_markdown):
        assert table(curves) in written
    fresh = [c for c in curves if c.setting == rates.Setting(c.setting.power)]
    for curve in fresh:
        np.testing.assert_allclose(
            rates.measured(curve), rates.predicted(curve.setting.power), atol=0.06
        )


def test_the_page_shows_the_kept_tables():
    page = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    kept = "\n".join(path.read_text(encoding="utf-8") for path in RESULTS.glob("*/*.md"))
    measured = {line for line in kept.splitlines() if line.startswith("| ")}
    shown = [
        line
        for line in page.splitlines()
        if line.startswith("| ") and sum(char.isdigit() for char in line) > 8
    ]
    assert len(shown) > 30
    assert [line for line in shown if line not in measured] == []
