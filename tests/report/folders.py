"""What the made-up runs of all experiments share: the manifest, consoles and a strict reader."""

import io
from html.parser import HTMLParser

from rich.console import Console

from valuetrack.io.run_folder import RunFolder

VOID = {"meta", "img", "br"}
NASTY = '<script>alert("x")</script> [red]|& $x_$'
ESCAPES = "\x1b[31mred\x1b]0;title\x07\u202e\ud800\n"
FILES = ("summary.json", "tables.md", "report.html")


def spec_row(id, algorithm, env, steps, options=None, env_options=None):
    return {
        "id": id,
        "algorithm": algorithm,
        "env": env,
        "env_options": env_options or {},
        "steps": steps,
        "options": options or {},
    }


def create(path, experiment, measure, spec_rows, rows, seeds, changes=None) -> RunFolder:
    """Make a run without units; ``rows`` are those of the manifest, with their labels."""
    own = {"units": [[0, seeds]], "commit": "f" * 40}
    manifest = {
        "format": 2,
        "experiment": experiment,
        "preset": "reference",
        "spec": {
            "name": experiment,
            "measure": measure,
            "rows": spec_rows,
            "quick": {"rows": [], "seeds": 1, "steps": 1},
        },
        "spec_hash": "0123abcd",
        "seeds": {"first": 0, "count": seeds},
        "rows": [own | row for row in rows],
        "versions": {"valuetrack": "0.1.0", "jax": "0.7.0"},
        "commit": "f" * 40,
        "machine": {"cpu": "a chip", "cores": 2},
        "created": "2025-01-01T00:00:00+00:00",
        "wall_seconds": 1234.5,
    }
    return RunFolder.create(path, manifest | (changes or {}))


def console(width=100):
    return Console(file=io.StringIO(), width=width)


class Checker(HTMLParser):
    """Follows the tags and complains where they do not nest."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.tags, self.links = [], [], set(), []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.add(tag)
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values[name] for name in ("src", "href") if name in values]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check(text):
    """Read a page strictly and return what was found in it."""
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    assert len(checker.ids) == len(set(checker.ids))
    return checker


def check_escaped(folder, printed):
    """Assert that a run labelled `NASTY` shows it, and that nothing obeys it."""
    page = (folder.path / "report.html").read_text()
    assert "script" not in check(page).tags
    assert "&lt;script&gt;" in page
    markdown = (folder.path / "tables.md").read_text()
    assert "<script" not in markdown
    assert r"\[red\]\|" in markdown
    assert NASTY in printed


def check_printable(folder, printed):
    """Assert that nothing of `ESCAPES` has reached the terminal or a file as it was."""
    texts = [printed, *((folder.path / name).read_text(encoding="utf-8") for name in FILES)]
    for text in texts:
        assert {"\x1b", "\x07", "\u202e"}.isdisjoint(text)
    assert all("\ufffd[31mred" in text.replace("\\", "") for text in texts[:3:2])


def without_matplotlib(monkeypatch):
    """Let Matplotlib be missing, and forget the modules that have imported it."""
    import builtins
    import sys

    real = builtins.__import__

    def importing(name, *rest):
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return real(name, *rest)

    for name in ("control.figures", "indoor_escape.figures", "indoor_escape.policy_map"):
        monkeypatch.delitem(sys.modules, f"valuetrack.report.{name}", raising=False)
    monkeypatch.setattr(builtins, "__import__", importing)
