"""The notebooks run, and are kept with the outputs of a whole run."""

from __future__ import annotations

import nbformat
import pytest

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

from website.run_notebooks import FOLDER, PARAMETERS, executed

SMALL = {
    "cartpole": {"steps": 2_000, "episodes": 2},
    "grid": {"steps": 6_000},
    "own-environment": {"steps": 2_000},
}
"""The numbers that the tests put in place of those in the cell of parameters."""
FIGURES = {"cartpole": 3, "grid": 2, "own-environment": 1}


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def figures(notebook):
    return sum("image/png" in output.get("data", {}) for output in outputs(notebook))


def test_every_notebook_is_tested():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(SMALL) == set(FIGURES)


@pytest.mark.parametrize("name", SMALL)
def test_it_is_kept_with_its_outputs(name):
    kept = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    assert figures(kept) == FIGURES[name]
    assert not [output for output in outputs(kept) if output.get("name") == "stderr"]
    (parameters,) = [c for c in kept.cells if PARAMETERS in c.metadata.get("tags", ())]
    for parameter in SMALL[name]:
        assert f"{parameter} = " in parameters.source


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("name", SMALL)
def test_it_runs(name, tmp_path):
    notebook = executed(FOLDER / f"{name}.ipynb", tmp_path, **SMALL[name])
    assert figures(notebook) == FIGURES[name]
