"""Compiled programs on disk: where they are, who decides, and that they are used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from valuetrack import programs

TRAIN = """
import jax, valuetrack as vt
vt.keep_programs({folder!r})
hits = []
jax.monitoring.register_event_listener(
    lambda event, **_: hits.append(event) if event.endswith("/cache_hits") else None
)
agent = vt.DQN("valuetrack/IndoorEscape-v0", hidden=(4,), learning_starts=20, seed=1).learn(40)
print(len(hits), float(abs(jax.tree.leaves(agent.trainer.states)[0]).sum()))
"""


def start(code: str, **variables: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **variables},
    )
    return ended.stdout.strip()


@pytest.fixture
def variables(monkeypatch, tmp_path) -> dict[str, str]:
    """The environment's variables, in which nobody has chosen a cache yet; changes are undone."""
    chosen = (*programs.CHOICES, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    variables = {name: value for name, value in os.environ.items() if name not in chosen}
    variables["XDG_CACHE_HOME"] = str(tmp_path)
    monkeypatch.setattr(os, "environ", variables)
    return variables


def test_that_a_second_start_takes_what_the_first_compiled_but_nothing_cut_short(tmp_path):
    code = TRAIN.format(folder=str(tmp_path / "kept"))
    (first_hits, first), (second_hits, second) = start(code).split(), start(code).split()
    assert int(first_hits) < int(second_hits)
    assert int(second_hits) >= 3  # the start, the steps without updates, the training
    assert first == second
    entries = list((tmp_path / "kept").glob("*-cache"))
    assert entries
    for entry in entries:
        entry.write_bytes(entry.read_bytes()[:100])
    third_hits, third = start(code).split()
    assert int(third_hits) < int(second_hits)
    assert third == first


COMPILE = """
import warnings; warnings.simplefilter("error")
import jax
{begin}
hits = []
jax.monitoring.register_event_listener(
    lambda event, **_: hits.append(event) if event.endswith("/cache_hits") else None
)
def f(x):
    return jax.numpy.tanh(x @ x.T).sum()
x = jax.numpy.ones((3, 3))
values = float(jax.jit(f)(x)) + float(jax.jit(jax.grad(f))(x).sum())
print(len(hits), values)
"""


@pytest.mark.parametrize(
    "begin",
    [
        "from valuetrack import programs; programs.SECONDS = 0; programs.keep_programs({folder!r})",
        "import valuetrack.training",
    ],
    ids=["script", "command line"],
)
def test_that_a_damaged_entry_is_replaced_without_a_warning(tmp_path, begin):
    code = COMPILE.format(begin=begin.format(folder=str(tmp_path)))
    variables = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)}
    hits, result = start(code, **variables).split()
    entries = sorted(tmp_path.glob("*-cache"))
    assert len(entries) >= 3
    whole = [entry.stat().st_size for entry in entries]
    for i, entry in enumerate(entries):
        entry.write_bytes(damaged(entry.read_bytes(), i))
    assert start(code, **variables).split() == [hits, result]  # all compiled again
    assert [entry.stat().st_size for entry in entries] == pytest.approx(whole, rel=0.1)
    again, same = start(code, **variables).split()
    assert int(again) >= len(entries) > int(hits)
    assert same == result


def damaged(entry: bytes, i: int) -> bytes:
    """An entry that is empty, cut short, or has one wrong bit."""
    middle = len(entry) // 2
    flipped = entry[:middle] + bytes([entry[middle] ^ 4]) + entry[middle + 1 :]
    return (b"", entry[:100], flipped)[i % 3]


def test_that_the_command_line_keeps_programs_in_the_cache_of_the_user(variables, tmp_path):
    programs.keep_programs_by_environment()
    folder = Path(variables["JAX_COMPILATION_CACHE_DIR"])
    assert folder.is_dir()
    assert folder.parent == tmp_path / "valuetrack"


@pytest.mark.parametrize(
    ("name", "value"),
    [("JAX_COMPILATION_CACHE_DIR", "elsewhere"), ("JAX_ENABLE_COMPILATION_CACHE", "false")],
)
def test_that_what_the_user_chose_for_jax_stays(variables, tmp_path, name, value):
    variables[name] = value
    programs.keep_programs_by_environment()
    assert variables[name] == value
    assert not list(tmp_path.iterdir())


def test_that_nothing_is_kept_where_no_folder_can_be_made(variables, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    assert programs.keep_programs(tmp_path / "file" / "below") is None
    variables["XDG_CACHE_HOME"] = str(tmp_path / "file")
    programs.keep_programs_by_environment()
    assert "JAX_COMPILATION_CACHE_DIR" not in variables


def test_that_nothing_is_kept_by_who_has_no_home(variables, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    del variables["XDG_CACHE_HOME"]
    monkeypatch.setattr(Path, "home", no_home)
    programs.keep_programs_by_environment()
    assert "JAX_COMPILATION_CACHE_DIR" not in variables
    assert programs.keep_programs() is None


def test_that_a_script_too_leaves_what_the_user_chose(variables, tmp_path):
    before = jax.config.jax_compilation_cache_dir
    variables["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    programs.keep_programs()
    assert jax.config.jax_compilation_cache_dir == before
    assert not list(tmp_path.iterdir())


def test_that_another_processor_has_another_folder(monkeypatch):
    mine = programs.default_folder()
    monkeypatch.setattr(programs, "_processor", lambda: "another")
    assert programs.default_folder() != mine
