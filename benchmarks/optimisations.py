"""What each optimisation buys: the plain way and ours, in turn.

* ``normal``: adding normal numbers to 67,000 parameters, from JAX's generator and from
  ``valuetrack.rng`` (the cipher written out, two numbers from each of its outputs).
* ``quantiles``: the quantile Huber loss with its gradient, 200 quantiles, batch 64: all pairs in
  one array, or one target quantile after the other.
* ``finite``: asking whether 67,000 parameters are finite, by "and" or by a sum of zeros.
* ``few terms``: LKTD's update on indoor escape (2-32-32-4, batch 100, K = 5) for eight seeds, every
  product a matrix product, or those of up to four terms written out.
* ``one seed``: DQN's training cycle on CartPole-v1 (256-256, batch 64, an update every 4 steps),
  mapped over an axis of one seed, or not mapped.
* ``eight seeds``: the same cycle for eight seeds, in one group, or in one for each core.
* ``32 seeds``: the same cycle for 32 seeds, in one group for each core, or in groups of four.

The last two comparisons use all cores, the others one core and one thread. Times are those of
one addition, loss, question, update and seed, or cycle and seed.

Run ``python benchmarks/optimisations.py``, with ``--quick`` to see only that it works.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from common import (
    arguments,
    cores,
    draw_bars,
    figure,
    machine,
    make_console,
    ratio,
    save_figure,
    spread,
    with_spread,
    write_json,
    write_tables,
)

PARAMETERS, LOOPS = 67_000, 50
SECONDS, QUICK_SECONDS = 0.5, 0.02
ONE_THREAD = {"xla_cpu_multi_thread_eigen": False}


class Comparison(NamedTuple):
    """A plain way and ours; each runs so many times what is counted, and waits for the end."""

    what: str
    plain: Callable[[int], None]
    ours: Callable[[int], None]


def repeated(step: Callable[[Any, Any], Any], start: Any) -> Callable[[int], None]:
    """Return what runs a compiled loop of steps; a step gets its number and the state."""

    def loop(count: Any, state: Any) -> Any:
        return jax.lax.fori_loop(0, count, step, state)

    program = jax.jit(loop, compiler_options=ONE_THREAD)
    return lambda count: jax.block_until_ready(program(count, start))


def normal_numbers() -> Comparison:
    """Compare the generators, where a sampler uses them."""
    from valuetrack import rng  # noqa: PLC0415 - after the machine's load has been read

    theta = jnp.zeros(PARAMETERS)
    key, own = jax.random.key(0), rng.key(0)
    return Comparison(
        f"adding {PARAMETERS:,} normal numbers",
        repeated(
            lambda i, x: x + jax.random.normal(jax.random.fold_in(key, i), (PARAMETERS,)), theta
        ),
        repeated(lambda i, x: x + rng.normal(jax.random.fold_in(own, i), (PARAMETERS,)), theta),
    )


def quantile_losses() -> Comparison:
    """Compare two ways to the same loss and gradient."""
    from valuetrack.losses import quantile_huber  # noqa: PLC0415

    count, batch = 200, 64
    level = (jnp.arange(count) + 0.5) / count

    def pairs(current: Any, target: Any) -> Any:
        error = target[:, None, :] - current[:, :, None]
        size = jnp.abs(error)
        huber = jnp.where(size <= 1.0, 0.5 * error**2, size - 0.5)
        return jnp.mean(jnp.abs(level[:, None] - (error < 0)) * huber, axis=-1)

    first, second = jax.random.split(jax.random.key(0))
    target = jax.random.normal(first, (batch, count))

    def descend(loss: Any) -> Callable[[int], None]:
        gradient = jax.grad(lambda current: loss(current, target).sum() / batch)
        return repeated(lambda _, x: x - gradient(x), jax.random.normal(second, (batch, count)))

    return Comparison(
        f"quantile loss and gradient, {count} quantiles", descend(pairs), descend(quantile_huber)
    )


def finiteness() -> Comparison:
    """Compare two ways to ask whether all is well."""
    from valuetrack.samplers.base import all_finite  # noqa: PLC0415

    def ask(question: Callable[[Any], Any]) -> Callable[[int], None]:
        def step(_: Any, state: Any) -> Any:
            theta, answer = state
            theta = theta + 1.0  # what is asked about changes, as it does in a training
            return theta, answer & question(theta)

        return repeated(step, (jnp.zeros(PARAMETERS), jnp.bool_(True)))

    return Comparison(
        f"{PARAMETERS:,} parameters finite?", ask(lambda x: jnp.isfinite(x).all()), ask(all_finite)
    )


class Updates:
    """LKTD's updates for some seeds, with sums of so many terms written out."""

    def __init__(self, few: int) -> None:
        from throughput import SEEDS, updates  # noqa: PLC0415
        from valuetrack import networks, rng  # noqa: PLC0415
        from valuetrack.experiments.build import build_loop, build_problem  # noqa: PLC0415
        from valuetrack.experiments.spec import load  # noqa: PLC0415
        from valuetrack.experiments.timing import random_batch  # noqa: PLC0415

        spec = load("indoor_escape")
        problem = build_problem(spec)
        agent = build_loop(spec, spec.row("lktd-10000"), "reference", problem).learner
        batch = random_batch(problem.env, spec.training.batch_size, jax.random.key(0))
        batches = jax.tree.map(lambda leaf: jnp.stack([leaf] * SEEDS), batch)
        self.seeds = SEEDS
        self.start = (jax.vmap(agent.init)(jax.random.split(rng.key(0), SEEDS)), batches)
        self.program = jax.jit(partial(updates, agent), compiler_options=ONE_THREAD)
        known, networks.FEW = networks.FEW, few
        self(SEEDS)  # which compiles
        networks.FEW = known

    def __call__(self, count: int) -> None:
        """Make so many updates of all seeds together."""
        jax.block_until_ready(self.program(*self.start, max(1, count // self.seeds)))


class Cycles:
    """DQN's training cycles for some seeds, in some groups."""

    def __init__(
        self, seeds: int, groups: int, *, most: int | None = None, mapped: bool = False
    ) -> None:
        from valuetrack import DQN, rng  # noqa: PLC0415
        from valuetrack.training.seed_groups import Groups, Program  # noqa: PLC0415
        from valuetrack.training.trainer import Clock  # noqa: PLC0415

        agent = DQN("CartPole-v1", hidden=(256, 256), batch_size=64, steps_per_update=4)
        loop = agent.trainer.loop
        self.seeds, self.groups = seeds, Groups(seeds, groups, most)
        axes: Any = {"in_axes": (0, None, None), "out_axes": (0, None, 0)}
        fill = self.groups.compile(loop.collect, **axes)
        self.programs = self.groups.compile(loop.train, **axes, donate_argnums=0)
        if mapped:
            plain = jax.vmap(loop.train, **axes)
            options: Any = {"donate_argnums": 0, "compiler_options": ONE_THREAD}
            self.programs = [Program(jax.jit(plain, **options))]
        start = self.groups.compile(lambda seed: loop.init(rng.key(seed)))
        parts = self.groups.split(jnp.arange(seeds, dtype=jnp.uint32))
        states = self.groups.start(start, [(part,) for part in parts])
        warmup = loop.settings.warmup_cycles
        self.states = self.groups.start(
            fill, [(state, Clock().traced(), warmup) for state in states]
        )

    def __call__(self, count: int) -> None:
        """Run so many cycles of all seeds together."""
        cycles = max(1, count // self.seeds)
        given = [(state, clock, cycles) for state, clock, _ in self.states]
        self.states = jax.block_until_ready(self.groups.start(self.programs, given))


def on_one_core() -> dict[str, Comparison]:
    """Return the comparisons of single programs, by their names."""
    from valuetrack import networks  # noqa: PLC0415

    return {
        "normal": normal_numbers(),
        "quantiles": quantile_losses(),
        "finite": finiteness(),
        "few terms": Comparison("LKTD update, a seed of eight", Updates(0), Updates(networks.FEW)),
        "one seed": Comparison("DQN cycle, one seed", Cycles(1, 1, mapped=True), Cycles(1, 1)),
    }


def on_all_cores() -> dict[str, Comparison]:
    """Return the comparisons of how cores are used, by their names."""
    many = len(cores())
    return {
        "eight seeds": Comparison("DQN cycle, a seed of eight", Cycles(8, 1), Cycles(8, many)),
        "32 seeds": Comparison(
            "DQN cycle, a seed of 32", Cycles(32, many), Cycles(32, many, most=4)
        ),
    }


def time_of(run: Callable[[int], None], count: int) -> float:
    """Return the microseconds of one."""
    began = time.perf_counter()
    run(count)
    return 1e6 * (time.perf_counter() - began) / count


def measure(comparison: Comparison, seconds: float, repetitions: int) -> dict[str, Any]:
    """Let both ways run in turn, each about so many seconds."""
    ways = (comparison.plain, comparison.ours)
    counts = []
    for way in ways:
        way(LOOPS)
        counts.append(max(LOOPS, round(1e6 * seconds / time_of(way, LOOPS))))
    taken: list[list[float]] = [[], []]
    for _ in range(repetitions):
        for way, count, found in zip(ways, counts, taken, strict=True):
            way(max(1, count // 10))
            found.append(time_of(way, count))
    plain, ours = taken
    return {
        "what": comparison.what,
        "plain_us": spread(plain),
        "ours_us": spread(ours),
        "times_faster": ratio(plain, ours),
    }


def measure_all(
    make: Callable[[], dict[str, Comparison]],
    seconds: float,
    repetitions: int,
    *,
    advance: Callable[[], None],
) -> dict[str, Any]:
    """Measure some comparisons, one after the other."""
    measured = {}
    for name, comparison in make().items():
        measured[name] = measure(comparison, seconds, repetitions)
        advance()
    return measured


def show(result: dict[str, Any], console: Console) -> None:
    """Print the table."""
    table = Table(title="What each optimisation buys: microseconds of one")
    for head in ("what", "plain", "ours", "times faster"):
        table.add_column(head, justify="left" if head == "what" else "right")
    for row in result["comparisons"].values():
        numbers = (row["plain_us"], row["ours_us"])
        times = with_spread(row["times_faster"], ".2f")
        table.add_row(row["what"], *(with_spread(each, ",.0f") for each in numbers), times)
    console.print(table)


def draw(result: dict[str, Any], folder: Path) -> None:
    """Draw how many times faster."""
    rows = result["comparisons"]
    drawn, axes = figure(1, 1, (8, 0.8 + 0.4 * len(rows)))
    labels = [row["what"] for row in rows.values()]
    draw_bars(axes[0, 0], labels, [row["times_faster"] for row in rows.values()], ".2f")
    axes[0, 0].axvline(1.0, color="0.4", lw=0.8)
    axes[0, 0].set_title("times faster than the plain way", fontsize=10)
    save_figure(drawn, result["machine"], folder, "optimisations")


def main() -> None:
    """Measure, print, and write optimisations.json and the figure."""
    given = arguments(__doc__)
    described = machine()
    from valuetrack.experiments.workers import call_in_process  # noqa: PLC0415 - imports JAX

    seconds, repetitions = (QUICK_SECONDS, 2) if given.quick else (SECONDS, given.repetitions)
    result = {
        "what": "Microseconds of the plain way and of ours, and how many times faster ours is.",
        "quick": given.quick,
        "machine": described,
        "repetitions": repetitions,
        "comparisons": {
            **call_in_process(measure_all, on_one_core, seconds, repetitions, advance=lambda: None),
            **measure_all(on_all_cores, 4 * seconds, repetitions, advance=lambda: None),
        },
    }
    console = make_console()
    show(result, console)
    write_json(result, given.out, "optimisations")
    write_tables(console, given.out, "optimisations")
    draw(result, given.out)


if __name__ == "__main__":
    main()
