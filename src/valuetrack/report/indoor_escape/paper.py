"""The paper's numbers, as the package ships them.

``indoor_escape.csv`` and ``compute_time.csv`` hold the paper's own tables;
``reference_all_actions.csv`` what the authors' public results list for all four actions.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources
from typing import NamedTuple

RUNS = 100
"""Seeds behind each of the paper's figures."""

STEPS = 1_000_000
"""Environment steps of each."""

_COLUMNS = {"mse": "mse", "coverage": "cr", "width": "range"}
_DIRECTIONS = {"E": "east", "N": "north"}
_MODELS = {"boot_dqn_10_heads": "bootdqn", "qrdqn_10_quantiles": "qrdqn"}


class Figure(NamedTuple):
    """A mean of the paper's and, where it is known, its standard deviation."""

    mean: float
    sd: float | None = None


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
    return {
        _row_id(line["algorithm"], line["pseudo_population"]): {
            action: {
                metric: Figure(float(line[f"{name}_{way}"]), float(line[f"{name}_{way}_sd"]))
                for metric, name in _COLUMNS.items()
            }
            for action, way in _DIRECTIONS.items()
        }
        for line in _read("indoor_escape.csv")
    }


@cache
def all_actions() -> Figures:
    """Return the means of the authors' public results, all four actions; no sd is given."""
    return {
        _MODELS.get(line["model"], line["model"].replace("_", "-")): {
            action: {
                metric: Figure(float(line[f"mean_{name}_{action}"]))
                for metric, name in _COLUMNS.items()
            }
            for action in ("E", "N", "W", "S")
        }
        for line in _read("reference_all_actions.csv")
    }


@cache
def compute_time() -> dict[Setting, Time]:
    """Return the table of times per update, measured by the authors on four cores."""
    return {
        (_algorithm(line["algorithm"]), _widths(line["hidden_layers"]), int(line["batch_size"])): (
            Time(float(line["ms_per_update"]), float(line["ms_per_iteration"]))
        )
        for line in _read("compute_time.csv")
    }


def _read(name: str) -> list[dict[str, str]]:
    file = resources.files(__package__).joinpath("paper_tables", name)
    return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))


def _row_id(algorithm: str, pseudo_population: str) -> str:
    name = _algorithm(algorithm)
    return f"{name}-{pseudo_population}" if pseudo_population else name


def _algorithm(label: str) -> str:
    return label.lower().replace("-", "")


def _widths(text: str) -> tuple[int, ...]:
    return tuple(int(width) for width in text.split("-"))
