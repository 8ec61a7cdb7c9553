"""Stable-Baselines3's own tests of DQN, with LKTD in DQN's place.

``TESTS`` is the folder ``tests`` of SB3's source; the source package of the installed version has
it::

    pip download --no-deps --no-binary :all: --no-build-isolation stable-baselines3==VERSION
    tar xzf stable_baselines3-VERSION.tar.gz
    python benchmarks/sb3_tests.py stable_baselines3-VERSION/tests

Chosen are all test items that have DQN as a parameter, and those whose function names DQN and has
no other algorithm as a parameter. They run twice: as they are, and with ``stable_baselines3.DQN``
being ``valuetrack.sb3.LKTD`` before they import it; nothing else is changed. Each file has its own
process. The table says of each item how it ended, how many models of the class it made, and, where
LKTD fails, why (:data:`REASONS`). SB3's ``test_utils.py`` imports the package ``ale-py``.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from common import HERE, SINGLE_THREAD, versions, write_json

NAMES = re.compile(r"\bDQN\b")
NO_OPTIMISER = (
    "chooses PyTorch's optimiser; LKTD's sampler is in its place, with options of its own"
)
NO_MODULES = "a feature extractor of PyTorch's modules (batch norm, dropout); networks are JAX's"
REASONS = {
    "test_custom_optimizer": NO_OPTIMISER,
    "test_dqn_custom_policy": NO_OPTIMISER,
    "test_dqn_train_with_batch_norm": NO_MODULES,
    "test_offpolicy_collect_rollout_batch_norm": NO_MODULES,
    "test_predict_with_dropout_batch_norm": NO_MODULES,
    "test_eval_callback_logs_are_written_with_the_correct_timestep": (
        "looks for the log in the folder DQN_1; LKTD's is LKTD_1"
    ),
    "test_save_load_no_target_params": (
        "a file of SB3 before 2.4 with an optimiser over PyTorch's parameters"
    ),
    "test_features_extractor_target_net": (
        "all but its last check hold: it sets `lr_schedule` to zero, which is an optimiser's; the "
        "sampler has its own schedule"
    ),
    "test_image_like_input": (
        "expects that floats of three axes are refused as images; here they are taken as they are"
    ),
    "test_fps_logger": (
        "expects 100 steps within a second; the first updates are compiled meanwhile"
    ),
    "test_performance_her": (
        "expects DQN's success within 1,500 steps; a posterior from so few transitions is wide. "
        "After 10,000 steps the rate of success is 0.98 and 1.0 (by hand, seeds 0 and 1)"
    ),
}
"""Why LKTD fails a test, by its name."""


class Chosen:
    """A pytest plugin: chooses the items of an algorithm, and keeps how they ended."""

    def __init__(self, kind: Any) -> None:
        from stable_baselines3.common.base_class import BaseAlgorithm  # noqa: PLC0415

        self.kind, self.base, self.made = kind, BaseAlgorithm, 0
        self.rows: dict[str, dict[str, Any]] = {}
        begin = kind.__init__

        def counted(model: Any, *args: Any, **kwargs: Any) -> None:
            self.made += 1
            begin(model, *args, **kwargs)

        counted.__signature__ = inspect.signature(begin)
        kind.__init__ = counted

    def is_chosen(self, item: Any) -> bool:
        """Return whether an item is of DQN, in whose place ``kind`` may be."""
        params = getattr(item, "callspec", None)
        given = params.params.values() if params else ()
        algorithms = [p for p in given if isinstance(p, type) and issubclass(p, self.base)]
        named = NAMES.search(inspect.getsource(item.function)) is not None
        return self.kind in algorithms or (named and not algorithms)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep the chosen items."""
        items[:] = filter(self.is_chosen, items)

    def pytest_runtest_setup(self) -> None:
        """Count from zero."""
        self.made = 0

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep how an item ended."""
        if report.when == "call" or report.outcome != "passed":
            end = getattr(report.longrepr, "reprcrash", None)
            message = end.message if end else str((report.longrepr or ("",))[-1])
            file, _, test = report.nodeid.partition("::")
            test = re.sub(rf"\b{self.kind.__name__}\b", "DQN", test)  # one name for both runs
            self.rows[f"{Path(file).name}::{test}"] = {
                "outcome": report.outcome,
                "models": self.made,
                "message": message.splitlines()[0] if message else "",
            }


def run_file(file: Path, algorithm: str) -> dict[str, Any]:
    """Run the chosen items of one file, in this process."""
    import pytest  # noqa: PLC0415 - after the algorithm is in its place
    import stable_baselines3  # noqa: PLC0415

    if algorithm == "LKTD":
        from valuetrack.sb3 import LKTD  # noqa: PLC0415

        stable_baselines3.DQN = LKTD
    plugin = Chosen(stable_baselines3.DQN)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line", "--rootdir"]
    pytest.main([*options, str(file.parents[1]), str(file)], plugins=[plugin])
    return plugin.rows


def run_all(tests: Path, algorithm: str) -> dict[str, dict[str, Any]]:
    """Run the chosen items of all files that name DQN, a process each."""
    rows: dict[str, dict[str, Any]] = {}
    for file in sorted(tests.glob("test_*.py")):
        if not NAMES.search(file.read_text()):
            continue
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "rows.json"
            command = [sys.executable, str(HERE / "sb3_tests.py"), str(file), "--one", algorithm]
            subprocess.run(
                [*command, "--out", str(out)],
                cwd=tests.parent,
                env={**os.environ, "JAX_PLATFORMS": "cpu", **SINGLE_THREAD},
                check=True,
            )
            rows.update(json.loads(out.read_text()))
    return rows


def joined(dqn: dict[str, Any], lktd: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row per item: how it ended with each, and why LKTD failed."""
    rows = []
    for name in sorted(dqn.keys() | lktd.keys()):
        file, _, test = name.partition("::")
        mine = lktd.get(name, {"outcome": "missing", "models": 0, "message": ""})
        function = test.partition("[")[0]
        reason = REASONS.get(function, "") if mine["outcome"] == "failed" else ""
        rows.append(
            {
                "file": file,
                "test": test,
                "dqn": dqn.get(name, {"outcome": "missing"})["outcome"],
                "lktd": mine["outcome"],
                "models": mine["models"],
                "reason": reason or ("" if mine["outcome"] == "passed" else mine["message"]),
            }
        )
    return rows


def counts(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Count how the items ended."""
    ended = Counter(row["lktd"] for row in rows)
    return {
        "files": len({row["file"] for row in rows}),
        "items": len(rows),
        "passed": ended["passed"],
        "failed": ended["failed"],
        "skipped": ended["skipped"],
        "passed without a model": sum(r["lktd"] == "passed" and not r["models"] for r in rows),
        "passed with DQN": sum(row["dqn"] == "passed" for row in rows),
    }


def as_text(rows: list[dict[str, Any]], numbers: dict[str, int], used: dict[str, str]) -> str:
    """Write the table."""
    lines = [
        "# Stable-Baselines3's own tests of DQN, with LKTD in its place",
        "",
        f"{numbers['items']} items in {numbers['files']} files of stable-baselines3 "
        f"{used['stable-baselines3']}. With DQN itself {numbers['passed with DQN']} pass. "
        f"With LKTD {numbers['passed']} pass, {numbers['failed']} fail, and {numbers['skipped']} "
        f"are skipped. {numbers['passed without a model']} of those that pass end without making a "
        "model, for DQN as well. Made by `python benchmarks/sb3_tests.py TESTS`, with `ale-py` "
        "installed.",
        "",
        "| file | test | DQN | LKTD | models | why |",
        "|---|---|---|---|--:|---|",
    ]
    for row in rows:
        why = row["reason"].replace("|", "\\|")
        cells = [row["file"], f"`{row['test']}`", row["dqn"], row["lktd"], row["models"], why]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the tests and write ``own-tests.json`` and ``own-tests.md``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tests", type=Path, help="the folder tests of SB3's source")
    parser.add_argument("--out", type=Path, default=Path("results/sb3"), help="folder")
    parser.add_argument("--one", choices=("DQN", "LKTD"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    tests = given.tests.resolve()
    if given.one:
        given.out.write_text(json.dumps(run_file(tests, given.one)))
        return
    used = versions("valuetrack", "jax", "numpy", "torch", "gymnasium", "stable-baselines3")
    rows = joined(run_all(tests, "DQN"), run_all(tests, "LKTD"))
    numbers = counts(rows)
    write_json({**numbers, "versions": used, "tests": rows}, given.out, "own-tests")
    (given.out / "own-tests.md").write_text(as_text(rows, numbers, used))
    print(numbers)


if __name__ == "__main__":
    main()
