"""What editors, ``help`` and type checkers know of the options."""

from __future__ import annotations

import inspect
import os
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import valuetrack as vt
from valuetrack.commands.stub import stub
from valuetrack.registry import AGENTS, CLASSES

SOURCE = Path(__file__).parents[1] / "src"
RIGHT = """
import valuetrack as vt
vt.LKTD("CartPole-v1", seed=0, hidden=64, learning_rate=1e-3)
vt.LKTD("CartPole-v1", hidden=[64, 64], step_size={"schedule": "cyclical", "cycle_length": 9})
vt.DQN(lambda: None, env_options={}, convolutions=None, backend="host", replay_capacity=None)
vt.ValueTracker("CartPole-v1", lambda observation: 0, of="q")
vt.load("agent.vt", env="CartPole-v1")
vt.keep_programs()
"""
WRONG = {
    'vt.LKTD("CartPole-v1", lernin_rate=1)': 'did you mean "learning_rate"?',
    'vt.LKTD("CartPole-v1", batch_size="many")': 'expected "int"',
    'vt.LKTD("MlpPolicy", "CartPole-v1")': "Too many positional arguments",
    'vt.DQN("CartPole-v1", alpha=0.5)': 'Unexpected keyword argument "alpha"',
    'vt.DQN("CartPole-v1", backend="gpu")': "expected \"Literal['auto', 'compiled', 'host']\"",
    'vt.Agent("CartPole-v1")': 'Module has no attribute "Agent"',
}


def test_the_stub_is_what_the_registry_says():
    written = (SOURCE / "valuetrack" / "__init__.pyi").read_text(encoding="utf-8")
    assert written == stub(), "write the stub again: its first lines say how"


def test_mypy_knows_every_option(tmp_path):
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text("\n".join(["import valuetrack as vt", *WRONG]))
    options = ["--follow-imports=skip", "--no-error-summary", f"--cache-dir={tmp_path / 'cache'}"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "right.py", "wrong.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "right.py" not in done.stdout, done.stdout
    for number, telling in enumerate(WRONG.values(), start=2):
        said = [line for line in done.stdout.splitlines() if f"wrong.py:{number}: error" in line]
        assert any(telling in line for line in said), done.stdout + done.stderr


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_signatures_have_every_option_with_its_default(kind):
    parameters = inspect.signature(kind).parameters
    for name, field in kind.options_type.model_fields.items():
        assert parameters[name].default == field.default
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    assert not any("Annotated" in str(one.annotation) for one in parameters.values())


def test_help_lists_the_options():
    said = pydoc.plain(pydoc.render_doc(vt.LKTD))
    for expected in ("learning_rate: ", "hidden: ", "(256, 256)", "likelihood_weight: float"):
        assert expected in said


def test_dir_has_the_classes_and_nothing_that_is_not_for_users():
    assert {"load", "keep_programs", "__version__"} <= set(dir(vt))
    assert {kind.__name__ for kind in AGENTS.values()} <= set(dir(vt))
    assert not {"Any", "TYPE_CHECKING", "annotations"} & set(dir(vt))


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_every_option_is_described(kind):
    """In the headings of a numpydoc section, which ``valuetrack algos`` prints."""
    lines = (kind.options_type.__doc__ or "").splitlines()
    described = {name for line in lines for name in line.split(", ") if not line.startswith(" ")}
    assert set(kind.options_type.model_fields) <= described
