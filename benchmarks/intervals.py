"""What an interval for the value costs: seconds, memory, and its share of a training.

Each case is a process of its own: an agent fills its replay memory, is asked for an interval,
learns a little and is asked again, when everything is compiled. ``track`` is the time of a training
whose intervals are solved every 1,000 updates, over that of the same training without.

Run ``python benchmarks/intervals.py`` on a quiet machine; ``--quick`` only shows that it works.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any, NamedTuple

from rich.table import Table

from common import HERE, arguments, machine, make_console, write_json, write_tables

SMALL = {"hidden": (32, 32), "batch_size": 100, "steps_per_update": 10, "replay_capacity": 10_000}
LARGE = {"hidden": (256, 256), "replay_capacity": 50_000}


class Case(NamedTuple):
    """An agent, and how many steps fill its memory."""

    name: str
    algorithm: str
    env: str
    options: dict[str, Any]
    steps: int


CASES = (
    Case("LKTD, 32-32, 10,000 transitions", "LKTD", "valuetrack/IndoorEscape-v0", SMALL, 20_000),
    Case("LKTD, 256-256, 50,000 transitions", "LKTD", "CartPole-v1", LARGE, 50_000),
    Case("DQN, 256-256, 50,000 transitions", "DQN", "CartPole-v1", LARGE, 50_000),
)
TRACKED_UPDATES = 3_000


def seconds_of_interval(agent: Any, observation: Any) -> float:
    """Return the seconds from the question to the interval."""
    begin = time.perf_counter()
    agent.posterior(observation).interval(0.95)
    return time.perf_counter() - begin


def measure(case: Case, repetitions: int, steps: int) -> dict[str, Any]:
    """Measure one case in this process."""
    import valuetrack as vt  # noqa: PLC0415 - only in the process of a case

    def made(seed: int) -> Any:
        return getattr(vt, case.algorithm)(case.env, seed=seed, **case.options)

    agent = made(0)
    agent.learn(steps)
    observation = agent.trainer.memory(0).observation[0]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    first = seconds_of_interval(agent, observation)
    later = []
    for _ in range(repetitions):
        agent.learn(100)
        later.append(seconds_of_interval(agent, observation))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracked = min(steps, TRACKED_UPDATES * int(agent.options.steps_per_update))

    def training(**track: Any) -> float:
        begin = time.perf_counter()
        agent.learn(tracked, track=[observation], **track)
        return time.perf_counter() - begin

    training(), training(track_intervals_every=1_000)  # compile
    plain, with_intervals = zip(
        *((training(), training(track_intervals_every=1_000)) for _ in range(3)), strict=True
    )
    return {
        "case": case.name,
        "first": first,
        "later": sorted(later)[len(later) // 2],
        "megabytes": (after - before) / 1024,
        "track": sum(with_intervals) / sum(plain) - 1,
    }


def main() -> None:
    """Measure every case in a process of its own, print, save."""
    given = arguments(
        __doc__, repetitions=5, add=lambda parser: parser.add_argument("--case", type=int)
    )
    if given.case is not None:
        case = CASES[given.case]
        steps = case.steps // 10 if given.quick else case.steps
        print(json.dumps(measure(case, given.repetitions, steps)))
        return
    about, rows = machine("scipy"), []
    flags = ["--quick"] if given.quick else []
    for index in range(len(CASES)):
        command = [sys.executable, str(HERE / "intervals.py"), "--case", str(index), *flags]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    console = make_console()
    table = Table(title="Intervals for the value, 95 %")
    table.add_column("agent and memory")
    for head in ("first interval, s", "later ones, s", "memory, MB", "cost of tracking"):
        table.add_column(head, justify="right")
    for row in rows:
        seconds = (f"{row['first']:.2f}", f"{row['later']:.2f}")
        table.add_row(row["case"], *seconds, f"{row['megabytes']:.0f}", f"{row['track']:+.1%}")
    console.print(table)
    write_json({"machine": about, "quick": given.quick, "rows": rows}, given.out, "intervals")
    write_tables(console, given.out, "intervals")


if __name__ == "__main__":
    main()
