"""Links from pages to files outside ``docs/``, which work in the repository, work on the site.

Every file that a page links to is put under ``files/``: code and tables as pages, pictures and
the rest as they are, folders as lists of what is in them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)#\s]+)(#[^)\s]*)?(\))")
ON_THE_SITE = {
    ROOT / "README.md": "index.md",
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    DOCS: "guide.md",
}
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".yaml": "yaml", ".sh": "bash"}
NOT_LISTED = {"units", "__pycache__"}
"""Parts of a folder that are not shown: the raw tables of single seeds."""
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"

_sources: dict[str, Path] = {}
"""The page on the site -> the file that it shows, against which its links are resolved."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every file that a page links to, those that added pages link to included."""
    _sources.clear()
    _sources.update({page: source for source, page in ON_THE_SITE.items() if source.is_file()})
    _sources["index.md"] = DOCS / "index.md"
    waiting = [page for page in files if page.is_documentation_page()]
    while waiting:
        page = waiting.pop()
        for target in _targets(page):
            place = place_of(target)
            if files.get_file_from_path(place) is None:
                added = _added(target, place, config)
                files.append(added)
                if added.is_documentation_page():
                    _sources[place] = target
                    waiting.append(added)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to the places of the site."""

    def replaced(found: re.Match[str]) -> str:
        start, target, anchor, end = found.groups()
        path = _resolved(target, page.file.src_uri)
        if path is None:
            return found.group()
        here = PurePosixPath(page.file.src_uri).parent
        return f"{start}{os.path.relpath(place_of(path), here)}{anchor or ''}{end}"

    return LINK.sub(replaced, markdown)


def place_of(target: Path) -> str:
    """Return where a file of the repository is on the site."""
    if target in ON_THE_SITE:
        return ON_THE_SITE[target]
    if target.is_relative_to(DOCS):
        place = target.relative_to(DOCS).as_posix()
        return place.removesuffix(".ipynb") + ".md" if place.endswith(".ipynb") else place
    place = f"files/{target.relative_to(ROOT).as_posix()}"
    if target.is_dir():
        return f"{place}/index.md"
    return f"{place}.md" if target.suffix in LANGUAGES else place


def _targets(page: File) -> list[Path]:
    """Return the files that a page links to."""
    found = (_resolved(link.group(2), page.src_uri) for link in LINK.finditer(page.content_string))
    return [path for path in found if path is not None]


def _resolved(target: str, page: str) -> Path | None:
    """Return the file of the repository that a link means, or ``None`` if it is no file."""
    if "://" in target or target.startswith("mailto:"):
        return None
    source = _sources.get(page, DOCS / page)
    folder = source if source.is_dir() else source.parent
    path = Path(os.path.normpath(folder / target))
    if not path.exists():
        return None  # a page that is made for the site, or a mistake that MkDocs will tell
    if not path.is_relative_to(ROOT):
        raise PluginError(f"{page} links to {target}, which is outside the repository.")
    return path


def _added(target: Path, place: str, config: MkDocsConfig) -> File:
    """Return a file of the repository as one of the site."""
    name = target.relative_to(ROOT).as_posix()
    if target.is_dir():
        return File.generated(config, place, content=UNSEARCHED + _listed(target, name))
    if target.suffix in LANGUAGES:
        code = target.read_text(encoding="utf-8")
        fenced = f"````{LANGUAGES[target.suffix]}\n{code}````\n"
        return File.generated(config, place, content=f"{UNSEARCHED}# `{name}`\n\n{fenced}")
    if target.suffix == ".md":
        text = target.read_text(encoding="utf-8")
        title = "" if text.startswith("# ") else f"# `{name}`\n\n"
        return File.generated(config, place, content=UNSEARCHED + title + text)
    return File.generated(config, place, abs_src_path=str(target))


def _listed(folder: Path, name: str) -> str:
    """Return a page that lists a folder: its figures shown, its other files linked."""
    lines = [f"# `{name}`", ""]
    files = sorted(_shown(folder))
    for file in files:
        inside = file.relative_to(folder).as_posix()
        lines += [f"- [`{inside}`]({inside})"]
    for file in files:
        inside = file.relative_to(folder).as_posix()
        if file.suffix == ".png":
            lines += ["", f"![{inside}]({inside})"]
    return "\n".join(lines) + "\n"


def _shown(folder: Path) -> list[Path]:
    """Return the files below a folder that a reader may want."""
    found = []
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name not in NOT_LISTED:
            found += _shown(entry)
        elif entry.is_file():
            found.append(entry)
    return found
