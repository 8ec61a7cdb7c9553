"""What the documentation shows works: its code, its command lines, its links, its notebooks."""

from __future__ import annotations

import gc
import re
import shlex
import tomllib

import numpy as np
import pytest
import typer

import valuetrack as vt
from tests.docs_pages import PAGES, ROOT, blocks, commands_of, python_of
from valuetrack.api.agent import Agent
from valuetrack.api.playing import Player
from valuetrack.cli import app
from valuetrack.experiments import spec, sweep
from valuetrack.experiments.tuning.space import read_space

ELSEWHERE = {"docs/sb3.md": "tests/sb3/test_docs.py"}
"""Pages whose code has a test of its own."""
WITH_CODE = [name for name in PAGES if name not in ELSEWHERE and python_of(PAGES[name], name)]
SMALL = {"hidden": (8,), "learning_starts": 100}
MOST = {
    "total_timesteps": 1_000,
    "evaluate_every": 500,
    "track_intervals_every": 50,
    "seeds": 2,
    "episodes": 40,
    "evaluation_episodes": 1,
}
OTHERS = {"cd", "pip", "python3", "ray", "rm", "ssh", "tail", "."}
"""Programs that are not ours."""


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Cut trainings short and make networks small, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    begin = Agent.__init__

    def begun(self, *args, **given):
        begin(self, *args, **{**SMALL, **_cut(given)})

    monkeypatch.setattr(Agent, "__init__", begun)
    for kind, name in [(Agent, "learn"), (Player, "play"), (Player, "calibrate")]:
        monkeypatch.setattr(kind, name, _shortened(getattr(kind, name)))


@pytest.fixture(scope="module")
def agent():
    """Return the agent that pages have when they begin: it has learned a little."""
    return vt.LKTD("CartPole-v1", seed=0, **SMALL).learn(MOST["total_timesteps"])


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore:The seeds disagree:RuntimeWarning")
@pytest.mark.parametrize("page", WITH_CODE)
def test_python_blocks_run(page, small, agent, capsys, request):
    if page == "docs/samplers.md":
        request.getfixturevalue("optimised")
    known = {"vt": vt, "np": np, "agent": agent, "observation": [0.0, 0.1, 0.02, -0.1]}
    for code in python_of(PAGES[page], page):
        exec(code, known)
    del known
    gc.collect()  # what a page leaves open is said here, not in the middle of another test
    printed = capsys.readouterr().out
    if page == "docs/samplers.md":
        finite, covered = re.search(r"finite: (\w+), covered: ([\d.]+)", printed).groups()
        assert finite == "True"
        assert float(covered) > 0.8


@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(PAGES[page])])
def test_command_lines_are_understood(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for line in commands_of(PAGES[page]):
        words = shlex.split(line)
        while re.match(r"\w+=", words[0]):  # variables before a command
            del words[0]
        program, *words = words
        if program == "valuetrack":
            understand(words)
        elif program == "make":
            targets = set(re.findall(r"^([a-z]+):", _text("Makefile"), flags=re.MULTILINE))
            assert {word for word in words if "=" not in word} <= targets, line
        elif program == "python":
            assert words[0] in {"-c", "-m"} or (ROOT / words[0]).is_file(), line
        elif program == "pip":
            asked = re.findall(r"\[([\w,]+)\]", line)
            extras = tomllib.loads(_text("pyproject.toml"))["project"]["optional-dependencies"]
            assert set(",".join(asked).split(",")) <= {"", *extras}, line
        else:
            assert program in OTHERS, line


def understand(words):
    """Parse a command line with the command's own parser; run nothing."""
    group = typer.main.get_command(app)
    if words[0].startswith("--"):
        assert words[0] in {name for param in group.params for name in param.opts}
        return
    name, *rest = words
    outer = group.make_context("valuetrack", [name])
    given = group.commands[name].make_context(name, rest, parent=outer).params
    if name == "reproduce":
        choices = {} if given.get("preset") is None else {"preset": given["preset"]}
        experiment = spec.load(given["experiment"], **choices)
        asked = given["rows"].split(",") if given.get("rows") else []
        assert set(asked) <= {row.id for row in experiment.rows}
    if name in {"train", "calibrate"} and given.get("algo"):
        vt.registry.agent_type(given["algo"])


def test_a_wrong_command_line_is_found():
    with pytest.raises(Exception, match="No such option"):
        understand(["train", "--env", "CartPole-v1", "--stpes", "3"])
    with pytest.raises(AssertionError):
        understand(["reproduce", "indoor-escape", "--rows", "nobody"])


def test_files_of_sweeps_are_valid():
    found = [(code.code, page) for page, text in PAGES.items() for code in blocks(text, "toml")]
    assert len(found) == 2
    for text, page in found:
        data = tomllib.loads(text)
        if "environments" in data:
            assert len(sweep.resolve_sweep(data, page).rows) == 24  # as the page says
        else:
            assert set(read_space(data, page)) == set(data)


def test_the_two_commands_come_first():
    first = commands_of(PAGES["README.md"])[:2]
    assert [line.split()[:2] for line in first] == [["make", "run"], ["make", "test"]]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    folder = (ROOT / page).parent
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", PAGES[page]):
        if target.startswith("http"):
            continue
        path = (folder / target).resolve() if target else ROOT / page
        made = page.startswith("docs/api/") or _made_for_the_site(path)
        assert path.exists() or made, f"{page} -> {target}"
        if anchor and path.suffix == ".md" and path.exists():
            assert anchor in _anchors(path), f"{page} -> {target}#{anchor}"


def _made_for_the_site(path):
    return path.parent == ROOT / "docs" / "api"


def _anchors(path):
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", line.lower())) for line in headings}


def _text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def _cut(given):
    return {
        key: min(value, MOST[key]) if key in MOST and value is not None else value
        for key, value in given.items()
    }


def _shortened(method):
    first = "total_timesteps" if method.__name__ == "learn" else "episodes"

    def shortened(self, *count, **given):
        return method(self, **_cut({**given, **dict(zip([first], count, strict=False))}))

    return shortened
