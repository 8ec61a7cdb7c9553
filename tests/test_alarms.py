"""The test for growing scores: what it wins and loses by, and how often it is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from valuetrack import alarms


def first_alarm(scores, threshold, window=alarms.WINDOW):
    evidence = alarms.begin(scores.shape[1], window)
    for time, score in enumerate(scores):
        evidence, is_alarm = alarms.add(evidence, score, threshold)
        if is_alarm:
            assert evidence.seen == evidence.size == 0  # all is forgotten
            return time + 1
    return len(scores)


LAWS = {
    "normal": lambda r, n: np.abs(r.normal(size=(n, 2))),
    "heavy": lambda r, n: np.abs(r.standard_cauchy((n, 2))),
    "alike": lambda r, n: np.repeat(r.exponential(size=(n, 1)), 2, axis=1),
}


@pytest.mark.parametrize("law", LAWS)
def test_false_alarms_are_as_rare_as_they_should_be(law):
    threshold, runs = 40.0, 150
    times = [
        first_alarm(LAWS[law](np.random.default_rng(seed), 1_000), threshold, window=100)
        for seed in range(runs)
    ]
    error = np.std(times) / np.sqrt(runs)
    assert np.mean(times) - 3 * error > threshold
    assert np.mean(times) < 5 * threshold  # and the test is not deaf


def test_a_bet_is_worth_one_whatever_has_been_seen():
    earlier = np.random.default_rng(0).random((59, 2))
    borders = np.sort(earlier[:, 0])
    between = np.concatenate([[-1.0], (borders[1:] + borders[:-1]) / 2, [2.0]])
    for k in range(2):
        every = np.sort(earlier[:, k])
        places = np.concatenate([[-1.0], (every[1:] + every[:-1]) / 2, [2.0]])
        won = [alarms.bet(earlier[:, k : k + 1], np.array([place])) for place in places]
        assert np.mean(won) == pytest.approx(1.0)
        assert (np.diff(won) > 0).all()  # more for larger scores
    both = alarms.bet(earlier, np.array([2.0, -1.0]))
    alone = [alarms.bet(earlier[:, [k]], np.array([x])) for k, x in ((0, 2.0), (1, -1.0))]
    assert both == pytest.approx(np.mean(alone))
    assert len(between) == 60


def test_growing_scores_are_found_in_either_number():
    random = np.random.default_rng(1)
    for k in range(2):
        scores = random.exponential(size=(400, 2))
        scores[300:, k] += 10.0
        assert 300 < first_alarm(scores, 1_000.0) < 315
    assert first_alarm(np.ones((2_000, 2)), 1_000.0) == 2_000  # a constant never wins
    falling = np.exp(-np.arange(2_000)[:, None] / 100.0) * np.ones(2)
    assert first_alarm(falling, 1_000.0) == 2_000


def test_what_is_not_known_is_no_score():
    evidence = alarms.begin(2)
    for score in ([1.0, np.nan], [np.inf, 1.0]):
        after, is_alarm = alarms.add(evidence, np.array(score), 10.0)
        assert not is_alarm
        assert after is evidence


def test_old_scores_are_forgotten():
    scores = np.concatenate([np.full(50, 5.0), np.linspace(0.0, 1.0, 60)])[:, None]
    assert first_alarm(scores, 1e6, window=1_000) == 110
    assert first_alarm(scores, 1e3, window=30) < 110
