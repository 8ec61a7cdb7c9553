"""Agents with the same options share their programs, as models of ``valuetrack.sb3`` always do.

Nearly all of the tests' time is tracing and compilation, and most tests make an agent that some
test before them has made. Where the learner is built from equal options for an equal task, it is
the same object here; a program of the same function, of the same learner, the same settings, an
equal environment and the same tracked observations is traced once per process.

What differs between agents (seeds, states, clocks, replay memories) never belongs to a program: if
it did, an agent of another seed would now act like the first one, and tests of seeds would fail.
``XLA_FLAGS= make pytest`` shares nothing.
"""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np
import pytest

from valuetrack.agents import value_tracker
from valuetrack.api import acting, agent, settings
from valuetrack.api.queries import Queries
from valuetrack.training.compiled_loop import Loop
from valuetrack.training.compiled_trainer import CompiledTrainer
from valuetrack.training.host_trainer import HostTrainer
from valuetrack.training.seed_groups import Groups
from valuetrack.values import features

MOST = 100
"""How many learners, and how many programs, a process remembers."""
TRAINERS = "valuetrack.training."
"""Where functions are made of what :func:`key_of` knows."""


class Same:
    """A key that an object shares with nobody; it keeps the object, and so the id stays its own."""

    def __init__(self, thing: object) -> None:
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.thing is other.thing


class Recent(OrderedDict):
    """What was asked for lately."""

    def get_or_make(self, key: Hashable, make: Callable[[], Any]) -> Any:
        try:
            hash(key)
        except TypeError:  # an environment with a list in it
            return make()
        if key not in self:
            self[key] = make()
            if len(self) > MOST:
                self.popitem(last=False)
        self.move_to_end(key)
        return self[key]


def array_key(array: Any) -> Hashable:
    array = np.asarray(array)
    return array.shape, array.dtype.str, array.tobytes()


def environment_key(env: Any) -> Hashable:
    return type(env), env, repr(env)  # 1 and 1.0 are equal, and not the same


def key_of(thing: Any) -> Hashable:
    """Return what a program depends on; where that is not known, nobody else has the key."""
    match thing:
        case types.MethodType():
            return thing.__func__, key_of(thing.__self__)
        case types.FunctionType() if thing.__module__.startswith(TRAINERS):
            cells = [cell.cell_contents for cell in thing.__closure__ or ()]
            return thing.__code__, tuple(key_of(content) for content in cells)
        case Loop():
            return (
                environment_key(thing.env),
                Same(thing.learner),
                Same(thing.settings),
                array_key(thing.tracked),
                thing.room,
            )
        case CompiledTrainer():
            return key_of(thing.loop)
        case HostTrainer():
            tracked = array_key(getattr(thing, "tracked", 0))
            return Same(thing.learner), Same(thing.settings), thing.layout, tracked
    return Same(thing)


def as_it_is(function: Any) -> Any:
    """Return a function of the trainer as it is now, which is traced later and may be shared."""
    trainer = getattr(function, "__self__", None)
    if not isinstance(trainer, HostTrainer):
        return function
    still = object.__new__(HostTrainer)
    for name in ("learner", "settings", "tracked"):
        setattr(still, name, getattr(trainer, name, None))
    return types.MethodType(function.__func__, still)


def context_key() -> Hashable:
    """Return what JAX was told that changes how it traces."""
    config: Any = jax.config
    return (
        config.jax_enable_x64,
        config.jax_default_matmul_precision,
        config.jax_debug_nans,
        config.read("jax_disable_most_optimizations"),
    )


def share(patch: pytest.MonkeyPatch) -> None:
    """Let agents that are made from now on share learners, settings, queries and programs."""
    learners, interned, asked, averaged, programs, solved = (Recent() for _ in range(6))
    make_learner, settings_of = agent.Agent._make_learner, settings.settings_of
    average, compile_groups, linearised = acting.averaging, Groups.compile, features.linearised

    def shared_learner(self: Any) -> Any:
        meant = None if self._meant is None else array_key(self._meant)
        key = (type(self), self.build, self.task, repr(self.options), meant, context_key())
        return learners.get_or_make(key, lambda: make_learner(self))

    def shared_settings(options: Any, learner: Any, seeds: int) -> Any:
        found = settings_of(options, learner, seeds)
        plain = {name: v for name, v in vars(found).items() if not callable(v)}
        key = repr(options), Same(learner), repr(plain)
        return interned.get_or_make(key, lambda: found)

    def shared_queries(learner: Any, env: Any) -> Queries:
        key = Same(learner), environment_key(env), context_key()
        return asked.get_or_make(key, lambda: Queries(learner, env))

    def shared_average(learner: Any) -> Any:
        return averaged.get_or_make(Same(learner), lambda: average(learner))

    def shared_linearised(learner: Any, state: Any, key: Any, example: Any, actor: Any) -> Any:
        shape = np.shape(example), np.asarray(example).dtype.str, features.MOST_PARAMETERS
        return solved.get_or_make(
            (Same(learner), Same(actor), shape, context_key()),
            lambda: linearised(learner, state, key, example, actor),
        )

    def of_size(size: int, function: Any, how: dict[str, Any]) -> Any:
        key = key_of(function), size, tuple(sorted(how.items())), context_key()
        group = types.SimpleNamespace(sizes=(size,))
        return programs.get_or_make(
            key, lambda: compile_groups(group, as_it_is(function), **how)[0]
        )

    def shared_programs(self: Groups, function: Any, **how: Any) -> Any:
        return [of_size(size, function, how) for size in self.sizes]

    patch.setattr(agent.Agent, "_make_learner", shared_learner)
    patch.setattr(settings, "settings_of", shared_settings)
    patch.setattr(value_tracker, "settings_of", shared_settings)
    patch.setattr(agent, "Queries", shared_queries)
    patch.setattr(acting, "Queries", shared_queries)
    patch.setattr(acting, "averaging", shared_average)
    patch.setattr(features, "linearised", shared_linearised)
    patch.setattr(Groups, "compile", shared_programs)
