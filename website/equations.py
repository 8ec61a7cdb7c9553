"""Equations without the network: MathJax comes from a package and travels with the site."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

PACKAGE = "sphinx-mathjax-offline"
SCRIPT = "tex-chtml.js"
"""TeX in, HTML with fonts out."""
PLACE = "assets/mathjax"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add MathJax's script and its fonts."""
    try:
        installed = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise PluginError(f"Install {PACKAGE} (extra `docs`): equations need it.") from None
    script = next(Path(str(file.locate())) for file in installed if file.name == SCRIPT)
    fonts = sorted((script.parent / "output" / "chtml" / "fonts").rglob("*.woff"))
    for source in [script, *fonts]:
        place = f"{PLACE}/{source.relative_to(script.parent).as_posix()}"
        files.append(File.generated(config, place, abs_src_path=str(source)))
    config.extra_javascript.append(f"{PLACE}/{SCRIPT}")
    return files
