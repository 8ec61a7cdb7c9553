"""Seeds in groups: a function of one seed as a function of many, on all cores."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TypeVar

import jax
import jax.numpy as jnp

from valuetrack import rng
from valuetrack.learner import Learner
from valuetrack.types import Array, Params, Tree

OneTree = TypeVar("OneTree")
"""A pytree, and those of its structure."""
Function = Callable[..., Tree]
Axes = int | None | tuple[int | None, ...]

_CORES: ContextVar[int | None] = ContextVar("cores", default=None)
"""How many cores trainers that are made now may use; ``None`` for all of them."""

NUMBERS_TOGETHER = 450_000
"""How many numbers the seeds of a group have together: what the caches of a core hold."""


def over_seeds(
    function: Function, count: int, *, in_axes: Axes = 0, out_axes: Axes = 0
) -> Function:
    """Map a function over seeds like ``jax.vmap``, over the leading axis or (``None``) over none.

    A single seed is not mapped: with an axis of size one XLA leaves the gradients of the weights
    transposed, and whoever reads them later goes through memory in large steps.
    """
    if count != 1:
        return jax.vmap(function, in_axes=in_axes, out_axes=out_axes)

    def alone(*arguments: Tree) -> Tree:
        result = function(*_each(jnp.squeeze, in_axes, arguments))
        if isinstance(out_axes, tuple):
            return _each(jnp.expand_dims, out_axes, result)
        return _each(jnp.expand_dims, (out_axes,), (result,))[0]

    return alone


class Program:
    """A function that is compiled once, for arguments of one shape.

    What JAX is told in a context (``with jax.default_matmul_precision(...)``) holds in the thread
    that compiles, whichever thread calls.
    """

    def __init__(self, function: jax.stages.Wrapped) -> None:
        self._function = function
        self._compiled: jax.stages.Compiled | None = None

    def compile(self, *arguments: Tree) -> jax.stages.Compiled:
        """Compile for such arguments, if that is not done yet."""
        if self._compiled is None:
            self._compiled = self._function.lower(*arguments).compile()
        return self._compiled

    def __call__(self, *arguments: Tree) -> Tree:
        """Start the program; its results are yet to come."""
        return self.compile(*arguments)(*arguments)


class Groups:
    """Seeds in groups, which the cores share and compute at the same time.

    Programs run one after the other if they are started by the same thread, and a program of
    this size does not get faster with more threads of its own. So each core has a thread that
    starts the programs of its groups, and these use one thread each. An accelerator has one
    group, and so has each core, unless that would hold more seeds than fit into its caches.

    Parameters
    ----------
    seeds
        How many there are.
    cores
        How many groups compute at the same time; by default as many as this process has cores.
    most
        How many seeds a group has at most; see :func:`seeds_together`.
    """

    def __init__(self, seeds: int, cores: int | None = None, most: int | None = None) -> None:
        cores = cores or default_groups()
        needed = -(-seeds // (most or seeds))
        count = min(seeds, -(-needed // cores) * cores)
        base, extra = divmod(seeds, count)
        self.sizes = tuple(base + (group < extra) for group in range(count))
        threads = [ThreadPoolExecutor(1, "valuetrack") for _ in range(min(cores, count))]
        self._threads = [threads[group % len(threads)] for group in range(count)]

    def compile(
        self,
        function: Function,
        *,
        in_axes: Axes = 0,
        out_axes: Axes = 0,
        donate_argnums: int | tuple[int, ...] = (),
    ) -> list[Program]:
        """Return the program of each group; the arguments are those of ``vmap`` and ``jit``."""
        on_cpu = jax.default_backend() == "cpu"
        programs = {}
        for size in set(self.sizes):
            mapped = over_seeds(function, size, in_axes=in_axes, out_axes=out_axes)
            programs[size] = Program(
                jax.jit(
                    mapped,
                    donate_argnums=donate_argnums,
                    compiler_options={"xla_cpu_multi_thread_eigen": False} if on_cpu else {},
                )
            )
        return [programs[size] for size in self.sizes]

    def start(self, programs: Sequence[Program], arguments: Sequence[tuple[Tree, ...]]) -> Tree:
        """Start each group's program on its arguments; nothing waits for the results here."""
        started = []
        for thread, program, given in zip(self._threads, programs, arguments, strict=True):
            program.compile(*given)
            if thread is self._threads[0]:
                started.append(program(*given))
            else:
                started.append(thread.submit(program, *given).result())
        return started

    def split(self, tree: OneTree) -> list[OneTree]:
        """Cut the leading axis of all leaves into the groups' parts."""
        if len(self.sizes) == 1:
            return [tree]
        ends = [0, *itertools.accumulate(self.sizes)]
        return [
            jax.tree.map(lambda leaf, a=begin, b=end: leaf[a:b], tree)
            for begin, end in itertools.pairwise(ends)
        ]

    def locate(self, index: int) -> tuple[int, int]:
        """Return in which group a seed is, and at which place there."""
        place = index
        for group, size in enumerate(self.sizes):
            if place < size:
                return group, place
            place -= size
        raise IndexError(f"There are {sum(self.sizes)} seeds, so none has the index {index}.")

    @staticmethod
    def join(parts: Sequence[OneTree]) -> OneTree:
        """Put the groups' parts together again."""
        if len(parts) == 1:
            return parts[0]
        joined: OneTree = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
        return joined


def groups_for(learner: Learner, seeds: int, batch: int) -> Groups:
    """Return groups of as many of a learner's seeds as a core had better train at a time."""
    if jax.default_backend() != "cpu":
        return Groups(seeds)
    params = jax.eval_shape(learner.init, rng.key(0)).sampler.params
    return Groups(seeds, most=seeds_together(params, batch))


def seeds_together(params: Params, batch: int) -> int:
    """Return how many seeds a core had better train at a time.

    Together they share the cost of starting each operation, which counts for small networks.
    Those of large ones only drive each other's numbers out of the caches. A seed has its
    parameters and, for each transition of a batch, the outputs of all layers, which are as many as
    there are biases.
    """
    leaves = jax.tree.leaves(params)
    outputs = sum(leaf.size for leaf in leaves if leaf.ndim == 1)
    numbers: int = sum(leaf.size for leaf in leaves) + batch * outputs
    return max(1, NUMBERS_TOGETHER // numbers)


@contextlib.contextmanager
def limited_to(cores: int) -> Iterator[None]:
    """Let trainers that are made meanwhile use this many cores.

    How seeds are grouped decides how XLA rounds. With a fixed number of cores a training has the
    same bits on any machine.
    """
    before = _CORES.set(cores)
    try:
        yield
    finally:
        _CORES.reset(before)


def default_groups() -> int:
    """Return how many groups compute at the same time: one per core this process may use."""
    if (limit := _CORES.get()) is not None:
        return limit
    return available_cores() if jax.default_backend() == "cpu" else 1


def available_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _each(change: Callable[[Array, int], Array], axes: Axes, parts: Tree) -> tuple[Tree, ...]:
    """Change the leading axis of each part that has one."""
    by_part = axes if isinstance(axes, tuple) else (axes,) * len(parts)
    return tuple(
        part if axis is None else jax.tree.map(lambda leaf: change(leaf, 0), part)
        for axis, part in zip(by_part, parts, strict=True)
    )
