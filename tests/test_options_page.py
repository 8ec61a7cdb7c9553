"""The page of options says what the registry says."""

from __future__ import annotations

from pathlib import Path

from valuetrack.commands.lists import options_page
from valuetrack.registry import AGENTS

PAGE = Path(__file__).parents[1] / "docs" / "options.md"


def test_the_page_is_what_the_registry_says():
    written = PAGE.read_text(encoding="utf-8")
    assert written == options_page() + "\n", "write the page again: its first lines say how"


def test_every_option_of_every_algorithm_is_on_the_page():
    page = options_page()
    for kind in AGENTS.values():
        assert f"## {kind.label}\n" in page
        for name in kind.options_type.model_fields:
            assert f"| `{name}` |" in page
