"""A training in pieces: watched, stopped, and the same as in one go."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import valuetrack as vt
from valuetrack.algorithms import pieces
from valuetrack.algorithms.pieces import Pieces
from valuetrack.training.trainer import Clock, Trace

SMALL = {"hidden": (8,), "batch_size": 8, "learning_starts": 20, "replay_capacity": 500}


class Clockwork:
    """A trainer that takes so many seconds a cycle, on a clock of its own."""

    longest_run = 7_000

    def __init__(self, collecting, learning, silent):
        self.settings = SimpleNamespace(warmup_cycles=silent, updates_per_cycle=2)
        self.seconds, self.clock = (collecting, learning), Clock()
        self.now, self.longest = 0.0, 0.0

    def run(self, cycles):
        assert cycles <= self.longest_run
        begin, updates, _ = self.clock
        silent = max(0, min(self.settings.warmup_cycles, begin + cycles) - begin)
        self.clock = Clock(begin + cycles, updates + 2 * (cycles - silent))
        took = self.seconds[0] * silent + self.seconds[1] * (cycles - silent)
        self.now += took
        self.longest = max(self.longest, took)
        return Trace(*[np.full(2, cycles)] * 4), np.arange(begin, self.clock.cycles)


@pytest.mark.parametrize("learning", [1e-5, 1e-3, 0.1, 0.9])
def test_pieces_are_short_at_any_speed(learning, monkeypatch):
    trainer = Clockwork(collecting=1e-6, learning=learning, silent=5_000)
    monkeypatch.setattr(pieces.time, "monotonic", lambda: trainer.now)
    recorded, beats = [], []
    in_pieces = Pieces(trainer, recorded.extend, lambda: beats.append(trainer.clock.cycles))
    total = 5_000 + min(int(60 / learning), 100_000)
    first, rest = in_pieces.run(3_000), in_pieces.run(total - 3_000)
    assert recorded == list(range(total))
    assert (first.cycles, first.learning, first.stopped) == (3_000, 0, False)
    assert (rest.cycles, rest.learning) == (total - 3_000, total - 5_000)
    assert first.trace.reward.tolist() == [3_000] * 2
    assert rest.trace.squared_residual.tolist() == [total - 3_000] * 2
    assert trainer.longest <= max(1.0, learning)
    assert beats[-1] == total
    assert len(beats) < 200  # long enough to cost nothing


@pytest.mark.parametrize("answer", [False, np.False_])
def test_a_heartbeat_ends_a_run(answer):
    trainer = Clockwork(collecting=1e-6, learning=1e-3, silent=0)
    answers = iter([None, True, None, answer])
    stretch = Pieces(trainer, lambda values: None, lambda: next(answers)).run(10_000)
    assert stretch.stopped
    assert stretch.cycles == stretch.learning == trainer.clock.cycles < 10_000
    assert stretch.trace.reward.tolist() == [trainer.clock.cycles] * 2


@pytest.mark.parametrize("backend", ["compiled", "host"])
def test_a_stopped_training_has_a_last_report_and_goes_on_as_if_it_had_not(backend, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_SECONDS", 0.0)  # one cycle a piece
    states, reports = np.eye(2, 4), []
    whole, cut = (
        vt.LKTD("CartPole-v1", seed=3, backend=backend, steps_per_update=1, **SMALL)
        for _ in range(2)
    )
    whole.learn(120, track=states)
    cut.learn(
        120, track=states, report_every=50, evaluate_every=70, callback=reports.append,
        heartbeat=lambda: cut.num_timesteps < 70,
    )  # fmt: skip
    assert [report.steps for report in reports] == [50, 70]
    assert reports[-1].evaluation is None  # who stops does not wait for it
    cut.learn(50, track=states)
    for name in ("steps", "updates", "samples"):
        one, other = (getattr(agent.tracking(), name) for agent in (cut, whole))
        assert len(one) > 90
        np.testing.assert_array_equal(one, other)


def test_a_heartbeat_is_a_function():
    agent = vt.DQN("CartPole-v1", **SMALL)
    with pytest.raises(TypeError, match="A heartbeat is a function without arguments, not a int"):
        agent.learn(20, heartbeat=1)
