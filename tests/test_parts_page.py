"""The numbers of docs/parts.md are those of the stored run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
RUN = ROOT / "results" / "parts" / "n-step"


def test_the_table_of_n_step_targets_is_the_runs():
    page = (ROOT / "docs" / "parts.md").read_text(encoding="utf-8")
    rows = json.loads((RUN / "manifest.json").read_text(encoding="utf-8"))["rows"]
    assert len(rows) == 6
    for row in rows:
        (file,) = (RUN / "units" / row["id"]).glob("*/seeds.parquet")
        columns = pq.read_table(file).to_pydict()
        final, value, came = (
            np.array(columns[name]) for name in ("final_return", "start_value", "discounted_return")
        )
        line = (
            f"| {row['label']} | {final.mean():.0f} ({final.min():.0f} to {final.max():.0f}) | "
            f"{value.mean():.1f} | {came.mean():.1f} |"
        )
        assert line in page, line
