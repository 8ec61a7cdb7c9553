"""Episodes seen from states within them, in JAX and in Python."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import valuetrack as vt
from tests import probes, small_envs
from valuetrack.api import witnesses as module
from valuetrack.api.witnesses import CutOff, witnesses
from valuetrack.training.host_rollouts import HostEpisode, discounted
from valuetrack.training.rollouts import Rollout, usable_steps

SMALL = {"hidden": (), "batch_size": 8, "learning_starts": 20, "replay_capacity": 100}
ENVS = {"compiled": probes.Coins, "host": small_envs.Coins}


@functools.cache
def agent(backend, seeds=2, **options):
    env = ENVS[backend](**options)
    made = env if backend == "compiled" else functools.partial(ENVS[backend], **options)
    return vt.DQN(made, seeds=seeds, discount=0.5, **SMALL)


@pytest.mark.parametrize("backend", ENVS)
def test_returns_are_those_from_the_step_on(backend):
    """Without noise every step pays the place, so that return and length say the same."""
    for seen in witnesses(agent(backend, noise=0.0), 20, 0, 0):
        first = seen.first
        place = first.observation.argmax(axis=-1)
        paid = (1 - 0.5 ** (first.length - first.step)) / (1 - 0.5)
        np.testing.assert_allclose(first.returns, place * paid, rtol=1e-5)
        assert first.terminated.all()
        assert (first.step < first.length).all()
        assert len(np.unique(first.step)) > 3
        assert first.value.shape == first.action.shape == (20, module.STATES)


@pytest.mark.parametrize("backend", ENVS)
def test_a_state_is_left_again_independently(backend):
    for seen in witnesses(agent(backend), 20, 0, 0):
        assert seen.same.all()
        here = seen.first.observation[:, :1]
        assert (seen.again.observation == here).all()
        assert (seen.again.step == seen.first.step[:, :1]).all()
        assert len(np.unique(seen.again.returns)) == seen.again.returns.size
        assert not np.isin(seen.again.returns, seen.first.returns).any()
        assert (seen.again.length > seen.again.step).all()


@pytest.mark.parametrize("backend", ENVS)
def test_once_leaves_no_state_again(backend):
    often, once = (witnesses(agent(backend), 8, 0, 0, once=once) for once in (False, True))
    for one, other in zip(often, once, strict=True):
        np.testing.assert_array_equal(one.first.returns, other.first.returns)
        assert one.again.returns.shape[1] > 2
        assert other.again.returns.shape == (8, 0)


@pytest.mark.parametrize("backend", ENVS)
def test_the_same_seed_plays_the_same_episodes_and_streams_and_members_others(backend):
    one, same, seed, stream = (
        witnesses(agent(backend), 8, *which) for which in ((1, 0), (1, 0), (2, 0), (1, 1))
    )
    np.testing.assert_array_equal(one[0].first.returns, same[0].first.returns)
    np.testing.assert_array_equal(one[1].again.returns, same[1].again.returns)
    for other in (one[1], seed[0], stream[0]):
        assert not np.isin(other.first.returns, one[0].first.returns).any()


@pytest.mark.parametrize("backend", ENVS)
def test_of_episodes_that_are_cut_only_early_steps_are_used(backend):
    """0.5 to the 7 is below a hundredth, so that 7 steps must be seen."""
    for seen in witnesses(agent(backend, ends=0.1, horizon=9), 40, 0, 0):
        assert set(np.unique(seen.first.step)) == {0, 1, 2}
        unseen = seen.first.unseen(0.5)
        assert ((unseen > 0) == ~seen.first.terminated).all()
        assert 0 < unseen.max() <= 0.01
        assert seen.first.terminated.any()


def test_episodes_that_are_cut_too_early_show_nothing():
    for seen in witnesses(agent("host", ends=0.1, horizon=6), 40, 0, 0):
        assert isinstance(seen, CutOff)
        assert seen.shortest == 6
        assert 0 < seen.episodes < 40


def test_usable_steps_do_not_depend_on_which_episodes_end():
    length, ended = np.array([20, 30, 500]), np.array([True, True, False])
    assert usable_steps(length, ended, 0.99) == 500 - 459 + 1
    assert usable_steps(length, ended, 1.0) == usable_steps(length, ended, 0.999) == 0
    assert usable_steps(length, ended, 0.0) == 500
    assert usable_steps(length, np.ones(3, bool), 1.0) == 500


def test_what_was_cut_off_counts_by_its_distance():
    seen = Rollout(np.array([10, 10]), np.array([False, True]), np.array([4, 4]), *[None] * 4)
    np.testing.assert_allclose(seen.unseen(0.5), [0.5**6, 0.0])


def test_steps_are_drawn_uniformly_from_those_that_turn_out_usable():
    draw, rewards = np.random.default_rng(0), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    steps = []
    for _ in range(3_000):
        one = HostEpisode(0, np.ones(1), [[]])
        for place, reward in enumerate(rewards):
            one.note(draw.random(1), np.array([place]), place, float(place))
            one.rewards.append(reward)
        seen = one.seen_from(0, 4, 0.5)
        assert seen.step == seen.observation[0] == seen.action == seen.value
        assert seen.returns == discounted(rewards[seen.step :], 0.5)
        steps.append(seen.step)
    np.testing.assert_allclose(np.bincount(steps) / 3_000, 0.25, atol=0.03)


class Restless(small_envs.Coins):
    """Begins somewhere else each time, whatever the seed."""

    places = iter(range(10**6))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = next(self.places) % 3
        return self._observation(), {}


def test_a_state_that_is_not_met_again_is_noticed():
    (seen,) = witnesses(vt.DQN(Restless, discount=0.5, **SMALL), 10, 0, 0)
    assert not seen.same.all()
