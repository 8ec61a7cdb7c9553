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
from valuetrack.commands import INTERRUPTED, WRONG_USE, options
from valuetrack.interrupts import Uninterrupted
from valuetrack.programs import keep_programs_by_environment

HANDLED = (
    ValueError, TypeError, OSError, RuntimeError, ImportError, OverflowError, MemoryError,
)  # fmt: skip
"""What a command may raise with a sentence for its user."""
COMMANDS = {
    options.Check: "check",
    options.Reproduce: "reproduce",
    options.Report: "reproduce",
    options.Train: "train",
    options.Evaluate: "train",
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


<<<<<<< HEAD
=======
@app.command()
def check(
    out: Annotated[Path, typer.Option(help="Directory for check.json and the figures.")] = Path(
        "runs/check"
    ),
    chains: Annotated[
        int, typer.Option(min=100, max=1_000_000, help="Independent chains in each row.")
    ] = 4096,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same table.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="One row for each sampler only.")] = False,
    rates: Annotated[
        bool, typer.Option("--rates", help="Weighted averages under decreasing steps instead.")
    ] = False,
) -> None:
    """Compare every sampler with the exact law it must have on a linear-Gaussian model.

    With --rates, compare weighted averages under decreasing steps with their exact errors. Exits
    with 1 if a sampler departs from its law.

    Examples
    --------
      valuetrack check --quick

      valuetrack check --rates --out runs/rates
    """
    with Uninterrupted():
        from valuetrack.checks import rates_report, report  # noqa: PLC0415  (keeps --help fast)

    run = rates_report.run_rates if rates else report.run_check
    if not run(out, chains=chains, seed=seed, quick=quick, console=make_console()):
        raise typer.Exit(FAILED)


@app.command()
def reproduce(
    experiment: Annotated[
        str, typer.Argument(help="indoor-escape, classic-control or lktd-settings.")
    ],
    rows: Annotated[
        str | None, typer.Option(help="Rows to run, for instance lktd-10000,dqn; all by default.")
    ] = None,
    env: Annotated[
        str | None, typer.Option(help="Only the rows in this environment; not for indoor-escape.")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000,
            help="How many seeds; 100 by default, or as many as a run that is there has.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="The first seed.")] = 0,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Environment steps of each seed, as in the paper.")
    ] = None,
    preset: Annotated[
        Preset, typer.Option(help="What the tables were made with, or the equations as printed.")
    ] = Preset.reference,
    quick: Annotated[bool, typer.Option("--quick", help="A first look in minutes.")] = False,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/... by default.")] = None,
    resume: Annotated[
        bool, typer.Option(help="Go on with an unfinished run in the folder.")
    ] = True,
    timing: Annotated[
        bool, typer.Option(help="Also measure the time per update, when all is trained.")
    ] = True,
) -> None:
    """Run an experiment of the paper, with its numbers beside ours.

    Examples
    --------
      valuetrack reproduce indoor-escape --quick

      valuetrack reproduce indoor-escape --rows lktd-10000,dqn --seeds 20 --out runs/two-rows

      valuetrack reproduce classic-control --env CartPole-v1 --seeds 10
    """
    with Uninterrupted():
        from valuetrack.commands import reproduce as command  # noqa: PLC0415  (keeps --help fast)

    finished = command.reproduce(
        experiment,
        rows=rows,
        env=env,
        seeds=seeds,
        first_seed=seed,
        steps=steps,
        preset=preset.value,
        quick=quick,
        out=out,
        resume=resume,
        timing=timing,
        console=make_console(),
    )
    if not finished:
        raise typer.Exit(INTERRUPTED)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
) -> None:
    """Make the tables, figures and the page of a run again from its folder.

    Examples
    --------
      valuetrack report runs/indoor-escape-quick
    """
    with Uninterrupted():
        from valuetrack.io.run_folder import RunFolder  # noqa: PLC0415
        from valuetrack.report import write_report  # noqa: PLC0415  (keeps --help fast)

    console = make_console()
    page = write_report(RunFolder.open(run), console)
    console.print(f"Report: {page}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def train(
    env: Annotated[str, typer.Option(help="The Gymnasium id of the environment.")],
    algo: Annotated[str, typer.Option(help="One of those that `valuetrack algos` lists.")] = "lktd",
    steps: Annotated[int, typer.Option(min=1, help="Environment steps of each seed.")] = 100_000,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**31 - 1, help="The first seed; 0 by default.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Trained side by side; 1 by default.")
    ] = None,
    backend: Annotated[
        Backend | None,
        typer.Option(
            help="Under one jit or stepped in Python; auto, by default, compiles if it can."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A hyperparameter; may be repeated."),
    ] = None,
    env_set: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An option of the environment; may be repeated."),
    ] = None,
    import_: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Import this first, to register yours."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder; runs/... by default.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the agent in the folder, up to --steps.")
    ] = False,
    evaluate_every: Annotated[
        int | None, typer.Option(min=1, help="Play greedy episodes every this many steps.")
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes of an evaluation.")] = 10,
    track: Annotated[
        Path | None,
        typer.Option(help="An .npy or .npz file of observations whose values are recorded."),
    ] = None,
    track_every: Annotated[
        int, typer.Option(min=1, help="Record the tracked values after every this many updates.")
    ] = 1,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard's files into the folder.")
    ] = False,
) -> None:
    """Train an agent in an environment, and save it as agent.vt.

    Ctrl-C saves it too. With --resume, what is left out stays as it was saved, and what differs is
    refused. Exits with 1 if a seed diverged.

    Examples
    --------
      valuetrack train --env CartPole-v1 --steps 50000 --set step_size=1e-4

      valuetrack train --algo dqn --env MyEnv-v0 --import my_package --seeds 8 --out runs/mine
    """
    with Uninterrupted():
        from valuetrack.commands import train as command  # noqa: PLC0415  (keeps --help fast)

    is_whole = command.train(
        algo,
        env,
        steps=steps,
        seed=seed,
        seeds=seeds,
        backend=None if backend is None else backend.value,
        options=set_ or [],
        env_options=env_set or [],
        imports=import_ or [],
        out=out,
        resume=resume,
        evaluate_every=evaluate_every,
        episodes=episodes,
        track=track,
        track_every=track_every,
        tensorboard=tensorboard,
        console=make_console(),
    )
    if not is_whole:
        raise typer.Exit(FAILED)


@app.command()
def evaluate(
    model: Annotated[
        Path,
        typer.Argument(help="A file that `train` or `save` wrote, or the folder of a training."),
    ],
    episodes: Annotated[int, typer.Option(min=1, help="Episodes of each seed.")] = 10,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of the episodes.")] = 0,
    env: Annotated[str | None, typer.Option(help="Another environment than the saved one.")] = None,
    import_: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Import this first, to register yours."),
    ] = None,
) -> None:
    """Play greedy episodes with a saved agent.

    Also compares the Q-values at their beginning with the discounted returns.

    Examples
    --------
      valuetrack evaluate runs/lktd-CartPole-v1/agent.vt --episodes 20

      valuetrack evaluate agent.vt --env MyEnv-v1 --import my_package
    """
    with Uninterrupted():
        from valuetrack.commands import train as command  # noqa: PLC0415  (keeps --help fast)

    command.evaluate(
        model, episodes=episodes, seed=seed, env=env, imports=import_ or [], console=make_console()
    )


@app.command()
def envs(
    import_: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Import this first, to register yours."),
    ] = None,
) -> None:
    """List the environments that can be named, and which of them are compiled.

    Examples
    --------
      valuetrack envs --import my_package
    """
    with Uninterrupted():
        from valuetrack.commands import lists  # noqa: PLC0415  (keeps --help fast)

    lists.envs(import_ or [], make_console())


@app.command()
def algos(
    name: Annotated[str | None, typer.Argument(help="Show the options of this one.")] = None,
) -> None:
    """List the algorithms, or the options of one.

    Examples
    --------
      valuetrack algos lktd
    """
    with Uninterrupted():
        from valuetrack.commands import lists  # noqa: PLC0415  (keeps --help fast)

    lists.algos(name, make_console())


>>>>>>> theory
def main() -> None:
    """Run the command line."""
    keep_programs_by_environment()
    app()


if __name__ == "__main__":
    main()
