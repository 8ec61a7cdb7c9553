"""Ctrl-C does not cut in two what must stay whole."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest

import valuetrack as vt
from valuetrack.interrupts import Uninterrupted


def press():
    signal.raise_signal(signal.SIGINT)


def test_it_is_obeyed_after_the_block():
    done = []

    def block():
        with Uninterrupted():
            press()
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        block()
    assert done
    with pytest.raises(KeyboardInterrupt):
        press()  # the handler from before is back


def test_the_second_time_it_is_obeyed_at_once():
    done = []

    def block():
        with Uninterrupted():
            press()
            press()
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        block()
    assert not done


def test_what_ignores_it_still_does_and_other_threads_are_left_alone():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Uninterrupted():
            press()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    ran = []

    def work():
        with Uninterrupted():
            ran.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ran


@pytest.mark.parametrize("backend", ["compiled", "host"])
def test_an_agent_is_whole_after_it(backend, tmp_path, monkeypatch):
    options = {"hidden": (8,), "batch_size": 8, "learning_starts": 8, "samples": 3}
    agent = vt.DQN("CartPole-v1", seed=0, backend=backend, **options)
    agent.learn(40)
    groups = type(agent.trainer._groups)
    start = groups.start

    def pressed(self, programs, arguments):
        results = start(self, programs, arguments)
        press()  # the old state is gone, and the new one is not yet assigned
        return results

    monkeypatch.setattr(groups, "start", pressed)
    before = agent.trainer.clock.updates
    with pytest.raises(KeyboardInterrupt):
        agent.learn(400)
    monkeypatch.undo()
    assert agent.trainer.clock.updates > before
    agent.save(tmp_path / "agent.vt")
    loaded = vt.load(tmp_path / "agent.vt")
    observation = np.zeros(4, np.float32)
    np.testing.assert_array_equal(
        loaded.posterior(observation).samples, agent.posterior(observation).samples
    )
    agent.learn(40)
