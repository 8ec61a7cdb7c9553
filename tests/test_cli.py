"""The command line: fast help, errors in one sentence, exit codes."""

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from valuetrack import __version__
from valuetrack.cli import app, sentence

runner = CliRunner()


def fail_with(error):
    def run_check(*args, **kwargs):
        raise error

    return run_check


def test_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from valuetrack.cli import app\n"
        "result = CliRunner().invoke(app, ['--help'])\n"
        "assert result.exit_code == 0 and 'check' in result.output, result.output\n"
        "heavy = {'jax', 'numpy', 'scipy', 'matplotlib', 'gymnasium', 'optax'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_version():
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output.strip() == f"valuetrack {__version__}"


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "--colour"],
        ["check", "--chains", "many"],
        ["check", "--chains", "3"],
        ["check", "--seed", "-1"],
        ["chekc"],
    ],
)
def test_wrong_use_is_explained(arguments):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert "Usage" in result.stderr
    assert "Traceback" not in result.stderr


def test_out_that_is_a_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    result = runner.invoke(app, ["check", "--out", str(path)])
    assert result.exit_code == 2
    assert result.stderr == f"Error: {path} is a file; --out takes a directory.\n"
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "mine"


def test_out_that_cannot_be_written(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path))

    monkeypatch.setattr("valuetrack.checks.report.tempfile.TemporaryFile", refuse)
    result = runner.invoke(app, ["check", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert result.stderr == f"Error: {tmp_path}: Permission denied.\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("alpha must be\n  positive"), "alpha must be positive."),
        (TypeError(""), "TypeError."),
        (ImportError("TensorBoard needs an extra."), "TensorBoard needs an extra."),
        (OSError(errno.EIO, "Input/output error"), "Input/output error."),
        (OSError(errno.ENOSPC, "No space", "a/b"),
         "a/b: No space; free some room, or choose another folder."),
    ],
)  # fmt: skip
def test_errors_become_a_sentence(error, line, monkeypatch, tmp_path):
    assert sentence(error) == line
    monkeypatch.setattr("valuetrack.checks.report.run_check", fail_with(error))
    result = runner.invoke(app, ["check", "--out", str(tmp_path)])
    assert (result.exit_code, result.stderr) == (2, f"Error: {line}\n")
    result = runner.invoke(app, ["--traceback", "check", "--out", str(tmp_path)])
    assert result.exception is error


def test_interrupt(monkeypatch, tmp_path):
    monkeypatch.setattr("valuetrack.checks.report.run_check", fail_with(KeyboardInterrupt()))
    result = runner.invoke(app, ["check", "--out", str(tmp_path)])
    assert (result.exit_code, result.stderr) == (130, "Interrupted.\n")
    said = KeyboardInterrupt("Interrupted; all is saved.")
    monkeypatch.setattr("valuetrack.checks.report.run_check", fail_with(said))
    result = runner.invoke(app, ["check", "--out", str(tmp_path)])
    assert (result.exit_code, result.stderr) == (130, "Interrupted; all is saved.\n")


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 1)])
def test_exit_code_is_the_verdict(passed, code, monkeypatch):
    seen = {}

    def run_check(out, **options):
        seen.update(options, out=out)
        return passed

    monkeypatch.setattr("valuetrack.checks.report.run_check", run_check)
    result = runner.invoke(app, ["check", "--seed", "7", "--chains", "200", "--quick"])
    assert result.exit_code == code
    assert seen["out"] == Path("runs/check")
    assert (seen["seed"], seen["chains"], seen["quick"]) == (7, 200, True)


def test_an_interrupt_waits_until_a_command_is_imported(monkeypatch):
    name, found = "valuetrack.commands.lists", []

    class Finder:
        @staticmethod
        def find_spec(wanted, path=None, target=None):
            if wanted == name:
                signal.raise_signal(signal.SIGINT)
                found.append(name)

    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr("valuetrack.commands.lists", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    result = runner.invoke(app, ["algos"])
    assert (result.exit_code, result.stderr) == (130, "Interrupted.\n")
    assert found
    assert name in sys.modules
