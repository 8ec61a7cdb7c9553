"""Environments in JAX behind Gymnasium's interface, and what their agents see and are told."""

from __future__ import annotations

from functools import cache

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env

import valuetrack as vt
from valuetrack.api.environment import AgentEnvironment
from valuetrack.envs import (
    DEEP_SEA_ID,
    N_CHAIN_ID,
    RIVER_SWIM_ID,
    CartPole,
    DeepSea,
    optimal_values,
    transition_table,
)
from valuetrack.envs.base import factors_in_jax
from valuetrack.envs.gym.absent import described, space_of
from valuetrack.envs.gym.from_jax import JaxEnv
from valuetrack.envs.gym.spaces import OneHot, bounds, encoder, factors
from valuetrack.experiments.measure.truths import exact_finder, visits

CASES = [
    (DEEP_SEA_ID, {"size": 4}),
    (DEEP_SEA_ID, {"size": 3, "stochastic": True}),
    (N_CHAIN_ID, {"size": 5}),
    (N_CHAIN_ID, {"size": 5, "encoding": "one-hot", "limit_terminates": True}),
    (RIVER_SWIM_ID, {"variant": "osband", "horizon": 12}),
]
SMALL = {
    "hidden": (8,),
    "learning_starts": 200,  # more than any of these tests takes
    "batch_size": 8,
    "replay_capacity": 300,
    "seed": 0,
}
each_case = pytest.mark.parametrize(("env_id", "options"), CASES)


@each_case
def test_episodes_are_those_of_the_pure_functions(env_id, options):
    env = gymnasium.make(env_id, **options)
    check_env(env.unwrapped)
    task = vt.envs.find(env_id)(**options)
    assert env.unwrapped.task == task
    reset, step = jax.jit(task.reset), jax.jit(task.step)
    draws, actions = np.random.default_rng(11), np.random.default_rng(12)
    observation, _ = env.reset(seed=11)
    for episode in range(3):
        if episode:
            observation, _ = env.reset()
        state, over = reset(draws.random(task.reset_uniforms, dtype=np.float32)), False
        np.testing.assert_array_equal(observation, task.observe(state))
        while not over:
            action = actions.integers(2)
            uniforms = draws.random(task.step_uniforms, dtype=np.float32)
            result = step(state, np.int32(action), uniforms)
            observation, reward, terminated, truncated, info = env.step(action)
            assert observation in env.observation_space
            np.testing.assert_array_equal(observation, result.observation)
            assert reward == pytest.approx(float(result.reward), rel=1e-6)
            assert (terminated, truncated) == (bool(result.terminated), bool(result.truncated))
            assert info["action_mask"].tolist() == [1, 1]
            state, over = result.state, terminated or truncated
        assert int(env.unwrapped.state.steps) == int(state.steps)


def test_any_environment_in_jax_can_be_played():
    env = JaxEnv(CartPole(horizon=3))
    with pytest.raises(ResetNeeded, match="No episode has begun"):
        env.step(0)
    env.reset(seed=0)
    assert [env.step(1)[3] for _ in range(3)] == [False, False, True]
    with pytest.raises(ResetNeeded, match="has ended"):
        env.step(0)
    env.reset()
    with pytest.raises(InvalidAction, match="between 0 and 1"):
        env.step(2)
    with pytest.raises(ValueError, match="render_mode must be None"):
        JaxEnv("CartPole-v1", render_mode="human")
    with pytest.raises(ValueError, match="no environment 'LunarLander-v3' in JAX"):
        JaxEnv("LunarLander-v3")


def test_vector_environments():
    envs = gymnasium.make_vec(N_CHAIN_ID, num_envs=2, vectorization_mode="sync", size=4)
    first, _ = envs.reset(seed=0)
    assert first.astype(int).tolist() == [[1, 1, 0, 0]] * 2
    assert envs.step(np.array([0, 1]))[0].sum(axis=1).tolist() == [1, 3]
    envs.close()


@each_case
def test_scales_are_alike_in_jax_and_in_python(env_id, options):
    task, space = vt.envs.find(env_id)(**options), gymnasium.make(env_id, **options)
    space = space.observation_space
    assert encoder(space).shape == task.observation_shape
    np.testing.assert_array_equal(factors(space), factors_in_jax(task))
    np.testing.assert_array_equal(bounds(space)[1], np.ones(task.observation_shape))
    # What an agent is shown has the mean square 1 in every place, if it is a one-hot vector.
    scale = np.mean((task.observations() * factors_in_jax(task)) ** 2, axis=1)
    if task.one_hot:
        acting = ~task.outcomes.ends
        np.testing.assert_allclose(scale[acting], 1.0)
        assert not scale[~acting].any()
    else:
        assert scale.mean() == pytest.approx(0.6)  # of five places


@pytest.mark.parametrize("backend", ["compiled", "host"])
def test_agents_scale_one_hot_vectors(backend):
    scaling = AgentEnvironment(DEEP_SEA_ID, {"size": 3}, backend, 1).scaling("auto")
    assert scaling.decided == "one-hot"
    np.testing.assert_array_equal(scaling.factors, np.full(9, 3.0, np.float32))
    chain = AgentEnvironment(N_CHAIN_ID, {"size": 4}, backend, 1)
    assert chain.scaling("auto").decided is False


def test_one_hot_spaces_are_kept_in_files():
    space = OneHot(5, np.dtype(bool))
    kept = space_of(described(space))
    assert isinstance(kept, OneHot)
    assert kept == space
    np.testing.assert_array_equal(factors(kept), np.full(5, 5**0.5))
    samples = {tuple(space.sample().tolist()) for _ in range(60)}
    assert samples == {tuple(row) for row in np.eye(5, dtype=bool).tolist()}


def test_an_agent_without_its_environment_sees_the_same(tmp_path):
    agent = vt.DQN(DeepSea(size=3), **SMALL)
    agent.save(tmp_path / "agent.vt")
    seen = DeepSea(size=3).observations()[:9]
    asked = vt.load(tmp_path / "agent.vt")
    np.testing.assert_allclose(
        asked.posterior(seen).latest, agent.posterior(seen).latest, atol=1e-6
    )
    assert asked.env.scaling("auto").decided == "one-hot"


@cache
def trained(backend):
    return vt.DQN(DEEP_SEA_ID, env_options={"size": 4}, backend=backend, **SMALL).learn(120)


@pytest.mark.parametrize("backend", ["compiled", "host"])
def test_the_exact_values_of_an_agents_own_policy_are_known(backend):
    agent, task = trained(backend), DeepSea(size=4)
    truth = exact_finder(agent)(0)
    acting = np.flatnonzero(task.table.legal.any(axis=1))
    np.testing.assert_array_equal(truth.states, acting)
    np.testing.assert_array_equal(truth.observations, task.observations()[acting])
    # Play the agent's own policy from the start: what it pays is its value.
    env, discount = gymnasium.make(DEEP_SEA_ID, size=4), agent.options.discount
    observation, _ = env.reset(seed=0)
    paid, factor, over, first = 0.0, 1.0, False, None
    while not over:
        action = int(agent.predict(observation)[0])
        first = action if first is None else first
        observation, reward, over, _, _ = env.step(action)
        paid, factor = paid + factor * reward, factor * discount
    assert truth.values[0, first] == pytest.approx(paid, abs=1e-6)
    counts = visits(agent, 0, truth)
    assert counts.sum() == 120
    assert counts[0].sum() == 30  # an episode of four steps begins in the first place


@pytest.mark.parametrize(("env_id", "options"), [CASES[1], CASES[2], CASES[4]])
def test_the_table_is_one_behind_both_interfaces(env_id, options):
    task = vt.envs.find(env_id)(**options)
    found = transition_table(gymnasium.make(env_id, **options))
    for ours, theirs in zip(task.table[1:], found[1:], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    q = optimal_values(found, 0.9)
    np.testing.assert_array_equal(q, optimal_values(task.table, 0.9))


def test_without_a_table_the_truth_is_none():
    options = {"size": 4, "limit_terminates": True}
    for backend in ("compiled", "host"):
        agent = vt.DQN(N_CHAIN_ID, env_options=options, backend=backend, **SMALL)
        assert exact_finder(agent) is None


def test_options_that_make_no_environment_are_refused():
    with pytest.raises(ValueError, match="cannot be made"):
        vt.DQN(DEEP_SEA_ID, env_options={"depth": 3}, backend="host", **SMALL)
    with pytest.raises(ValueError, match="size must be at least 2"):
        vt.DQN(DEEP_SEA_ID, env_options={"size": 1}, **SMALL)
