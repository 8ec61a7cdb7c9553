"""The documentation site is built without a warning, and needs nobody else's server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

for package in ("mkdocs", "material", "mkdocstrings_handlers.python", "nbconvert"):
    pytest.importorskip(package, reason="the extra docs is not installed")

ROOT = Path(__file__).parents[1]
ELSEWHERE = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//[^"]+"')


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


def test_there_is_a_page_for_everything(site):
    pages = {str(page.relative_to(site)) for page in site.rglob("*.html")}
    asked = {"index", "five-minutes", "intervals", "equations", "benchmarks", "contributing"}
    asked |= {"changelog", "notebooks/grid", "api/lktd", "api/dqn", "api/samplers", "api/load"}
    asked |= {"files/examples/index", "files/skeletons/sampler.py", "files/results/check/index"}
    assert {f"{name}.html" for name in asked} <= pages


def test_it_needs_no_other_server(site):
    assert (site / "assets" / "mathjax" / "tex-chtml.js").is_file()
    assert list((site / "assets" / "mathjax").rglob("*.woff"))
    loading = {
        str(page.relative_to(site)): found
        for page in site.rglob("*.html")
        if (found := ELSEWHERE.findall(page.read_text(encoding="utf-8")))
    }
    assert not loading


def test_equations_and_outputs_are_shown(site):
    intervals = (site / "intervals.html").read_text(encoding="utf-8")
    assert 'class="arithmatex"' in intervals
    notebook = (site / "notebooks" / "grid.html").read_text(encoding="utf-8")
    assert notebook.count("<img") == 2
    sampler = (site / "api" / "samplers.html").read_text(encoding="utf-8")
    shown = re.sub(r"<details.*?</details>", "", sampler, flags=re.DOTALL)  # without the source
    assert "arithmatex" in shown
    assert ":math:" not in shown
    assert ":func:" not in shown
