"""The paper's numbers, as the package ships them.

``indoor_escape.csv`` and ``compute_time.csv`` hold the paper's own tables;
``reference_all_actions.csv`` what the authors' public results list for all four actions.
"""

from __future__ import annotations

import csv
import math
from functools import cache
from importlib import resources
from typing import NamedTuple

RUNS = 100
"""Seeds behind each of the paper's figures."""

STEPS = 1_000_000
"""Environment steps of each."""


class Figure(NamedTuple):
    """A mean of the paper's and, where it is known, its standard deviation."""

    mean: float
    sd: float | None = None

    @property
    def se(self) -> float:
        """The standard error of the mean, zero where it is not known."""
        return (self.sd or 0.0) / math.sqrt(RUNS)


class Time(NamedTuple):
    """Milliseconds for one update and for one of its inner iterations."""

    ms_per_update: float
    ms_per_iteration: float


Setting = tuple[str, tuple[int, ...], int]
"""Algorithm, widths of the hidden layers, batch size."""

Figures = dict[str, dict[str, dict[str, Figure]]]
"""Row id -> action -> metric -> figure."""


@cache
def indoor_escape() -> Figures:
    """Return the tables of MSE, coverage and width: actions E and N, trimmed mean and sd."""
    return _figures("indoor_escape.csv")


@cache
def all_actions() -> Figures:
    """Return the means of the authors' public results, all four actions; no sd is given."""
    return _figures("reference_all_actions.csv")


@cache
def compute_time() -> dict[Setting, Time]:
    """Return the table of times per update, measured by the authors on four cores."""
    times = {}
    for line in _read("compute_time.csv"):
        hidden = tuple(int(width) for width in line["hidden"].split("-"))
        time = Time(float(line["ms_per_update"]), float(line["ms_per_iteration"]))
        times[line["algorithm"], hidden, int(line["batch_size"])] = time
    return times


def _figures(name: str) -> Figures:
    figures: Figures = {}
    for line in _read(name):
        sd = float(line["sd"]) if line["sd"] else None
        actions = figures.setdefault(line["row"], {})
        actions.setdefault(line["action"], {})[line["metric"]] = Figure(float(line["mean"]), sd)
    return figures


def _read(name: str) -> list[dict[str, str]]:
    file = resources.files(__package__).joinpath("paper_tables", name)
    return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
