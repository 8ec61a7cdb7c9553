"""Intervals for the value, as users ask agents for them."""

from __future__ import annotations

import copy
import functools

import numpy as np
import pytest

from tests.probes import Probes
from tests.small_envs import Counter, Marked, Picture
from valuetrack.agents.value_tracker import ValueTracker
from valuetrack.api.estimate import Estimate
from valuetrack.envs.indoor_escape import IndoorEscape, observations
from valuetrack.registry import AGENTS, load
from valuetrack.values import features

ESCAPE = IndoorEscape(width=4, height=3, horizon=7)
STATES = observations(ESCAPE)
SMALL = {
    "hidden": (8,),
    "batch_size": 8,
    "learning_starts": 40,
    "replay_capacity": 100,
    "exploration_steps": 200,
    "samples": 6,
    "thinning": 2,
}
OWN = {"bootdqn": {"heads": 3}, "qrdqn": {"quantiles": 4}, "iqn": {"cosines": 4}}
PLACES = np.eye(4, dtype=np.float32)


def make(name, env=ESCAPE, **changes):
    return AGENTS[name](env, **{**SMALL, **OWN.get(name, {}), **changes})


@functools.cache
def trained(name="dqn"):
    return make(name, seeds=2).learn(200)


def ends(agent, observation=STATES, level=0.95, **which):
    return np.stack(agent.posterior(observation, **which).interval(level))


@pytest.mark.parametrize("most", [10**9, 0], ids=["all", "last layer"])
@pytest.mark.parametrize("name", AGENTS)
def test_every_algorithm_has_intervals_for_its_values(monkeypatch, name, most):
    monkeypatch.setattr(features, "MOST_PARAMETERS", most)
    low, high = ends(make(name).learn(200))
    assert low.shape == high.shape == (len(STATES), 4)
    assert np.isfinite([low, high]).all()
    assert (low < high).all()


@pytest.mark.parametrize("member", [0, "all"])
def test_no_value_is_beyond_what_rewards_and_discount_allow(member):
    agent = make("dqn", Probes(), discount=0.5, seeds=2).learn(44)  # it has hardly begun
    q = agent.posterior(PLACES, member=member)
    assert q.solved.bound == pytest.approx(2.0)  # rewards of 1 and -1
    ends = np.stack(q.interval(1 - 1e-12))
    assert np.abs(q.solved.mean).max() <= np.abs(ends).max() == q.solved.bound


def test_one_observation_and_many():
    agent = trained()
    q = agent.posterior(STATES)
    assert q.solved.mean.shape == q.solved.sd.shape == (len(STATES), 4)
    assert q.solved.mean.dtype == q.samples.dtype
    one = agent.posterior(STATES[5]).interval(0.8, kind="value")
    assert one.low.shape == one.high.shape == (4,)
    np.testing.assert_allclose(one, ends(agent, level=0.8)[:, 5], rtol=1e-4)
    many = np.tile(STATES, (30, 1))  # more than one block
    np.testing.assert_allclose(ends(agent, many)[:, -12:], ends(agent), rtol=1e-4)


def test_levels_are_nested_around_the_centre():
    q = trained().posterior(STATES)
    narrow, wide = (q.interval(level, kind="value") for level in (0.5, 0.99))
    assert (wide.low <= narrow.low).all()  # both may begin at the smallest value there can be
    assert (narrow.high < wide.high).all()
    within = np.abs(np.stack(narrow)).max(axis=0) < q.solved.bound
    assert within.any()
    centre = (narrow.low + narrow.high) / 2
    np.testing.assert_allclose(centre[within], q.solved.mean[within], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        q.interval(95, kind="value")


def test_members_have_memories_of_their_own():
    both = make("dqn", seeds=3).learn(200)
    first, second, third = (ends(both, member=member) for member in range(3))
    assert (first != second).any()
    assert (second != third).any()
    alone = make("dqn", seed=2, seeds=1).learn(200)
    np.testing.assert_allclose(ends(alone), third, rtol=0.02, atol=1e-3)


@functools.cache
def prober(**options):
    """Return a tabular agent: its values solve the equation whatever it has learned so far."""
    changes = {"hidden": (), "replay_capacity": 2_000, "discount": 0.5, "batch_size": 32}
    return make("dqn", Probes(), **{**changes, "learning_rate": 0.02, **options}).learn(2_000)


def test_masks_terminations_and_truncations():
    q = prober().posterior(PLACES).solved
    exact = {(0, 0): -1.0, (0, 1): 1.0, (1, 0): 0.5, (2, 0): 1.0, (3, 0): 2.0, (3, 1): 2.0}
    for (place, action), value in exact.items():
        assert q.mean[place, action] == pytest.approx(value, abs=0.01)
        assert q.sd[place, action] < 0.02


def test_actions_that_were_never_taken_have_wide_intervals():
    """Action 1 is illegal in the corridor; only the bias ties it to the other places."""
    sd = prober().posterior(PLACES).solved.sd
    assert sd[1:3, 1].min() > 10 * sd[[0, 1, 2, 3, 0, 3], [0, 0, 0, 0, 1, 1]].max()


@pytest.mark.parametrize("most", [10**9, 0], ids=["all", "last layer"])
def test_states_far_from_all_that_was_seen_have_wide_intervals(monkeypatch, most):
    monkeypatch.setattr(features, "MOST_PARAMETERS", most)
    agent = make("dqn", Counter, hidden=(32, 32), replay_capacity=1_000).learn(1_000)
    memory = agent.trainer.memory(0).observation
    known = agent.posterior(memory[:50]).solved.sd
    unknown = agent.posterior([[90.0, 0.0], [0.0, 90.0], [60.0, 60.0]]).solved.sd
    assert unknown.min() > 2 * np.median(known)


def test_solutions_are_kept_until_the_agent_learns_on():
    agent = make("lktd").learn(200)
    before = ends(agent)
    kept = agent._solver._solved[0]
    agent.posterior(STATES[2]).interval(kind="value")
    assert agent._solver._solved[0] is kept
    estimate = agent.posterior(STATES)
    agent.learn(20)
    with pytest.raises(ValueError, match="has learned on since this estimate was made"):
        estimate.interval(kind="value")
    assert (ends(agent) != before).any()
    assert agent._solver._solved[0] is not kept
    assert agent._solver._solved[0].moment == agent.trainer.clock


def test_an_estimate_that_was_asked_once_keeps_its_values():
    agent = make("dqn").learn(200)
    estimate = agent.posterior(STATES)
    before = estimate.interval(kind="value")
    agent.learn(20)
    np.testing.assert_array_equal(estimate.interval(kind="value"), before)


@pytest.mark.parametrize("env", [ESCAPE, Counter], ids=["compiled", "host"])
def test_a_file_with_replay_keeps_the_intervals_bit_for_bit(tmp_path, env):
    agent = make("lktd", env, seeds=2).learn(300)  # the ring has gone round
    asked = agent.trainer.memory(1).observation[:9].copy()
    expected = [ends(agent, asked, member=member) for member in range(2)]
    agent.save(tmp_path / "agent.npz")
    again = load(tmp_path / "agent.npz", env=env)
    for member in range(2):
        np.testing.assert_array_equal(ends(again, asked, member=member), expected[member])


def test_a_copy_has_a_solver_of_its_own():
    agent = make("dqn").learn(200)
    before = ends(agent)
    twin = copy.deepcopy(agent)
    twin.learn(100)
    assert (ends(twin) != before).any()
    np.testing.assert_array_equal(ends(agent), before)


def test_without_a_replay_memory_the_way_out_is_named(tmp_path):
    agent = make("dqn").learn(200)
    agent.save(tmp_path / "agent.npz", replay=False)
    q = load(tmp_path / "agent.npz", env=ESCAPE).posterior(STATES)
    with pytest.raises(ValueError, match=r"is empty.*replay=True.*kind='credible'"):
        q.interval(kind="value")
    assert np.isfinite(q.interval(0.5, kind="credible")).all()


def test_before_the_first_update_and_on_policy_it_is_refused():
    q = make("dqn").posterior(STATES)
    with pytest.raises(ValueError, match=r"call learn first, or ask for kind='credible'"):
        q.interval(kind="value")
    q = make("lktd", replay_capacity=None, learning_starts=0).learn(200).posterior(STATES)
    with pytest.raises(ValueError, match=r"set replay_capacity, or ask for kind='credible'"):
        q.interval(kind="value")
    assert np.isfinite(q.interval(0.5, kind="credible")).all()


def test_samples_alone_have_no_interval_for_the_value():
    alone = Estimate(np.zeros((3, 2)), np.zeros(2), "samples", is_posterior=True)
    with pytest.raises(ValueError, match="no replay memory behind it"):
        alone.interval(kind="value")
    with pytest.raises(
        ValueError, match="'value', 'return', 'credible' or 'prediction', not 'median'"
    ):
        alone.interval(kind="median")


def test_an_agent_that_has_diverged_has_intervals_of_nan():
    with pytest.warns(RuntimeWarning, match="diverged"):
        agent = make("sgld", step_size=1e12, guard=False).learn(400)
    assert np.isnan(ends(agent)).all()


@pytest.mark.parametrize("env", [Marked, Picture])
def test_masked_dicts_and_pictures(monkeypatch, env):
    monkeypatch.setattr(features, "MOST_PARAMETERS", 0)
    agent = make("dqn", env, hidden=(8,)).learn(120)
    seen = [env().reset(seed=seed)[0] for seed in range(3)]
    assert np.isfinite(ends(agent, seen)).all()


@pytest.mark.parametrize("of", ["v", "q"])
def test_the_values_of_a_given_policy(of):
    """On the treadmill every step pays 1, whatever one does."""
    tracker = ValueTracker(
        Probes(),
        lambda observation, mask: mask / mask.sum(),
        probabilities=True,
        of=of,
        discount=0.5,
        hidden=(),
        learning_starts=40,
        replay_capacity=2_000,
    ).learn(2_000)
    q = tracker.posterior(PLACES)
    assert q.solved.mean.shape == q.samples.shape[1:]
    assert np.abs(q.latest[3] - 2.0).max() > 0.5  # it has learned next to nothing,
    np.testing.assert_allclose(q.solved.mean[3], 2.0, atol=0.03)  # and its memory knows
    assert (q.solved.sd[3] < 0.03).all()
    if of == "v":  # the mean of -1 and 1, as a coin has it; and gamma
        low, high = q.interval(kind="value")
        assert low[0] < 0.0 < high[0]
        assert q.solved.mean[1] == pytest.approx(0.5, abs=0.03)


def test_samplers_start_from_the_mean_of_the_pool():
    agent = make("lktd").learn(200)
    ends(agent)
    found = agent._solver._solved[0].state.sampler.params["head"]["w"]
    pool = agent.trainer.member(0).pool
    weights = np.asarray(pool.weights)
    expected = np.tensordot(weights, np.asarray(pool.samples["head"]["w"]), axes=1) / weights.sum()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    current = agent.trainer.member(0).learner.sampler.params["head"]["w"]
    assert (found != current).any()
