"""The command line: ``valuetrack --help`` lists what it can do.

Nothing heavy is imported before a command runs, so that help and completion answer at once: the
options of a command are in :mod:`valuetrack.commands.options`, its function in a module that is
imported when it is called. Ctrl-C waits until that is done: JAX calls Python from places where an
interrupt would be lost.
"""

from __future__ import annotations

import errno
import importlib
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from valuetrack import __version__
from valuetrack.commands import INTERRUPTED, WRONG_USE, options, search_options
from valuetrack.interrupts import Uninterrupted
from valuetrack.programs import keep_programs_by_environment

HANDLED = (
    ValueError, TypeError, OSError, RuntimeError, ImportError, OverflowError, MemoryError,
)  # fmt: skip
"""What a command may raise with a sentence for its user."""
COMMANDS = {
    options.Check: "check",
    options.Reproduce: "reproduce",
    search_options.Sweep: "sweep",
    search_options.Tune: "tune",
    options.Report: "reproduce",
    options.Train: "train",
    options.Evaluate: "train",
    options.Values: "values",
    options.Calibrate: "calibrate",
    options.Watch: "watch",
    options.Envs: "lists",
    options.Algos: "lists",
}
"""The options of each command -> the module of :mod:`valuetrack.commands` that runs it."""


class Command(TyperCommand):
    """Reads its options, then calls the function of its name."""

    def invoke(self, ctx: Any) -> None:
        """Run the command; what its function returns is the exit code."""
        given = super().invoke(ctx)
        with Uninterrupted():
            module = importlib.import_module(f"valuetrack.commands.{COMMANDS[type(given)]}")
        if code := getattr(module, str(self.name))(given, make_console()):
            raise typer.Exit(code)


class Commands(TyperGroup):
    """Commands whose errors are sentences, not tracebacks."""

    def invoke(self, ctx: Any) -> object:
        """Run a command; ``--traceback`` lets its errors through."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            typer.echo(str(stopped) or "Interrupted.", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise  # typer's own ways to end; a reader that has gone ends it quietly
        except HANDLED as error:
            if ctx.params.get("traceback"):
                raise
            typer.echo(f"Error: {sentence(error)}", err=True)
            raise typer.Exit(getattr(error, "exit_code", WRONG_USE)) from None


app = typer.Typer(
    cls=Commands,
    help="Deep reinforcement learning that knows how sure it is of its values.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _options in COMMANDS:
    app.command(_options.__name__.lower(), cls=Command)(_options)


def sentence(error: Exception) -> str:
    """Say in one line what went wrong."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        text += "; free some room, or choose another folder" * (error.errno == errno.ENOSPC)
    text = " ".join(text.split()) or type(error).__name__
    return text if text.endswith((".", "!", "?")) else f"{text}."


def make_console() -> Console:
    """Return the console for results; a file or a pipe gets lines wide enough for the tables."""
    return Console() if sys.stdout.isatty() else Console(width=120)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"valuetrack {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="On an error, show where it arose.")
    ] = False,
) -> None:
    """Take the options that stand before the command."""


def main() -> None:
    """Run the command line."""
    keep_programs_by_environment()
    app()


if __name__ == "__main__":
    main()
