"""The options of ``valuetrack sweep`` and ``valuetrack tune``."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from valuetrack.commands.options import (
    Address,
    EngineName,
    Imports,
    NumCpus,
    Port,
    SharedFolder,
    Slurm,
    WatchToo,
    Where,
)

Objective = enum.Enum("Objective", {"return": "return", "honest": "honest"})
Pruner = enum.Enum("Pruner", {"median": "median", "hyperband": "hyperband", "none": "none"})


@dataclass(frozen=True)
class Sweep:
    """Run a sweep of your own: environments x algorithms x options x seeds, from a TOML file.

    Ctrl-C saves it; the same command goes on. Rows and seeds may be added to the file meanwhile.

    Examples
    --------
      valuetrack sweep sweep.toml --dry-run

      valuetrack sweep sweep.toml --seeds 10 --out runs/mine

      valuetrack sweep sweep.toml --engine slurm --slurm partition=short
    """

    file: Annotated[Path, Argument(help="The sweep; docs/sweeps.md says what it may say.")]
    seeds: Annotated[
        int | None, Option(min=1, max=100_000, help="How many seeds; the file's by default.")
    ] = None
    seed: Annotated[
        int | None, Option(min=0, max=2**31 - 1, help="The first seed; the file's by default.")
    ] = None
    steps: Annotated[
        int | None, Option(min=1, help="Environment steps of each seed, in all environments.")
    ] = None
    dry_run: Annotated[
        bool, Option("--dry-run", help="Check everything, list the rows, and run nothing.")
    ] = False
    import_: Imports = None
    out: Annotated[Path | None, Option(help="The run's folder; runs/... by default.")] = None
    resume: Annotated[bool, Option(help="Go on with an unfinished run in the folder.")] = True
    engine: Where = EngineName.local
    address: Address = None
    num_cpus: NumCpus = 1
    shared_folder: SharedFolder = False
    slurm: Slurm = None
    watch: WatchToo = False
    port: Port = None


@dataclass(frozen=True)
class Tune:
    """Search for hyperparameters with Optuna, and try the best on fresh seeds.

    Ctrl-C saves it; the same command goes on, also after kill -9. Several commands may work on one
    folder at a time.

    Examples
    --------
      valuetrack tune --algo lktd --env CartPole-v1 --trials 50 --steps 50000

      valuetrack tune --algo dqn --env MyEnv-v0 --import my_package --space space.toml --workers 4

      valuetrack tune --env CartPole-v1 --objective honest --penalty 5
    """

    env: Annotated[str, Option(help="The Gymnasium id of the environment.")]
    algo: Annotated[str, Option(help="One of those that `valuetrack algos` lists.")] = "lktd"
    trials: Annotated[
        int, Option(min=1, max=100_000, help="In all, those of an earlier command included.")
    ] = 50
    steps: Annotated[int, Option(min=1, help="Environment steps of each seed.")] = 50_000
    seeds: Annotated[int, Option(min=1, max=1_000, help="Of each trial, side by side.")] = 3
    seed: Annotated[int, Option(min=0, max=2**31 - 1, help="The first of them.")] = 0
    search_seed: Annotated[int, Option(min=0, help="Of the search itself.")] = 0
    objective: Annotated[
        Objective,
        Option(help="The return, or the return minus a penalty for values that disagree with it."),
    ] = Objective["return"]
    penalty: Annotated[
        float, Option(min=0.0, help="How much a distance of 1 counts, for --objective honest.")
    ] = 1.0
    space: Annotated[
        Path | None, Option(help="A TOML file of what is varied; else the algorithm's own.")
    ] = None
    start: Annotated[
        list[str] | None,
        Option(metavar="KEY=VALUE", help="Of the first trial, which else has the defaults."),
    ] = None
    set_: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="A hyperparameter of all trials."),
    ] = None
    env_set: Annotated[
        list[str] | None,
        Option(metavar="KEY=VALUE", help="An option of the environment; may be repeated."),
    ] = None
    workers: Annotated[int, Option(min=1, max=1_000, help="Processes, with a trial each.")] = 1
    pruner: Annotated[
        Pruner, Option(help="Which trials end early: below the median, or by Hyperband.")
    ] = Pruner.median
    points: Annotated[int, Option(min=1, help="How often a trial is evaluated.")] = 10
    episodes: Annotated[int, Option(min=1, help="Greedy episodes of an evaluation.")] = 10
    final_episodes: Annotated[int, Option(min=1, help="The same at the end of a trial.")] = 50
    fresh_seeds: Annotated[
        int, Option(min=0, max=10_000, help="On which the best is tried at the end; 0 for none.")
    ] = 5
    import_: Imports = None
    out: Annotated[Path | None, Option(help="The run's folder; runs/... by default.")] = None
    resume: Annotated[bool, Option(help="Go on with a search in the folder.")] = True
    watch: WatchToo = False
    port: Port = None
