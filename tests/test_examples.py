"""The examples run, and say what they promise."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("optimised")  # as whoever copies it
EXAMPLES = Path(__file__).parents[1] / "examples"
LONGEST = 40

PROMISES = {
    "many_seeds": (r"seed 3: Q = ", ("q.nc",)),
    "own_environment": (r"in an empty shop: 1\n", ()),
    "resume": (r"2000 steps, the same bits: True", ("agent.vt",)),
    "samplers_alone": (r"finite: True", ()),
    "track_values": (r"upright -?\d", ("tracking.npz", "tracking.png")),
    "train_and_ask": (r"95 % between", ()),
    "value_of_a_policy": (r"upright: V = -?\d[\s\S]*discounted return \d", ()),
}
"""What each example prints, and the files that it leaves behind."""


def test_every_example_is_tested_and_short():
    scripts = sorted(EXAMPLES.glob("*.py"))
    assert {script.stem for script in scripts} == set(PROMISES)
    for script in scripts:
        assert len(script.read_text(encoding="utf-8").splitlines()) <= LONGEST, script.name


@pytest.mark.parametrize("name", PROMISES)
def test_it_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if name == "many_seeds":
        pytest.importorskip("arviz")
    runpy.run_path(str(EXAMPLES / f"{name}.py"))
    says, files = PROMISES[name]
    assert re.search(says, capsys.readouterr().out)
    assert all((tmp_path / file).is_file() for file in files)
