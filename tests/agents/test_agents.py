"""Every agent finds the known values of the probe environments."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.probes import Bandit, Corridor, Treadmill
from valuetrack import agents, networks, priors, schedules
from valuetrack.learner import Learner
from valuetrack.training.compiled import Clock, Loop, LoopSettings

GAMMA = 0.5
HEADS = 3


def _network(env, outputs=2):
    init = jax.nn.initializers.normal(0.3)
    return networks.mlp(env.observation_shape[0], outputs, (16,), weight_init=init, bias_init=init)


SAMPLING = {
    "step_size": 1e-4,
    "pseudo_population": 1e5,
    "observation_sd": 0.1,
}

AGENTS: dict[str, Callable[..., Learner]] = {
    "lktd": lambda env: agents.lktd(_network(env), priors.gaussian(3.0), **SAMPLING),
    "lktd-full": lambda env: agents.lktd(
        _network(env), priors.gaussian(3.0), gradient="full", **SAMPLING
    ),
    "lktd-target": lambda env: agents.lktd(
        _network(env), priors.gaussian(3.0), form="q_learning", target_every=5, **SAMPLING
    ),
    "sgld": lambda env: agents.sgld(_network(env), priors.gaussian(3.0), **SAMPLING),
    "sghmc": lambda env: agents.sghmc(
        _network(env), priors.gaussian(3.0), **{**SAMPLING, "step_size": 2e-5}
    ),
    "kova": lambda env: agents.kova(_network(env), observation_variance=1.0, forgetting=1e-3),
    "dqn": lambda env: agents.dqn(_network(env), learning_rate=3e-3),
    "bootdqn": lambda env: agents.bootdqn(
        _network(env, (HEADS, 2)), heads=HEADS, learning_rate=3e-3
    ),
    "qrdqn": lambda env: agents.qrdqn(_network(env, (2, 5)), learning_rate=3e-3),
}


def _trained_values(env, agent, observations, *, cycles=2_000, on_policy=False, seed=0):
    settings = LoopSettings(
        exploration=schedules.constant(0.5),
        steps_per_update=1 if on_policy else 4,
        environments=32 if on_policy else 1,
        replay_capacity=None if on_policy else 400,
        batch_size=32,
        learning_starts=0 if on_policy else 64,
        discount=GAMMA,
        pool_size=300,
    )
    loop = Loop(env, agent, settings, observations)

    @jax.jit
    def run(key):
        state, clock = loop.init(key), Clock(jnp.int32(0), jnp.int32(0))
        state, clock, _ = loop.collect(state, clock, settings.silent_cycles)
        return loop.train(state, clock, cycles)[0]

    state = run(jax.random.key(seed))
    assert int(state.diverged) == -1
    return np.asarray(state.pool).mean(axis=0)


@pytest.mark.parametrize("name", AGENTS)
def test_values_of_a_bandit(name):
    env = Bandit()
    values = _trained_values(env, AGENTS[name](env), jnp.ones((1, 1)))
    np.testing.assert_allclose(values, [[-1.0, 1.0]], atol=0.1)


@pytest.mark.parametrize("name", AGENTS)
def test_values_are_discounted_and_masked_actions_do_not_leak(name):
    env = Corridor()
    values = _trained_values(env, AGENTS[name](env), jnp.eye(2))
    np.testing.assert_allclose(values[:, 0], [GAMMA, 1.0], atol=0.1)


@pytest.mark.parametrize("name", AGENTS)
def test_truncation_bootstraps(name):
    env = Treadmill()
    values = _trained_values(env, AGENTS[name](env), jnp.ones((1, 1)))
    np.testing.assert_allclose(values, np.full((1, 2), 1 / (1 - GAMMA)), atol=0.2)


@pytest.mark.parametrize("name", ["lktd", "dqn"])
def test_on_policy_training_finds_the_same_values(name):
    env = Corridor()
    values = _trained_values(env, AGENTS[name](env), jnp.eye(2), on_policy=True)
    np.testing.assert_allclose(values[:, 0], [GAMMA, 1.0], atol=0.1)


def test_bootstrapped_heads_differ_and_each_one_acts():
    env = Bandit()
    agent = AGENTS["bootdqn"](env)
    state = agent.init(jax.random.key(0))
    values = agent.values(jax.random.key(0), state, jnp.ones((1, 1)))
    assert values.shape == (HEADS, 1, 2)
    assert len(np.unique(np.asarray(values)[:, 0, 0])) == HEADS
    heads = {int(agent.init(jax.random.key(seed)).head) for seed in range(30)}
    assert heads == set(range(HEADS))


def test_target_network_is_copied_at_its_interval():
    env = Bandit()
    agent = agents.dqn(_network(env), learning_rate=0.1, target_every=3)
    state = agent.init(jax.random.key(0))
    batch = jax.tree.map(
        jnp.asarray,
        agents_batch(env),
    )
    copied = []
    for t in range(7):
        state, _ = agent.update(jax.random.key(t), state, batch)
        same = jax.tree.map(lambda a, b: bool(jnp.all(a == b)), state.target, state.sampler.params)
        copied.append(all(jax.tree.leaves(same)))
    assert copied == [True, False, False, True, False, False, True]


def agents_batch(env, n=8):
    from valuetrack.types import Transition

    rng = np.random.default_rng(0)
    return Transition(
        observation=np.ones((n, *env.observation_shape), np.float32),
        action=rng.integers(0, 2, n),
        reward=rng.normal(size=n).astype(np.float32),
        discount=np.zeros(n, np.float32),
        next_observation=np.ones((n, *env.observation_shape), np.float32),
        next_action=rng.integers(0, 2, n),
        next_mask=np.ones((n, 2), bool),
    )
