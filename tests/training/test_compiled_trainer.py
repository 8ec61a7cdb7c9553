"""The compiled trainer: what is summed does not depend on how a run is cut."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tests.training.copies import fresh
from valuetrack import schedules
from valuetrack.agents.lktd import LKTD, LKTDOptions
from valuetrack.envs.indoor_escape import IndoorEscape
from valuetrack.learner import Task
from valuetrack.training.compiled_trainer import CompiledTrainer
from valuetrack.training.trainer import Settings, Trace

ENV = IndoorEscape(width=4, height=3, horizon=7)
SEEDS = (0, 5)


def make_trainer():
    return fresh(build_trainer())


@functools.cache
def build_trainer():
    learner = LKTD.build(Task((2,), False, 4), LKTDOptions(hidden=(8,)))
    settings = Settings(
        exploration=schedules.constant(0.3),
        steps_per_update=3,
        replay_capacity=30,
        batch_size=8,
        learning_starts=12,
        pool_size=2,
    )
    return CompiledTrainer(learner, settings, ENV, SEEDS)


@pytest.fixture(scope="module")
def whole():
    trainer = make_trainer()
    trainer.run(40)
    return trainer


def assert_same_trace(one, other):
    for name, a, b in zip(Trace._fields, one, other, strict=True):
        # A program from the cache of compiled ones may round the last bit of a sum otherwise than
        # one that has just been compiled.
        np.testing.assert_allclose(a, b, rtol=3e-7, err_msg=name)
        assert a.dtype == b.dtype, name


@pytest.mark.parametrize("cuts", [(40,), (1, 39), (2, 3, 35), (17, 23), (1,) * 40], ids=len)
def test_sums_are_the_same_however_a_run_is_cut(whole, cuts):
    trainer = make_trainer()
    for cycles in cuts:
        trainer.run(cycles)
    assert_same_trace(trainer.trace, whole.trace)


def test_sums_are_the_same_if_a_run_is_saved_and_resumed(whole):
    trainer = make_trainer()
    for cycles in (2, 11, 27):  # once before learning begins
        trainer.run(cycles)
        saved = {name: array.copy() for name, array in trainer.arrays().items()}
        trainer = make_trainer()
        trainer.restore(saved)
    assert_same_trace(trainer.trace, whole.trace)


def test_what_is_summed(whole):
    trace = whole.trace
    assert trace.cycles.tolist() == [40] * 2
    assert trace.learning.tolist() == [whole.clock.updates] * 2 == [37] * 2
    assert (trace.episodes >= 40 * 3 // 7 - 1).all()  # the horizon
    assert (trace.reward < trace.returns).all()  # the running episode is not over
    assert len(np.unique(trace.squared_residual)) == 2  # a seed each
    returns, loss = trace.means()
    np.testing.assert_allclose(returns, trace.returns / trace.episodes, rtol=1e-6)
    np.testing.assert_allclose(loss, trace.squared_residual / 37, rtol=1e-6)


def test_taken_sums_begin_anew(whole):
    trainer = make_trainer()
    trainer.run(15)
    first = trainer.take_trace()
    assert not any(part.any() for part in trainer.trace)
    trainer.run(25)
    second = trainer.trace
    for name, a, b in zip(Trace._fields, first, second, strict=True):
        np.testing.assert_allclose(a + b, getattr(whole.trace, name), rtol=1e-5, err_msg=name)
