"""Run the notebooks of the documentation and keep what comes out: ``make notebooks``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
PARAMETERS = "parameters"
"""The tag of the cell whose numbers may be replaced."""
TIME_LIMIT = 1800
"""Seconds for one cell, on a busy machine."""


def executed(path: Path, folder: Path, **parameters: int) -> Any:
    """Return a notebook with its outputs, run in a folder, with other parameters if given."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if PARAMETERS in cell.metadata.get("tags", ()):
            cell.source += "".join(f"\n{name} = {value}" for name, value in parameters.items())
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(
        notebook, resources=where, timeout=TIME_LIMIT, record_timing=False, kernel_name="python3"
    ).execute()
    return notebook


def main(names: list[str]) -> None:
    """Run the named notebooks, or all, and write their outputs into them."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            with tempfile.TemporaryDirectory() as folder:
                notebook = executed(path, Path(folder))
            nbformat.write(notebook, path)
            print(f"{path.name}: written", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
