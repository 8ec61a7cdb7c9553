"""Pages that are not in ``docs/``: those at the top of the repository, and one per algorithm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from valuetrack.registry import AGENTS

ROOT = Path(__file__).parents[1]
AT_THE_TOP = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""A page at the top of the repository -> its place on the site."""
ALGORITHMS = {kind.__name__: f"api/{kind.name}.md" for kind in AGENTS.values()}
"""A class -> its page."""
ONE_ALGORITHM = """\
::: {module}.{name}
    options:
      heading: vt.{name}
      toc_label: {name}
      members: false
      show_source: false

Its methods are those of every [agent](agent.md).

::: {options}
    options:
      heading: Its own options
      heading_level: 2
      toc_label: Its own options
      members: false
      show_source: false
      inherited_members: false

All of them with their defaults are in [the table of options](../options.md#{anchor}).
"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put every algorithm into the part of the navigation that has the API."""
    for part in config.nav or []:
        if "API" in part:
            part["API"][2:2] = [{name: page} for name, page in ALGORITHMS.items()]
    _list_the_rest(config)
    return config


def _list_the_rest(config: MkDocsConfig) -> None:
    """Add pages that the navigation does not name to the guides: a new page needs no other line."""
    named = set(_named(config.nav))
    pages = sorted(Path(config.docs_dir).glob("*.md"))
    for part in config.nav or []:
        if "Guides" in part:
            part["Guides"] += [page.name for page in pages if page.name not in named]


def _named(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    below = entry.values() if isinstance(entry, dict) else entry or []
    return [name for part in below for name in _named(part)]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for source, place in AT_THE_TOP.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=text))
    for kind in AGENTS.values():
        text = ONE_ALGORITHM.format(
            module=kind.__module__,
            name=kind.__name__,
            options=f"{kind.options_type.__module__}.{kind.options_type.__name__}",
            anchor=kind.label.lower(),
        )
        files.append(File.generated(config, ALGORITHMS[kind.__name__], content=text))
    return files
