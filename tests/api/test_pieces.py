"""A training in pieces: watched, stopped, and the same as in one go."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import valuetrack as vt
from valuetrack.api import pieces
from valuetrack.api.pieces import run_pieces
from valuetrack.training.trainer import Clock

SMALL = {"hidden": (8,), "batch_size": 8, "learning_starts": 20, "replay_capacity": 500}


class Clockwork:
    """A trainer that takes a given number of seconds per cycle, on a clock of its own."""

    longest_run = 7_000

    def __init__(self, collecting, learning, warmup):
        self.settings = SimpleNamespace(warmup_cycles=warmup)
        self.seconds, self.clock = (collecting, learning), Clock()
        self.now, self.longest = 0.0, 0.0

    def run(self, cycles):
        assert cycles <= self.longest_run
        begin, end = self.clock.cycles, self.clock.cycles + cycles
        collected = max(0, min(self.settings.warmup_cycles, end) - begin)
        updates = self.clock.updates + 2 * (cycles - collected)
        self.clock = self.clock._replace(cycles=end, updates=updates)
        took = self.seconds[0] * collected + self.seconds[1] * (cycles - collected)
        self.now += took
        self.longest = max(self.longest, took)
        return np.arange(begin, end)


def run(trainer, end, every=10**9, **functions):
    """Run pieces; return whether the end was reached, and at which cycles something was due."""
    due, nothing = [], lambda *given: None
    finished = run_pieces(
        trainer,
        end,
        next_point=lambda cycle: (cycle // every + 1) * every,
        at_point=functions.pop("at_point", lambda: due.append(trainer.clock.cycles)),
        **{"heartbeat": nothing, "sink": nothing, **functions},
    )
    return finished, due


@pytest.mark.parametrize("learning", [1e-5, 1e-3, 0.1, 0.9])
def test_pieces_are_short_at_any_speed(learning, monkeypatch):
    trainer = Clockwork(collecting=1e-6, learning=learning, warmup=5_000)
    monkeypatch.setattr(pieces.time, "monotonic", lambda: trainer.now)
    recorded, beats = [], []
    total = 5_000 + min(int(60 / learning), 100_000)
    finished, due = run(
        trainer,
        total,
        every=3_000,
        heartbeat=lambda: beats.append(trainer.clock.cycles),
        sink=recorded.extend,
    )
    assert finished
    assert recorded == list(range(total))
    assert due == [*range(3_000, total, 3_000), total]
    assert trainer.clock.updates == 2 * (total - 5_000)
    assert trainer.longest <= max(1.0, learning)
    assert beats[-1] == total
    assert len(beats) < 200 + len(due)  # long enough to cost nothing


@pytest.mark.parametrize("answer", [False, np.False_])
def test_a_heartbeat_ends_a_run(answer):
    trainer = Clockwork(collecting=1e-6, learning=1e-3, warmup=0)
    answers = iter([None, True, None, answer])
    finished, due = run(trainer, 10_000, heartbeat=lambda: next(answers))
    assert not finished
    assert not due
    assert 0 < trainer.clock.cycles < 10_000


@pytest.mark.parametrize("answer", [False, np.False_])
def test_what_is_due_can_end_a_run(answer):
    trainer = Clockwork(collecting=1e-6, learning=1e-3, warmup=0)
    answers = iter([None, True, answer])
    finished, _ = run(trainer, 10_000, every=50, at_point=lambda: next(answers))
    assert not finished
    assert trainer.clock.cycles == 150


BACKENDS = pytest.mark.parametrize("backend", ["compiled", "host"])


def make(backend):
    return vt.LKTD("CartPole-v1", seed=3, backend=backend, steps_per_update=1, **SMALL)


@BACKENDS
def test_a_stopped_training_has_a_last_report_and_goes_on_as_if_it_had_not(backend, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_SECONDS", 0.0)  # one cycle per piece
    states, reports = np.eye(2, 4), []
    whole, cut = make(backend), make(backend)
    whole.learn(120, track=states)
    cut.learn(
        120, track=states, report_every=50, evaluate_every=70, callback=reports.append,
        heartbeat=lambda: cut.num_timesteps < 65,
    )  # fmt: skip
    assert [report.steps for report in reports] == [50, 65]
    assert reports[-1].evaluation is None  # whoever stops does not wait for it
    cut.learn(55, track=states)
    for name in ("steps", "updates", "samples"):
        one, other = (getattr(agent.tracking(), name) for agent in (cut, whole))
        assert len(one) > 90
        np.testing.assert_array_equal(one, other)


def test_a_stop_where_something_is_due_leaves_no_hole_in_the_reports(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_SECONDS", 0.0)
    reports, agent = [], make("compiled")
    agent.learn(
        120, report_every=70, evaluate_every=70, evaluation_episodes=2, callback=reports.append,
        heartbeat=lambda: agent.num_timesteps < 70,
    )  # fmt: skip
    (report,) = reports
    assert (report.steps, report.evaluation.shape) == (70, (1, 2))


def told(reports):
    """Return what was reported, without the agent itself."""
    return [
        (
            report.steps,
            report.updates,
            report.episode_return.tobytes(),
            report.loss.tobytes(),
            None if report.evaluation is None else report.evaluation.tobytes(),
        )
        for report in reports
    ]


@BACKENDS
def test_reports_do_not_depend_on_timing(backend, monkeypatch):
    how = {"report_every": 50, "evaluate_every": 70, "evaluation_episodes": 2}
    by_speed = []
    for seconds in (0.0, 100.0):  # one cycle per piece; pieces as long as they may be
        monkeypatch.setattr(pieces, "PIECE_SECONDS", seconds)
        by_speed.append([])
        make(backend).learn(160, callback=by_speed[-1].append, **how)
    slow, fast = map(told, by_speed)
    assert [steps for steps, *_ in slow] == [50, 70, 100, 140, 150, 160]
    assert slow == fast
    assert np.isfinite([report.loss for report in by_speed[0]]).all()


def test_a_report_after_a_stop_covers_what_came_before_it(monkeypatch, tmp_path):
    monkeypatch.setattr(pieces, "PIECE_SECONDS", 0.0)
    whole, first, rest, agent = [], [], [], make("compiled")
    make("compiled").learn(160, report_every=50, callback=whole.append)
    agent.learn(
        160, report_every=50, callback=first.append, heartbeat=lambda: agent.num_timesteps < 65
    )
    agent.save(tmp_path / "agent.vt")  # the sums so far are part of it
    vt.load(tmp_path / "agent.vt").learn(95, report_every=50, callback=rest.append)
    assert [report.steps for report in first + rest] == [50, 65, 100, 150, 160]
    assert told(first[:1] + rest) == told(whole)


def test_a_heartbeat_is_a_function():
    agent = vt.DQN("CartPole-v1", **SMALL)
    with pytest.raises(TypeError, match="A heartbeat is a function without arguments, not a int"):
        agent.learn(20, heartbeat=1)
