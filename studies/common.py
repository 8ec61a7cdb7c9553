"""What the studies share: options of the command, agents of an experiment's rows, files."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import valuetrack as vt
from valuetrack.experiments.spec import load
from valuetrack.io.atomic import write_atomically
from valuetrack.registry import agent_type

EXPERIMENT = "indoor-escape-forms"


def options(description: str | None, out: str, steps: int = 300_000) -> argparse.Namespace:
    """Read the command line: where to write, and whether a first look is enough."""
    return parser(description, out, steps).parse_args()


def parser(description: str | None, out: str, steps: int = 300_000) -> argparse.ArgumentParser:
    """Return the options that all studies have; a study may add its own."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--out", type=Path, default=Path(out), help="folder for the results")
    made.add_argument("--quick", action="store_true", help="small, to see that it runs")
    made.add_argument("--steps", type=int, default=steps, help="environment steps of a training")
    made.add_argument("--redraw", action="store_true", help="draw again what is in the folder")
    return made


def trained(row: str, *, seeds: int, steps: int, **changed: Any) -> Any:
    """Train the agent of a row of the experiment with the forms of LKTD on the grid."""
    chosen = load(EXPERIMENT, steps=steps).row(row)
    agent = agent_type(chosen.algorithm)(
        chosen.env, env_options=chosen.env_options, seeds=seeds, **{**chosen.options, **changed}
    )
    return agent.learn(chosen.steps)


def write(folder: Path, name: str, document: Mapping[str, Any], table: str, figure: Figure) -> None:
    """Write a study's JSON, its table and its figure."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = {"valuetrack": vt.__version__, "study": name, **document}
    text = json.dumps(whole, indent=1, ensure_ascii=False) + "\n"
    write_atomically(folder / f"{name}.json", lambda file: file.write(text.encode()))
    write_atomically(folder / f"{name}.md", lambda file: file.write((table + "\n").encode()))
    write_atomically(
        folder / f"{name}.png", lambda file: figure.savefig(file, format="png", dpi=150)
    )
    print(table)
    print(f"Wrote {name}.json, {name}.md and {name}.png to {folder}.")


def read(folder: Path, name: str) -> dict[str, Any]:
    """Read a study's JSON back."""
    document: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return document
