"""Notebooks as pages, with the outputs that they were saved with."""

from __future__ import annotations

from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter

HIDDEN = "parameters"
"""The tag of the cell whose numbers the tests replace."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every notebook; the notebook itself stays, to be downloaded."""
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        place = notebook.src_uri.removesuffix(".ipynb")
        source = nbformat.read(notebook.abs_src_path, as_version=4)
        name = Path(place).name
        text, extracted = MarkdownExporter().from_notebook_node(
            source, {"output_files_dir": name, "unique_key": "figure"}
        )
        link = f'\n<a href="{name}.ipynb" download>Download this notebook</a>\n'
        title, _, rest = text.partition("\n")
        files.append(File.generated(config, f"{place}.md", content=f"{title}\n{link}{rest}"))
        for figure, content in extracted["outputs"].items():
            figure_place = str(Path(place).parent / figure)
            files.append(File.generated(config, figure_place, content=content))
    return files


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let the navigation name notebooks as the other pages do."""
    for part in config.nav or []:
        for name, pages in part.items():
            if isinstance(pages, list):
                part[name] = [_page(page) for page in pages]
    return config


def _page(entry: object) -> object:
    if isinstance(entry, str) and entry.endswith(".ipynb"):
        return entry.removesuffix(".ipynb") + ".md"
    return entry
