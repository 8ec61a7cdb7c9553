"""What users can choose: the options of each command, whose docstring is its help.

A command gets them as one object. Nothing heavy is imported here, so that help answers at once.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Backend = enum.Enum("Backend", {"auto": "auto", "compiled": "compiled", "host": "host"})
LoggerName = enum.Enum(
    "LoggerName",
    {
        "csv": "csv",
        "jsonl": "jsonl",
        "tensorboard": "tensorboard",
        "wandb": "wandb",
        "trackio": "trackio",
    },
)
KindName = enum.Enum(
    "KindName",
    {"value": "value", "credible": "credible", "prediction": "prediction", "return": "return"},
)
EngineName = enum.Enum("EngineName", {"local": "local", "ray": "ray", "slurm": "slurm"})
Where = Annotated[
    EngineName, Option("--engine", help="Where units run: this machine, Ray or SLURM.")
]
Address = Annotated[
    str | None,
    Option(metavar="auto|HOST:PORT", help="A Ray cluster; by default a new one on this machine."),
]
NumCpus = Annotated[int, Option(min=1, help="Cores reserved for each unit.")]
SharedFolder = Annotated[
    bool, Option("--shared-folder", help="All nodes of Ray see the run's folder; write there.")
]
Slurm = Annotated[
    list[str] | None,
    Option(
        metavar="KEY=VALUE",
        help="partition, time (minutes), memory (GB), parallel, account, qos, constraint or "
        "cluster=local; may be repeated.",
    ),
]
Imports = Annotated[
    list[str] | None,
    Option("--import", metavar="MODULE", help="Import this first, to register yours."),
]
WatchToo = Annotated[
    bool, Option("--watch", help="Open a live page of the run, as `valuetrack watch` does.")
]
Port = Annotated[
    int | None,
    Option(min=0, max=65535, help="Of the live page; 0 for a free one, 8765 by default."),
]


@dataclass(frozen=True)
class Check:
    """Compare every sampler with the exact law it must have on a linear-Gaussian model.

    With --rates, compare weighted averages under decreasing steps with their exact errors. Exits
    with 1 if a sampler departs from its law.

    Examples
    --------
      valuetrack check --quick

      valuetrack check --rates --out runs/rates
    """

    out: Annotated[Path, Option(help="Directory for check.json and the figures.")] = Path(
        "runs/check"
    )
    chains: Annotated[
        int, Option(min=100, max=1_000_000, help="Independent chains in each row.")
    ] = 4096
    seed: Annotated[int, Option(min=0, help="The same seed gives the same table.")] = 0
    quick: Annotated[bool, Option("--quick", help="One row for each sampler only.")] = False
    rates: Annotated[
        bool, Option("--rates", help="Weighted averages under decreasing steps instead.")
    ] = False


@dataclass(frozen=True)
class Reproduce:
    """Run an experiment of the paper, with its numbers beside ours.

    Examples
    --------
      valuetrack reproduce indoor-escape --quick

      valuetrack reproduce indoor-escape --rows lktd-10000,dqn --seeds 20 --out runs/two-rows

      valuetrack reproduce classic-control --env CartPole-v1 --seeds 10

      valuetrack reproduce indoor-escape --engine ray --address auto
    """

    experiment: Annotated[
        str, Argument(help="Its name, such as indoor-escape, classic-control or honest-values.")
    ]
    rows: Annotated[
        str | None, Option(help="Rows to run, for instance lktd-10000,dqn; all by default.")
    ] = None
    env: Annotated[
        str | None, Option(help="Only the rows in this environment; not for indoor-escape.")
    ] = None
    seeds: Annotated[
        int | None,
        Option(
            min=1,
            max=100_000,
            help="How many seeds; 100 by default, or as many as a run that is there has.",
        ),
    ] = None
    seed: Annotated[int, Option(min=0, max=2**31 - 1, help="The first seed.")] = 0
    steps: Annotated[
        int | None, Option(min=1, help="Environment steps of each seed, as in the paper.")
    ] = None
    preset: Annotated[
        str, Option(help="A preset of the experiment's file, such as reference or paper.")
    ] = "reference"
    quick: Annotated[bool, Option("--quick", help="A first look in minutes.")] = False
    out: Annotated[Path | None, Option(help="The run's folder; runs/... by default.")] = None
    resume: Annotated[bool, Option(help="Go on with an unfinished run in the folder.")] = True
    timing: Annotated[
        bool, Option(help="Also measure the time per update, when all is trained.")
    ] = True
    engine: Where = EngineName.local
    address: Address = None
    num_cpus: NumCpus = 1
    shared_folder: SharedFolder = False
    slurm: Slurm = None
    watch: WatchToo = False
    port: Port = None


@dataclass(frozen=True)
class Report:
    """Make the tables, figures and the page of a run again from its folder.

    Examples
    --------
      valuetrack report runs/indoor-escape-quick
    """

    run: Annotated[Path, Argument(help="A run's folder.")]


@dataclass(frozen=True)
class Train:
    """Train an agent in an environment, and save it as agent.vt.

    Ctrl-C saves it too. With --resume, what is left out stays as it was saved, and what differs is
    refused. Exits with 1 if a seed diverged.

    Examples
    --------
      valuetrack train --env CartPole-v1 --steps 50000 --set step_size=1e-4

      valuetrack train --algo dqn --env MyEnv-v0 --import my_package --seeds 8 --out runs/mine

      valuetrack train --env CartPole-v1 --seeds 50 --engine ray --address auto
    """

    env: Annotated[str, Option(help="The Gymnasium id of the environment.")]
    algo: Annotated[str, Option(help="One of those that `valuetrack algos` lists.")] = "lktd"
    steps: Annotated[int, Option(min=1, help="Environment steps of each seed.")] = 100_000
    seed: Annotated[
        int | None, Option(min=0, max=2**31 - 1, help="The first seed; 0 by default.")
    ] = None
    seeds: Annotated[
        int | None, Option(min=1, max=10_000, help="Trained side by side; 1 by default.")
    ] = None
    backend: Annotated[
        Backend | None,
        Option(help="Under one jit or stepped in Python; auto, by default, compiles if it can."),
    ] = None
    set_: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="A hyperparameter; may be repeated."),
    ] = None
    env_set: Annotated[
        list[str] | None,
        Option(metavar="KEY=VALUE", help="An option of the environment; may be repeated."),
    ] = None
    import_: Imports = None
    out: Annotated[Path | None, Option(help="A new folder; runs/... by default.")] = None
    resume: Annotated[
        bool, Option("--resume", help="Go on with the agent in the folder, up to --steps.")
    ] = False
    evaluate_every: Annotated[
        int | None, Option(min=1, help="Play greedy episodes every this many steps.")
    ] = None
    episodes: Annotated[int, Option(min=1, help="Episodes of an evaluation.")] = 10
    keep_best: Annotated[
        bool, Option("--keep-best", help="Save the agent of the best evaluation as best.vt.")
    ] = False
    track: Annotated[
        Path | None,
        Option(help="An .npy or .npz file of observations whose values are recorded."),
    ] = None
    track_every: Annotated[
        int, Option(min=1, help="Record the tracked values after every this many updates.")
    ] = 1
    track_intervals_every: Annotated[
        int | None,
        Option(min=1, help="Solve intervals for the tracked values after every this many updates."),
    ] = None
    logger: Annotated[
        list[LoggerName] | None,
        Option(help="Where the numbers of each report go as well; may be repeated."),
    ] = None
    tensorboard: Annotated[
        bool, Option("--tensorboard", help="The same as --logger tensorboard.")
    ] = False
    engine: Where = EngineName.local
    address: Address = None
    num_cpus: NumCpus = 1
    shared_folder: SharedFolder = False
    slurm: Slurm = None
    watch: WatchToo = False
    port: Port = None


@dataclass(frozen=True)
class Evaluate:
    """Play greedy episodes with a saved agent.

    Also compares the Q-values at their beginning with the discounted returns.

    Examples
    --------
      valuetrack evaluate runs/lktd-CartPole-v1/agent.vt --episodes 20

      valuetrack evaluate agent.vt --env MyEnv-v1 --import my_package

      valuetrack evaluate runs/dqn-FrozenLake-v1 --env-set is_slippery=False --video play.gif
    """

    model: Annotated[
        Path,
        Argument(help="A file that `train` or `save` wrote, or the folder of a training."),
    ]
    episodes: Annotated[int, Option(min=1, help="Episodes of each seed.")] = 10
    seed: Annotated[int, Option(min=0, max=2**31 - 1, help="Of the episodes.")] = 0
    env: Annotated[str | None, Option(help="Another environment than the saved one.")] = None
    env_set: Annotated[
        list[str] | None,
        Option(metavar="KEY=VALUE", help="Another option of the environment; may be repeated."),
    ] = None
    max_episode_steps: Annotated[
        int, Option(min=1, help="After how many steps an episode is cut off.")
    ] = 100_000
    video: Annotated[
        Path | None, Option(help="A .gif or .mp4 file for an episode of the first seed.")
    ] = None
    import_: Imports = None


@dataclass(frozen=True)
class Values:
    """Print what a saved agent thinks that actions are worth, with intervals.

    Examples
    --------
      valuetrack values runs/lktd-CartPole-v1 --observation "[0, 0.1, 0.02, -0.1]"

      valuetrack values agent.vt --observations states.npy --kind credible --level 0.9
    """

    model: Annotated[
        Path,
        Argument(help="A file that `train` or `save` wrote, or the folder of a training."),
    ]
    observation: Annotated[
        list[str] | None,
        Option(metavar="JSON", help="As JSON or Python write it; may be repeated."),
    ] = None
    observations: Annotated[
        Path | None, Option(help="An .npy or .npz file of observations, a row for each.")
    ] = None
    level: Annotated[float, Option(min=0.01, max=0.999, help="Of the intervals.")] = 0.95
    kind: Annotated[KindName, Option(help="Which intervals; docs/guide.md explains them.")] = (
        KindName.value
    )
    seed: Annotated[int | None, Option(help="One of the agent's seeds; its first by default.")] = (
        None
    )
    env: Annotated[str | None, Option(help="Another environment than the saved one.")] = None
    import_: Imports = None


@dataclass(frozen=True)
class Calibrate:
    """Play greedy episodes with a saved agent, and save with it what they teach about its values.

    Its intervals for the value are corrected from then on, and it has some for the return. Fresh
    episodes check that, as many again; a reliability diagram is written beside the file.

    Examples
    --------
      valuetrack calibrate runs/lktd-CartPole-v1 --episodes 100

      valuetrack calibrate agent.vt --out calibrated.vt
    """

    model: Annotated[
        Path,
        Argument(help="A file that `train` or `save` wrote, or the folder of a training."),
    ]
    episodes: Annotated[
        int, Option(min=1, help="Episodes of each seed; an interval of 95 % takes 38.")
    ] = 50
    seed: Annotated[int, Option(min=0, max=2**31 - 1, help="Of the episodes.")] = 0
    out: Annotated[Path | None, Option(help="Another file than the one that was read.")] = None
    env: Annotated[str | None, Option(help="Another environment than the saved one.")] = None
    import_: Imports = None


@dataclass(frozen=True)
class Watch:
    """Serve a live page of a run's folder to this machine's browsers, until Ctrl-C.

    The run may go on, be finished, or be a copy; nothing on the page changes it.

    Examples
    --------
      valuetrack watch runs/indoor-escape-quick

      valuetrack watch results/indoor-escape --port 0 --no-browser
    """

    run: Annotated[Path, Argument(help="A run's folder.")]
    port: Port = None
    browser: Annotated[bool, Option(help="Open a browser, where there is a screen.")] = True


@dataclass(frozen=True)
class Envs:
    """List the environments that can be named, and which of them are compiled.

    Examples
    --------
      valuetrack envs --import my_package
    """

    import_: Imports = None


@dataclass(frozen=True)
class Algos:
    """List the algorithms, or the options of one.

    Examples
    --------
      valuetrack algos lktd
    """

    name: Annotated[str | None, Argument(help="Show the options of this one.")] = None
