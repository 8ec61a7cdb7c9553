"""Intervals for the value over the course of a training."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tests.probes import Probes
from valuetrack.agents.dqn import DQN
from valuetrack.agents.lktd import LKTD
from valuetrack.agents.value_tracker import ValueTracker
from valuetrack.api.tracking import Tracking
from valuetrack.envs.indoor_escape import IndoorEscape, observations
from valuetrack.io import array_file
from valuetrack.io.errors import ModelFileError
from valuetrack.registry import load

ESCAPE = IndoorEscape(width=4, height=3, horizon=7)
PLACES = np.eye(4, dtype=np.float32)
SMALL = {
    "hidden": (),
    "batch_size": 16,
    "learning_starts": 40,
    "replay_capacity": 2_000,
    "discount": 0.5,
    "learning_rate": 0.02,
    "samples": 6,
}
TRACKED = {"track": PLACES, "track_every": 5, "track_intervals_every": 50}
TRUTH = np.array([[-1.0, 1.0], [0.5, np.nan], [1.0, np.nan], [2.0, 2.0]])


def make(kind=DQN, **changes):
    return kind(Probes(), **{**SMALL, "seeds": 2, **changes})


@functools.cache
def trained():
    return make().learn(1_000, **TRACKED)


def test_they_are_solved_at_their_points():
    record = trained().tracking()
    np.testing.assert_array_equal(record.solved.updates, [50, 100, 150, 200])
    np.testing.assert_array_equal(record.solved.steps, 36 + 4 * record.solved.updates)
    low, high = record.value_interval(0.9)
    assert low.shape == high.shape == (4, 2, 4, 2)
    assert (low <= high).all()  # rewards without noise leave no width that single precision shows
    known = ~np.isnan(TRUTH)
    np.testing.assert_allclose(record.solved.mean[-1][:, known], [TRUTH[known]] * 2, atol=0.05)


def test_they_do_not_reach_beyond_what_rewards_allow():
    record = trained().tracking()
    np.testing.assert_allclose(record.solved.bound, 1 / (1 - SMALL["discount"]))
    wide = record.solved._replace(sd=np.full_like(record.solved.sd, 10.0))
    low, high = Tracking(record.steps, record.updates, record.samples, wide).value_interval()
    np.testing.assert_array_equal(low, -record.solved.bound)
    np.testing.assert_array_equal(high, record.solved.bound)


def test_they_are_those_that_the_posterior_has():
    agent = make().learn(1_036, **TRACKED, track_intervals_from=None)
    found = agent.tracking().solved
    assert found.steps[-1] == agent.num_timesteps
    for member in range(2):
        expected = agent.posterior(PLACES, member=member).solved
        np.testing.assert_allclose(found.mean[-1, member], expected.mean, rtol=1e-5)
        np.testing.assert_allclose(found.sd[-1, member], expected.sd, rtol=1e-5)


def test_fewer_transitions_give_wider_intervals_by_the_square_root():
    options = {"hidden": (), "replay_capacity": 4_000, "learning_starts": 4_000}
    # Far from singular, which the equation is not with a long horizon: there they widen faster.
    agent = DQN(ESCAPE, batch_size=16, discount=0.5, **options).learn(4_040)
    few, all_of_them = (
        agent._solver.values_from_some(0, observations(ESCAPE), most) for most in (1_000, None)
    )
    assert 1.7 < np.median(few.sd / all_of_them.sd) < 2.3  # twice
    again = agent._solver.values_from_some(0, observations(ESCAPE), 1_000)
    np.testing.assert_array_equal(again.mean, few.mean)


def test_training_and_reports_are_the_same_with_and_without():
    told = {True: [], False: []}
    agents = {}
    for solves, heard in told.items():
        every = {**TRACKED, "track_intervals_every": 30 if solves else None}
        agents[solves] = make().learn(
            500, **every, report_every=100, callback=lambda p, to=heard: to.append(p[1:5])
        )
    assert str(told[True]) == str(told[False])
    mine, others = (agents[solves].trainer.arrays() for solves in told)
    for name, array in mine.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)


def test_a_training_in_parts_and_a_file_keep_them(tmp_path):
    agent = make().learn(500, **TRACKED)
    agent.save(tmp_path / "agent.vt")
    again = load(tmp_path / "agent.vt", env=Probes())
    assert len(again.tracking()) == 0  # samples are not in the file
    again.learn(500, **TRACKED)
    for mine, whole in zip(again.tracking().solved, trained().tracking().solved, strict=True):
        np.testing.assert_array_equal(mine, whole)
    merged = agent.tracking().then(again.tracking())
    np.testing.assert_array_equal(merged.updates, trained().tracking().updates)
    np.testing.assert_array_equal(merged.solved.updates, [50, 100, 150, 200])
    again.learn(300, **{**TRACKED, "track": PLACES[:2]})  # others begin a new record
    assert again.tracking().solved.mean.shape == (2, 2, 2, 2)


@pytest.mark.parametrize("name", ["mean", "steps", "observations"])
def test_a_file_whose_record_does_not_fit_is_refused(tmp_path, name):
    agent = trained()
    arrays = {**agent.trainer.arrays(), **agent._records.arrays()}
    for damaged in ({name: arrays[f"tracking.{name}"][:, None]}, {name: None}):
        changed = {**arrays, **{f"tracking.{key}": value for key, value in damaged.items()}}
        kept = {key: value for key, value in changed.items() if value is not None}
        array_file.save(tmp_path / "agent.vt", kept, agent.describe())
        with pytest.raises(ModelFileError, match="the tracked values do not fit the agent"):
            load(tmp_path / "agent.vt", env=Probes())


def test_records_of_a_file_are_whole(tmp_path):
    record = trained().tracking()
    record.save(tmp_path / "record.npz")
    with np.load(tmp_path / "record.npz") as arrays:
        again = Tracking.from_arrays(arrays)
    for name, array in record.arrays().items():
        np.testing.assert_array_equal(again.arrays()[name], array)


def test_the_figure_shows_the_interval_and_the_truth():
    pytest.importorskip("matplotlib")
    record = trained().tracking()
    (axes,) = record.plot(state=1, seed=1, truth=TRUTH).axes
    low, high = record.value_interval(0.95)
    bars = np.stack(axes.containers[0].lines[2][0].get_segments())[..., 1]  # of action 0
    np.testing.assert_allclose(bars[:, 0], low[:, 1, 1, 0], rtol=1e-5)
    np.testing.assert_allclose(bars[:, 1], high[:, 1, 1, 0], rtol=1e-5)
    assert len(axes.containers) == 2
    exact = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert [line.get_ydata()[0] for line in exact] == [0.5]  # action 1 is not known
    words = [text.get_text() for text in axes.get_legend().get_texts()]
    assert words == ["action 0", "action 1", "exact value"]
    with pytest.raises(ValueError, match=r"truth has the shape \(4, 2\) of the tracked values"):
        record.plot(truth=TRUTH[1])


def test_a_window_too_small_for_an_interval_has_none():
    pytest.importorskip("matplotlib")
    record = make().learn(300, track=PLACES).tracking()
    (axes,) = record.plot(window=5).axes
    assert not axes.collections
    assert "too few for an interval" in axes.get_title()


def test_v_values_have_them_too():
    policy = lambda observation, mask: mask / mask.sum()  # noqa: E731
    options = {name: SMALL[name] for name in SMALL if name != "learning_rate"}
    tracker = ValueTracker(Probes(), policy, probabilities=True, **options)
    record = tracker.learn(500, **TRACKED).tracking()
    assert record.value_interval().low.shape == (2, 1, 4)
    pytest.importorskip("matplotlib")
    assert len(record.plot(truth=[0.0, 0.5, 1.0, 2.0]).axes[0].containers) == 1


def test_what_cannot_be_solved_is_refused_before_the_training():
    with pytest.raises(ValueError, match="pass `track=observations` as well"):
        make().learn(100, track_intervals_every=10)
    on_policy = make(LKTD, replay_capacity=None, learning_starts=0)
    with pytest.raises(ValueError, match="On-policy training keeps no replay memory"):
        on_policy.learn(100, **TRACKED)
    with pytest.raises(ValueError, match="track_intervals_every must be an integer of at least 1"):
        make().learn(100, track=PLACES, track_intervals_every=0)
    with pytest.raises(ValueError, match="pass `track_intervals_every=1000` to `learn`"):
        make().learn(100, track=PLACES).tracking().value_interval()
