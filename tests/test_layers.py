"""Imports go down the levels of the design only, and nothing in a file can become code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "valuetrack"

LEVELS = {
    0: ["interrupts", "programs", "types"],
    1: [
        "alarms",
        "arviz_data",
        "convolution",
        "diagnostics",
        "envs",
        "host_networks",
        "io",
        "measurement",
        "metrics",
        "networks",
        "noise",
        "policies",
        "posterior",
        "priors",
        "replay",
        "rng",
        "schedules",
        "scores",
    ],
    2: ["samplers"],
    3: ["learner", "losses"],
    4: ["behaviours", "normalisation", "training", "values"],
    5: ["api"],
    6: ["agents"],
    7: ["registry"],
    8: ["checks", "experiments", "live_page", "report", "sb3"],
    9: ["commands", "zoo"],
    10: ["cli"],
    11: ["__init__", "__main__"],  # the front doors: nobody imports them, save for the version
}
LEVEL = {part: level for level, parts in LEVELS.items() for part in parts}
OPEN_LEVEL = 1
"""The level whose parts may import each other."""

FORBIDDEN_MODULES = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {"eval", "exec"}

Edge = tuple[str, str]


def module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def modules(source: Path) -> dict[str, ast.Module]:
    paths = sorted(source.rglob("*.py"))
    return {module_name(path, source): ast.parse(path.read_text("utf-8")) for path in paths}


def imports(name: str, tree: ast.Module, known: set[str]) -> Iterator[str]:
    """Yield the modules of the package that a module imports, anywhere in its text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively; write out valuetrack."
            dotted = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in dotted:
            package, _, inside = target.partition(".")
            if package == "valuetrack" and inside != "__version__":
                yield longest_known(inside, known)


def longest_known(dotted: str, known: set[str]) -> str:
    """Return the module in ``part.module.name``, where the name may be a function."""
    while dotted and dotted not in known:
        dotted = dotted.rpartition(".")[0]
    return dotted or "__init__"


def part(module: str) -> str:
    return module.partition(".")[0]


def edges(source: Path) -> list[Edge]:
    trees = modules(source)
    return [
        (name, target)
        for name, tree in trees.items()
        for target in imports(name, tree, set(trees))
        if target != name
    ]


def unknown_parts(source: Path) -> set[str]:
    return {part(name) for name in modules(source)} - set(LEVEL)


def upward(source: Path) -> list[Edge]:
    """Return the imports of a higher part, or of another one on the same level."""
    wrong = []
    for importer, imported in edges(source):
        here, there = LEVEL[part(importer)], LEVEL[part(imported)]
        same_part = part(importer) == part(imported)
        if there > here or (there == here and not same_part and here != OPEN_LEVEL):
            wrong.append((importer, imported))
    return wrong


def samplers_that_import_another(source: Path) -> list[Edge]:
    return [
        (importer, imported)
        for importer, imported in edges(source)
        if importer.startswith("samplers.")
        and part(imported) == "samplers"
        and imported not in ("samplers.base", "samplers.units")
    ]


def without_types(tree: ast.Module) -> ast.Module:
    """Return a module without what only type checkers import."""

    class Dropped(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
            types_only = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            return node.orelse if types_only else self.generic_visit(node)

    return Dropped().visit(tree)


def cycle(source: Path) -> list[str]:
    graph: dict[str, set[str]] = {}
    trees = modules(source)
    for name, tree in trees.items():
        found = set(imports(name, without_types(tree), set(trees)))
        graph[name] = found - {name}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def code_from_data(source: Path) -> list[str]:
    """Return where a module could turn what it reads into code: pickles, eval, exec."""
    found = []
    for name, tree in modules(source).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                used = {part(alias.name) for alias in node.names} & FORBIDDEN_MODULES
            elif isinstance(node, ast.ImportFrom):
                used = {part(node.module or "")} & FORBIDDEN_MODULES
            elif isinstance(node, ast.Name):
                used = {node.id} & FORBIDDEN_CALLS
            elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                never = isinstance(node.value, ast.Constant) and node.value.value is False
                used = set() if never else {"allow_pickle"}
            else:
                continue
            found += [f"{name}:{node.lineno}: {what}" for what in sorted(used)]
    return found


def test_every_module_has_a_level():
    unknown = unknown_parts(SOURCE)
    assert not unknown, f"Add {sorted(unknown)} to LEVELS in {Path(__file__).name}."


def test_imports_go_down_the_levels_only():
    assert upward(SOURCE) == []


def test_no_sampler_imports_another():
    assert samplers_that_import_another(SOURCE) == []


def test_no_imports_in_a_circle():
    assert cycle(SOURCE) == []


def test_no_data_becomes_code():
    assert code_from_data(SOURCE) == []


def test_the_imports_are_really_read():
    found = edges(SOURCE)
    assert ("priors", "schedules") in found  # from valuetrack import schedules
    assert ("samplers.lktd", "samplers.base") in found
    assert ("samplers", "samplers.sgld") in found


# -- the checks themselves, on a small tree that breaks one rule at a time ----------------------


@pytest.fixture
def tree(tmp_path: Path):
    def write(sources: dict[str, str]) -> Path:
        for name, text in sources.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("line", "imported"),
    [
        ("from valuetrack.agents import dqn", "agents.dqn"),
        ("from valuetrack.agents import SomeClass", "agents"),
        ("from valuetrack import agents", "agents"),
        ("import valuetrack.agents.dqn", "agents.dqn"),
        ("def f():\n    from valuetrack.agents.dqn import act", "agents.dqn"),
    ],
)
def test_an_upward_import_is_seen(tree, line, imported):
    source = tree({"priors": line, "agents/__init__": "", "agents/dqn": ""})
    assert upward(source) == [("priors", imported)]


@pytest.mark.parametrize(
    ("sources", "wrong"),
    [
        ({"io/a": "import valuetrack.sb3", "sb3": ""}, [("io.a", "sb3")]),
        ({"api/a": "from valuetrack import registry", "registry": ""}, [("api.a", "registry")]),
        ({"api/a": "import valuetrack.agents.b", "agents/b": ""}, [("api.a", "agents.b")]),
        ({"priors": "from valuetrack import schedules", "schedules": ""}, []),
        ({"agents/a": "from valuetrack.agents.b import f", "agents/b": ""}, []),
        ({"cli": "from valuetrack import __version__"}, []),
        ({"priors": "from valuetrack import name"}, [("priors", "__init__")]),
    ],
)
def test_imports_on_the_same_level(tree, sources, wrong):
    assert upward(tree(sources)) == wrong


def test_a_new_module_is_seen(tree):
    assert unknown_parts(tree({"priors": "", "wishes/a": ""})) == {"wishes"}


def test_a_circle_is_seen(tree):
    source = tree({"priors": "import valuetrack.replay", "replay": "import valuetrack.priors"})
    assert set(cycle(source)) == {"priors", "replay"}


def test_types_alone_make_no_circle(tree):
    types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import valuetrack.priors"
    sources = {"priors": "import valuetrack.replay", "replay": types}
    assert cycle(tree(sources)) == []
    assert set(cycle(tree({**sources, "replay": f"{types}\nimport valuetrack.priors"})))


def test_a_sampler_that_imports_another_is_seen(tree):
    imports_base = "from valuetrack.samplers.base import Info"
    imports_both = f"from valuetrack.samplers.sgld import sgld\n{imports_base}"
    source = tree(
        {"samplers/base": "", "samplers/sgld": imports_base, "samplers/kova": imports_both}
    )
    assert samplers_that_import_another(source) == [("samplers.kova", "samplers.sgld")]


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "import cloudpickle as c",
        "x = eval('1')",
        "run = exec",
        "np.load(f, allow_pickle=True)",
    ],
)
def test_code_from_data_is_seen(tree, text):
    assert len(code_from_data(tree({"io/a": text}))) == 1


@pytest.mark.parametrize(
    "text", ["'''Writes no pickle.'''", "np.load(f, allow_pickle=False)", "model.eval()"]
)
def test_harmless_text_is_let_through(tree, text):
    assert code_from_data(tree({"io/a": text})) == []
