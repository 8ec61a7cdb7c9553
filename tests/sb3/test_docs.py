"""What docs/sb3.md shows works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("stable_baselines3")

from valuetrack.agents.lktd import LKTDOptions
from valuetrack.sb3.names import NAMED_BY_SB3

PAGE = (Path(__file__).parents[2] / "docs" / "sb3.md").read_text(encoding="utf-8")


def test_the_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it writes a file
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, "sb3.md", "exec"), names)
    assert names["model"].num_timesteps == 800
    assert names["q"].samples.shape[1:] == (1, 2)
    assert (tmp_path / "lktd-cartpole.zip").exists()


def test_every_other_name_is_in_the_table():
    table = PAGE.partition("| `vt.LKTD` |")[2].partition("\n\n")[0]
    first_column = {
        name
        for line in table.splitlines()[2:]
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    fixed = {"form", "gradient", "batch_size", "learning_starts"}
    assert first_column == set(NAMED_BY_SB3) - fixed
    assert first_column <= set(LKTDOptions.model_fields)
