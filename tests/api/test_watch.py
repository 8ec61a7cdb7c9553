"""What an agent is told of itself: once, and only if it is true."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from valuetrack import DQN
from valuetrack.api.watch import EPISODES, UPDATES, Watch, Window, is_wrong, window_of
from valuetrack.training.trainer import Trace

QUICK = {
    "hidden": (16,),
    "discount": 0.8,
    "steps_per_update": 1,
    "batch_size": 16,
    "learning_starts": 100,
    "exploration_steps": 100,
    "replay_capacity": 2_000,
    "learning_rate": 3e-3,
    "samples": 1,
}


def trace_of(values, gaps, returns=None, reach=1.0):
    """Return the sums of one seed's episodes."""
    values, gaps = np.asarray(values, float), np.asarray(gaps, float)
    returns = values - gaps if returns is None else np.asarray(returns, float)
    sums = {
        "believed": len(values),
        "start_values": values.sum(),
        "discounted_returns": returns.sum(),
        "squared_returns": (returns**2).sum(),
        "squared_reaches": len(values) * reach**2,
        "reached_gaps": (reach * gaps).sum(),
        "squared_gaps": (gaps**2).sum(),
        "learning": 1,
    }
    return Trace.empty(1).plus(**{name: np.array([value]) for name, value in sums.items()})


def windows(*pairs, error=0.1):
    return [Window(20, value, came, value - came, error, abs(came)) for value, came in pairs]


@pytest.mark.parametrize(
    ("pairs", "wrong"),
    [
        ([(100, 50)] * 3, True),  # too high, and stays so
        ([(50, 100)] * 3, True),  # too low
        ([(100, 50)] * 2, False),  # not for long yet
        ([(100, 50), (150, 50), (200, 50)], True),  # runs away
        ([(100, 50), (90, 50), (80, 50)], False),  # on its way down
        ([(50, 100), (60, 100), (70, 100)], False),  # values lag behind
        ([(50, 60), (60, 100), (70, 200)], False),  # returns that grow faster
        ([(110, 100)] * 3, False),  # a detail
        ([(100, 50), (50, 100), (100, 50)], False),  # to and fro
    ],
)
def test_values_are_wrong_if_a_wide_gap_stays(pairs, wrong):
    assert is_wrong(windows(*pairs)) is wrong


def test_a_gap_within_the_noise_of_the_episodes_is_none():
    assert not is_wrong(windows(*[(100, 50)] * 3, error=11))
    assert is_wrong(windows(*[(100, 50)] * 3, error=9))


def test_a_window_has_the_mean_and_error_of_its_episodes():
    generator = np.random.default_rng(0)
    values, gaps = generator.normal(50, 1, 30), generator.normal(5, 2, 30)
    found = window_of(trace_of(values, gaps, reach=0.5)._asdict(), 0)
    assert found.episodes == 30
    np.testing.assert_allclose(found.value, values.mean(), rtol=1e-6)
    np.testing.assert_allclose(found.came, (values - gaps).mean(), rtol=1e-6)
    np.testing.assert_allclose(found.gap, gaps.mean() / 0.5, rtol=1e-5)
    np.testing.assert_allclose(found.error, gaps.std(ddof=1) / np.sqrt(30) / 0.5, rtol=1e-4)
    assert found.scale == pytest.approx(abs(found.came))


def test_it_speaks_once_with_both_numbers():
    watch = Watch("DQN", [7], 0.9, 10)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for look in range(1, 13):
            watch.look(trace_of([80.0] * EPISODES, [60.0] * EPISODES), look * UPDATES)
    (warning,) = said
    assert "seed 7" in str(warning.message)
    assert "of 80 at their start, and 20 came" in str(warning.message)


def test_few_episodes_and_few_updates_make_no_window(recwarn):
    watch = Watch("DQN", [7], 0.9, 10)
    for look in range(1, 10):
        watch.look(trace_of([80.0], [60.0]), look * UPDATES)
    for look in range(100):
        watch.look(trace_of([80.0] * EPISODES, [60.0] * EPISODES), 10 * UPDATES + look)
    assert not [warning for warning in recwarn if warning.category is RuntimeWarning]


def learned(target_every, **options):
    """Return an agent that has learned in pieces, and what was said."""
    agent = DQN("CartPole-v1", seed=0, target_every=target_every, **QUICK, **options)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            agent.learn(2_000, report_every=250)
    return agent, [str(warning.message) for warning in said]


def test_an_agent_whose_target_is_never_refreshed_is_told_once():
    agent, said = learned(target_every=1_000_000)
    (told,) = said
    assert told.startswith("DQN's values are too low")
    assert agent.watch.has_spoken


@pytest.mark.parametrize("backend", ["compiled", "host"])
def test_a_healthy_agent_is_told_nothing(backend):
    steps = {"compiled": {}, "host": {"steps_per_update": 4}}[backend]
    agent = DQN("CartPole-v1", seed=0, backend=backend, target_every=20, **{**QUICK, **steps})
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.learn(6_000, report_every=500, callback=seen.append)
    last = seen[-1]
    assert abs(last.value_at_start[0] - last.discounted_return[0]) < 1.0  # of 5
    assert last.discounted_return[0] == pytest.approx(5, abs=0.5)
