"""The numbers of docs/parts.md are those of the stored runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "results" / "parts"


@pytest.mark.parametrize(("run", "count"), [("n-step", 6), ("noisy", 4)])
def test_the_tables_are_the_runs(run, count):
    page = (ROOT / "docs" / "parts.md").read_text(encoding="utf-8")
    rows = json.loads((RUNS / run / "manifest.json").read_text(encoding="utf-8"))["rows"]
    assert len(rows) == count
    for row in rows:
        (file,) = (RUNS / run / "units" / row["id"]).glob("*/seeds.parquet")
        columns = pq.read_table(file).to_pydict()
        final, value, came = (
            np.array(columns[name]) for name in ("final_return", "start_value", "discounted_return")
        )
        line = (
            f"| {row['label']} | {final.mean():.0f} ({final.min():.0f} to {final.max():.0f}) | "
            f"{value.mean():.1f} | {came.mean():.1f} |"
        )
        assert line in page, line
