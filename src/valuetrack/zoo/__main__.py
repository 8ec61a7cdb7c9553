"""The zoo's commands with valuetrack's algorithms and hyperparameters.

::

    python -m valuetrack.zoo train --algo lktd --env CartPole-v1
    python -m valuetrack.zoo enjoy --algo lktd --env CartPole-v1 --folder logs

All options after the command are the zoo's own; ``--help`` lists them.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from typing import NoReturn

from valuetrack.zoo import HYPERPARAMETERS

COMMANDS = ("train", "enjoy")


def main(arguments: list[str]) -> None:
    """Run one of the zoo's commands."""
    if not arguments or arguments[0] not in COMMANDS:
        given = f", not {arguments[0]!r}" if arguments else ""
        _stop(f"The zoo's commands are {' and '.join(COMMANDS)}{given}; try train --help.", 2)
    for package in ("stable_baselines3", "rl_zoo3"):
        if importlib.util.find_spec(package) is None:
            _stop("RL Baselines3 Zoo needs an extra: pip install 'valuetrack[zoo]'.", 1)
    command, rest = arguments[0], arguments[1:]

    # After the check, which says in one sentence what is missing.
    import rl_zoo3  # noqa: PLC0415

    from valuetrack import sb3  # noqa: PLC0415

    rl_zoo3.ALGOS.update(sb3.ALGORITHMS)
    if command == "train":
        rest = with_own_hyperparameters(rest, tuple(sb3.ALGORITHMS))
    # The zoo reads its arguments from here.
    sys.argv = [f"python -m valuetrack.zoo {command}", *rest]
    getattr(importlib.import_module(f"rl_zoo3.{command}"), command)()


def with_own_hyperparameters(arguments: list[str], algorithms: tuple[str, ...]) -> list[str]:
    """Add our file of hyperparameters if the algorithm is ours and no other file is given."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--algo")
    parser.add_argument("-conf", "--conf-file")
    parser.add_argument("-optimize", "--optimize-hyperparameters", action="store_true")
    known, _ = parser.parse_known_args(arguments)
    if known.algo not in algorithms:
        return arguments
    if known.optimize_hyperparameters:
        _stop(f"The zoo's search for hyperparameters has no search space for {known.algo}.", 2)
    if known.conf_file is not None:
        return arguments
    return [*arguments, "--conf-file", str(HYPERPARAMETERS / f"{known.algo}.yml")]


def _stop(sentence: str, code: int) -> NoReturn:
    print(sentence, file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
