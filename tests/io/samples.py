"""A small but real run, and manifests of one."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from valuetrack.io.run_folder import RunFolder

ROW: dict[str, Any] = {
    "id": "cartpole-lktd",
    "algorithm": "lktd",
    "env": "CartPole-v1",
    "env_options": {},
    "steps": 1_000,
    "options": {"hidden": [8], "step_size": 1e-05},
}
MANIFEST: dict[str, Any] = {
    "format": 2,
    "experiment": "classic-control",
    "preset": "reference",
    "spec": {"name": "classic-control", "measure": {"kind": "control"}, "rows": [ROW]},
    "spec_hash": "0123abcd",
    "seeds": {"first": 0, "count": 4},
    "rows": [ROW | {"label": "LKTD, σ = 2", "units": [[0, 2], [2, 2]], "commit": None}],
    "versions": {"valuetrack": "0.1.0"},
    "commit": "f" * 40,
    "machine": {"cpu": "a chip", "cores": 2},
    "created": "2025-01-01T00:00:00+00:00",
}
TABLE = {
    "row": np.array(["a", "b"]),
    "seed": np.array([1, 2]),
    "mse": np.array([0.1, np.pi]),
    "final": np.array([True, False]),
}


def manifest(place: str = "", value: Any = None) -> dict[str, Any]:
    """Return a good manifest, or one with another value at a place such as ``rows.0.id``.

    Without a value, the place is removed.
    """
    content = copy.deepcopy(MANIFEST)
    if place:
        *parents, last = [int(x) if x.isdigit() else x for x in place.split(".")]
        inner: Any = content
        for parent in parents:
            inner = inner[parent]
        if value is None:
            del inner[last]
        else:
            inner[last] = value
    return content


def create(path: Any) -> RunFolder:
    return RunFolder.create(path, MANIFEST)
