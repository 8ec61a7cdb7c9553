"""What the README and the page of samplers show works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("optimised")  # as whoever copies it
ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = ("README.md", "docs/samplers.md")
BLOCKS = [
    (page, code)
    for page in PAGES
    for code in re.findall(
        r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL
    )
]


@pytest.mark.parametrize(("page", "code"), BLOCKS, ids=[page for page, _ in BLOCKS])
def test_python_examples_run(page, code, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    namespace: dict[str, object] = {}
    exec(compile(code, page, "exec"), namespace)
    printed = capsys.readouterr().out
    if "finite:" in code:
        covered = float(re.search(r"covered: ([\d.]+)", printed).group(1))
        assert printed.startswith("finite: True")
        assert covered > 0.8


def test_the_two_commands_come_first():
    first_block = re.search(r"```bash\n(.*?)```", README, flags=re.DOTALL).group(1)
    assert first_block.splitlines()[0].startswith("make run")
    assert first_block.splitlines()[1].startswith("make test")


def test_links_lead_somewhere():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} -> {target}"


def test_both_pages_have_code():
    assert {page for page, _ in BLOCKS} == set(PAGES)
