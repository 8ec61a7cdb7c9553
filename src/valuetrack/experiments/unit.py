"""Run one unit of an experiment: a group of seeds of one row, side by side on one device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from valuetrack import metrics, posterior, rng
from valuetrack.experiments.build import Problem, build_loop, build_problem
from valuetrack.experiments.spec import ExperimentSpec, PresetName, RowSpec
from valuetrack.io.arrays import from_arrays, to_arrays
from valuetrack.store import Columns, RunFolder, StoreError
from valuetrack.training.compiled_loop import Loop, SeedState
from valuetrack.training.trainer import Clock, Trace
from valuetrack.types import Array

ACTIONS = ("E", "N", "W", "S")
CHECKPOINT_SECONDS = 60.0


class StopFlag(Protocol):
    """Whatever can say that it is time to stop, such as ``threading.Event``."""

    def is_set(self) -> bool:
        """Return whether to stop at the next safe place."""
        ...


class Unit(NamedTuple):
    """A group of seeds of a row."""

    row: Any
    first_seed: int
    seeds: int

    @property
    def name(self) -> str:
        """The unit's folder."""
        return f"seeds-{self.first_seed:04d}-{self.first_seed + self.seeds - 1:04d}"


class Segment(NamedTuple):
    """A stretch of training: cycles without and with update, and what is measured after them."""

    collect: int
    train: int
    evaluate: bool
    final: bool


class Functions(NamedTuple):
    """The compiled functions of a unit, for all its seeds at once."""

    init: Callable[[Array], SeedState]
    collect: Callable[[SeedState, Clock, Any], tuple[SeedState, Clock, Trace]]
    train: Callable[[SeedState, Clock, Any], tuple[SeedState, Clock, Trace]]


class Progress(NamedTuple):
    """How far a unit is.

    Attributes
    ----------
    seed, clock
        The training loop's arrays.
    segment
        How many segments are done.
    seconds
        Wall time spent so far, earlier calls included.
    records
        The rows of the metrics table so far, as columns.
    """

    seed: SeedState
    clock: Clock
    segment: int
    seconds: float
    records: Columns


def plan_segments(spec: ExperimentSpec) -> list[Segment]:
    """Cut a run into segments; the last windows into several each.

    Raises
    ------
    ValueError
        If the steps do not divide into windows and evaluations.
    """
    training, wanted = spec.training, spec.metrics
    pieces = wanted.evaluations_per_final_window
    unit = training.steps_per_update * wanted.windows * pieces
    if training.steps % unit:
        raise ValueError(
            f"The number of steps must be a multiple of {unit:,}, so that it divides into "
            f"{wanted.windows} windows of {pieces} evaluations; {training.steps:,} is not."
        )
    window = training.steps // training.steps_per_update // wanted.windows
    silent = max(0, -(-training.learning_starts // training.steps_per_update) - 1)
    segments = []
    for index in range(wanted.windows):
        final = index >= wanted.windows - wanted.final_windows
        due = (index + 1) % wanted.windows_between_evaluations == 0
        for _ in range(pieces if final else 1):
            cycles = window // pieces if final else window
            collect = min(silent, cycles)
            silent -= collect
            segments.append(Segment(collect, cycles - collect, final or due, final))
    return segments


def compile_unit(loop: Loop) -> Functions:
    """Map a loop over seeds and compile it; counters stay common to all seeds."""

    def over_seeds(run: Callable[..., Any]) -> Callable[..., Any]:
        mapped = jax.vmap(run, in_axes=(0, None, None), out_axes=(0, None, 0))
        return jax.jit(mapped, donate_argnums=0)

    return Functions(
        init=jax.jit(jax.vmap(lambda seed: loop.init(rng.key(seed)))),
        collect=over_seeds(loop.collect),
        train=over_seeds(loop.train),
    )


_PREPARED: dict[tuple[str, str], tuple[Problem, Loop, Functions]] = {}


def _prepare(
    spec: ExperimentSpec, row: RowSpec, preset: PresetName
) -> tuple[Problem, Loop, Functions]:
    """Build a row once in a process, so that its units share what JAX has compiled."""
    key = (spec.hash(preset), row.id)
    if key not in _PREPARED:
        problem = build_problem(spec)
        loop = build_loop(spec, row, preset, problem)
        _PREPARED[key] = (problem, loop, compile_unit(loop))
    return _PREPARED[key]


class UnitRun:
    """One unit's training, from its checkpoint if there is one, to its tables.

    Parameters
    ----------
    unit, spec, preset
        What to run.
    folder
        Where its files go.
    """

    def __init__(
        self, unit: Unit, spec: ExperimentSpec, preset: PresetName, folder: RunFolder
    ) -> None:
        self.unit, self.spec, self.folder = unit, spec, folder
        self.problem, self.loop, self.functions = _prepare(spec, unit.row, preset)
        self.segments = plan_segments(spec)

    def run(self, stop: StopFlag, advance: Callable[[int], None]) -> bool:
        """Train to the end and write the tables; keep the state and return False if stopped.

        ``advance`` is told how many environment steps were taken, over all seeds.
        """
        began = saved = time.monotonic()
        progress = self._load()
        spent = progress.seconds
        advance(self._steps(progress))
        while progress.segment < len(self.segments):
            before = self._steps(progress)
            progress = self._advance(progress, self.segments[progress.segment])
            now = time.monotonic()
            progress = progress._replace(seconds=spent + now - began)
            advance(self._steps(progress) - before)
            stopped = stop.is_set()  # once: it may be set between two looks
            if stopped or now - saved > CHECKPOINT_SECONDS:
                self._save(progress)
                saved = now
            if stopped:
                return False
        self._finish(progress)
        return True

    def _advance(self, progress: Progress, segment: Segment) -> Progress:
        """Train one segment and measure after it, if it is due and the pool is full."""
        seed, clock = progress.seed, progress.clock
        if segment.collect:
            seed, clock, _ = self.functions.collect(seed, clock, segment.collect)
        seed, clock, trace = self.functions.train(seed, clock, segment.train)
        seed.learned.diverged.block_until_ready()
        records = progress.records
        enough = int(clock.updates) >= self.loop.room
        if segment.evaluate and enough:
            measured = self._measure(seed, clock)
            records = _append(records, self._rows(measured, trace, clock, final=segment.final))
        return Progress(seed, clock, progress.segment + 1, progress.seconds, records)

    def _measure(self, seed: SeedState, clock: Clock) -> metrics.ValueMetrics:
        """Compare every seed's pool with the truth."""
        level = self.spec.metrics.level
        truth, legal = self.problem.truth, self.problem.legal
        recent = self._recent
        measured = [
            metrics.value_metrics(pool, truth, legal, level, recent=recent)
            for pool in self._pools(seed, clock)
        ]
        return metrics.ValueMetrics(*map(np.stack, zip(*measured, strict=True)))

    def _pools(self, seed: SeedState, clock: Clock) -> Iterator[posterior.Pool]:
        """Go through the seeds' pools."""
        start = int(clock.updates) % self.loop.room
        for values in np.asarray(seed.values):
            yield posterior.from_updates(np.roll(values, -start, axis=0))

    @property
    def _recent(self) -> int:
        """How many samples there were since the evaluation before.

        One evaluation's quantiles stand for all updates since the one before it.
        """
        wanted, training = self.spec.metrics, self.spec.training
        window = training.steps // training.steps_per_update // wanted.windows
        since = window // wanted.evaluations_per_final_window * self.loop.learner.heads
        return min(since, wanted.pool_size)

    def _rows(
        self, measured: metrics.ValueMetrics, trace: Trace, clock: Clock, *, final: bool
    ) -> Columns:
        """Return the measurements as rows, one for each seed and action."""
        seeds, actions = self.unit.seeds, len(ACTIONS)
        count = seeds * actions
        with np.errstate(invalid="ignore", divide="ignore"):
            returns = np.asarray(trace.returns) / np.asarray(trace.episodes)
        return {
            "row": np.full(count, self.unit.row.id),
            "seed": np.repeat(self._seeds, actions),
            "step": np.full(count, int(clock.cycles) * self.spec.training.steps_per_update),
            "action": np.tile(ACTIONS, seeds),
            **{
                name: np.asarray(value, np.float64).ravel()
                for name, value in measured._asdict().items()
            },
            "final": np.full(count, final),
            "training_return": np.repeat(returns.astype(np.float64), actions),
        }

    def _finish(self, progress: Progress) -> None:
        """Write all tables of the unit."""
        levels = self.spec.metrics.calibration_levels
        truth, legal = self.problem.truth, self.problem.legal
        pools = list(self._pools(progress.seed, progress.clock))
        recent = self._recent
        curves = [metrics.calibration(pool, truth, legal, levels, recent=recent) for pool in pools]
        coverage, credible = map(np.stack, zip(*curves, strict=True))
        policy = np.stack([posterior.policy_probabilities(pool, legal) for pool in pools])
        diverged = np.asarray(progress.seed.learned.diverged, np.int64)
        tables = {
            "metrics": self._by_window(progress.records),
            "seeds": {
                "row": np.full(self.unit.seeds, self.unit.row.id),
                "seed": self._seeds,
                "diverged_at": diverged,
                "wall_seconds": np.full(self.unit.seeds, progress.seconds / self.unit.seeds),
            },
            "calibration": self._long(
                {"coverage": coverage, "credible_coverage": credible}, "level", np.asarray(levels)
            ),
            "policy": self._long({"probability": policy}, "cell", np.arange(policy.shape[1])),
        }
        info = {
            "row": self.unit.row.id,
            "first_seed": self.unit.first_seed,
            "seeds": self.unit.seeds,
            "wall_seconds": round(progress.seconds, 3),
            "updates": int(progress.clock.updates),
            "diverged": [int(seed) for seed in self._seeds[diverged >= 0]],
        }
        self.folder.finish_unit(self.unit.row.id, self.unit.name, tables, info)

    def _by_window(self, records: Columns) -> Columns:
        """Average the evaluations that fall into one window of training."""
        if not records:
            return records
        length = self.spec.training.steps // self.spec.metrics.windows
        window = -(-records["step"] // length)
        rows = self.unit.seeds * len(ACTIONS)
        averaged: Columns = {}
        for index in np.unique(window):
            chosen = {name: column[window == index] for name, column in records.items()}
            count = len(chosen["step"]) // rows
            merged = {
                name: column.reshape(count, rows).mean(axis=0)
                if column.dtype == np.float64
                else column[-rows:]
                for name, column in chosen.items()
            }
            averaged = _append(averaged, {**merged, "evaluations": np.full(rows, count)})
        return averaged

    def _long(self, values: Columns, axis: str, ticks: npt.NDArray[Any]) -> Columns:
        """Turn arrays over (seed, tick, action) into a long table."""
        seeds, actions = self.unit.seeds, len(ACTIONS)
        return {
            "row": np.full(seeds * len(ticks) * actions, self.unit.row.id),
            "seed": np.repeat(self._seeds, len(ticks) * actions),
            axis: np.tile(np.repeat(ticks, actions), seeds),
            "action": np.tile(ACTIONS, seeds * len(ticks)),
            **{name: np.asarray(array, np.float64).ravel() for name, array in values.items()},
        }

    def _load(self) -> Progress:
        """Return the state to go on from."""
        seed = self.functions.init(jnp.asarray(self._seeds, jnp.int32))
        fresh = Progress(seed, Clock().traced(), 0, 0.0, {})
        saved = self.folder.load_checkpoint(self.unit.row.id, self.unit.name)
        if saved is None:
            return fresh
        try:
            seed = from_arrays(saved, fresh.seed, "seed")
            clock = from_arrays(saved, fresh.clock, "clock")
            place = saved["place"]
        except (ValueError, KeyError) as error:
            path = self.folder.unit_path(self.unit.row.id, self.unit.name)
            raise StoreError(f"The checkpoint in {path} does not fit; delete it.") from error
        records = {name[8:]: saved[name] for name in saved if name.startswith("records.")}
        return Progress(seed, clock, int(place[0]), float(place[1]), records)

    def _save(self, progress: Progress) -> None:
        arrays = {
            **to_arrays(progress.seed, "seed"),
            **to_arrays(progress.clock, "clock"),
            **{f"records.{name}": column for name, column in progress.records.items()},
            "place": np.array([progress.segment, progress.seconds]),
        }
        self.folder.save_checkpoint(self.unit.row.id, self.unit.name, arrays)

    def _steps(self, progress: Progress) -> int:
        return int(progress.clock.cycles) * self.spec.training.steps_per_update * self.unit.seeds

    @property
    def _seeds(self) -> Any:
        return np.arange(self.unit.first_seed, self.unit.first_seed + self.unit.seeds)


def _append(records: Columns, rows: Columns) -> Columns:
    if not records:
        return rows
    return {name: np.concatenate([records[name], rows[name]]) for name in rows}
