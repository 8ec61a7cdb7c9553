"""Agents that sample act by the mean of their samples."""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from tests.small_envs import Counter
from valuetrack import posterior
from valuetrack.api.acting import COMMITTEE, averaging
from valuetrack.envs.indoor_escape import IndoorEscape, observations
from valuetrack.registry import AGENTS
from valuetrack.training.evaluation import values_key

ESCAPE = IndoorEscape(width=4, height=3, horizon=20)
STATES = observations(ESCAPE)
SMALL = {
    "hidden": (8,),
    "batch_size": 8,
    "learning_starts": 40,
    "replay_capacity": 100,
    "samples": 40,
    "thinning": 1,
    "learning_rate": 0.05,
}


@functools.cache
def trained(name="lktd", env=ESCAPE, seeds=2):
    return AGENTS[name](env, seeds=seeds, **SMALL).learn(400)


@pytest.mark.parametrize("name", ["lktd", "sgld", "sghmc"])
def test_the_values_acted_on_are_the_mean_over_samples_spread_over_the_pool(name):
    agent = trained(name)
    for member in (0, 1):
        q = agent.posterior(STATES, member=member)
        chosen = np.linspace(39, 0, COMMITTEE).round().astype(int)
        np.testing.assert_allclose(q.acted_on, q.samples[chosen].mean(axis=0), rtol=1e-4, atol=1e-6)
        assert 39 in chosen  # the latest is one of them
        assert not np.allclose(q.acted_on, q.latest, rtol=1e-3)
        legal = np.ones((len(STATES), 4), bool)
        acted, _ = agent.predict(STATES, action_mask=legal, member=member)
        np.testing.assert_array_equal(acted, q.acted_on.argmax(axis=1))


def test_others_act_by_their_current_parameters():
    q = trained("dqn").posterior(STATES)
    np.testing.assert_allclose(q.acted_on, q.latest, rtol=1e-6)


def test_a_pool_of_one_is_the_current_sample():
    agent = AGENTS["lktd"](ESCAPE, **{**SMALL, "samples": 1}).learn(200)
    assert agent.actor.learner is agent.learner
    q = agent.posterior(STATES)
    np.testing.assert_array_equal(q.acted_on, q.latest)


def test_an_untrained_agent_acts_by_its_first_parameters():
    q = AGENTS["lktd"](ESCAPE, **SMALL).posterior(STATES)
    np.testing.assert_allclose(q.acted_on, q.latest, rtol=1e-5)


def test_what_it_acts_by_follows_what_it_learns():
    agent = AGENTS["lktd"](ESCAPE, **SMALL).learn(200)
    before = agent.posterior(STATES).acted_on
    np.testing.assert_array_equal(agent.posterior(STATES).acted_on, before)
    agent.learn(40)
    assert (agent.posterior(STATES).acted_on != before).any()


@pytest.mark.parametrize("env", [ESCAPE, Counter], ids=["compiled", "host"])
def test_episodes_begin_with_the_values_acted_on(env):
    agent = trained("lktd", env, seeds=1)
    start = agent.play(1).start_values[0, 0]
    seen = STATES[:1] if env is ESCAPE else agent.env.for_evaluation(1).reset([0]).observation
    possible = agent.posterior(seen).acted_on
    if env is ESCAPE:
        possible = possible[:, :2]  # east and north are legal at the start
    assert start == pytest.approx(float(possible.max()), rel=1e-4)


def test_averaging_counts_samples_as_heads():
    agent = trained()
    state = agent.trainer.member(0).learner
    pool = agent.trainer.member(0).pool
    several = state._replace(sampler=state.sampler._replace(params=pool.samples))
    found = averaging(agent.learner).values(values_key(), several, jnp.asarray(STATES))
    assert found.shape == (40, len(STATES), 4)
    order = posterior.order(pool)
    drawn = agent.posterior(STATES).samples
    np.testing.assert_allclose(np.asarray(found)[order], drawn, rtol=1e-4, atol=1e-6)
