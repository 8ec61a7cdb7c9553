"""A training's bar in a notebook, in a kernel as Jupyter starts it."""

from __future__ import annotations

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

CELL = """
from valuetrack.api.progress_bar import Bar, show_bar
with show_bar(Bar("LKTD", 2_000, "steps", begin=500, times=2)) as move:
    move(1_500)
"""


@pytest.mark.filterwarnings("ignore")  # of the kernel's own libraries
def test_a_notebook_shows_the_bar_at_its_end():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    nbclient.NotebookClient(notebook, timeout=120).execute()
    outputs = notebook.cells[0].outputs
    shown = [output.data for output in outputs if output.output_type == "display_data"]
    assert len(shown) == 1, outputs
    assert '<progress value="1500" max="2000">' in shown[0]["text/html"]
    assert shown[0]["text/plain"].startswith("LKTD  1,500/2,000 steps  ")
    assert not [output for output in outputs if output.output_type == "stream"]
