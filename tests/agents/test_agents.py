"""Every agent finds the known values of the probe environments."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.probes import Bandit, Probes
from valuetrack import schedules
from valuetrack.agents.akq import AKQ, AKQOptions
from valuetrack.agents.bootdqn import BootDQN, BootDQNOptions
from valuetrack.agents.dqn import DQN, DQNOptions
from valuetrack.agents.kova import KOVA, KOVAOptions
from valuetrack.agents.ktd import KTD, KTDOptions
from valuetrack.agents.lktd import LKTD, LKTDOptions
from valuetrack.agents.qrdqn import QRDQN, QRDQNOptions
from valuetrack.agents.sghmc import SGHMC, SGHMCOptions
from valuetrack.agents.sgld import SGLD, SGLDOptions
from valuetrack.learner import Learner, Task
from valuetrack.training.compiled_loop import Loop
from valuetrack.training.trainer import Clock, Settings, Trace
from valuetrack.training.update import refresh_when_due
from valuetrack.types import Transition

GAMMA = 0.5
HEADS = 3
NETWORK = {"hidden": (16,), "init": "normal", "init_sd": 0.3}
FEW = {"hidden": (8,)}
"""Filters take time in proportion to the square of the number of parameters."""
SAMPLING = {
    **NETWORK,
    "form": "sarsa",
    "step_size": 1e-4,
    "pseudo_population": 1e5,
    "observation_sd": 0.1,
    "prior_sd": 3.0,
    "inner_power": 0.0,
}
GRADIENT = {**NETWORK, "learning_rate": 3e-3, "target_every": 50}
"""A probe is small, and its values are found long before the usual period is over."""


def task_of(env):
    return Task(tuple(env.observation_shape), False, env.num_actions)


def lktd(**changes):
    return lambda env: LKTD.build(task_of(env), LKTDOptions(**{**SAMPLING, **changes}))


def ktd(**changes):
    return lambda env: KTD.build(task_of(env), KTDOptions(**{**NETWORK, **FEW}, **changes))


def akq(**changes):
    return lambda env: AKQ.build(task_of(env), AKQOptions(**{**NETWORK, **FEW}, **changes))


AGENTS: dict[str, Callable[..., Learner]] = {
    "lktd": lktd(),
    "lktd-full": lktd(gradient="full"),
    "lktd-target": lktd(form="q_learning", target_every=5, double=True),
    "lktd-expected": lktd(form="expected_sarsa", target_every=5),
    "sgld": lambda env: SGLD.build(task_of(env), SGLDOptions(**SAMPLING)),
    "sghmc": lambda env: SGHMC.build(task_of(env), SGHMCOptions(**{**SAMPLING, "step_size": 2e-5})),
    "kova": lambda env: KOVA.build(
        task_of(env), KOVAOptions(**NETWORK, observation_variance=1.0, forgetting=1e-3)
    ),
    "ktd": ktd(),
    "ktd-sarsa": ktd(form="sarsa", process_variance=1e-6),
    "akq": akq(),
    "akq-sarsa": akq(form="sarsa", gradient="semi", process_variance=1e-6),
    "dqn": lambda env: DQN.build(task_of(env), DQNOptions(**GRADIENT)),
    "bootdqn": lambda env: BootDQN.build(task_of(env), BootDQNOptions(**GRADIENT, heads=HEADS)),
    "qrdqn": lambda env: QRDQN.build(task_of(env), QRDQNOptions(**GRADIENT, quantiles=5)),
}


def _trained_values(env, learner, observations, *, cycles=2_000, on_policy=False, seed=0):
    """Return the mean of the values over the last 300 updates, (states, actions)."""
    settings = Settings(
        exploration=schedules.constant(0.5),
        steps_per_update=1 if on_policy else 4,
        environments=32 if on_policy else 1,
        replay_capacity=None if on_policy else 400,
        batch_size=32,
        learning_starts=0 if on_policy else 64,
        discount=GAMMA,
    )
    loop = Loop(env, learner, settings, observations, room=300)
    nothing = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), Trace.empty(1))

    @jax.jit
    def run(key):
        warmup = settings.warmup_cycles
        seed, trace = loop.collect(loop.init(key), nothing, Clock().traced(), warmup)
        return loop.train(seed, trace, Clock(cycles=warmup).traced(), cycles)[0]

    state = run(jax.random.key(seed))
    assert int(state.learned.diverged) == -1
    return np.asarray(state.values).mean(axis=(0, 1))


@functools.cache
def values_of_the_probes(name):
    """Return the values of the bandit, of both places of the corridor, and of the treadmill."""
    env = Probes()
    return _trained_values(env, AGENTS[name](env), jnp.eye(4))


@pytest.mark.parametrize("name", AGENTS)
def test_values_of_a_bandit(name):
    np.testing.assert_allclose(values_of_the_probes(name)[0], [-1.0, 1.0], atol=0.1)


@pytest.mark.parametrize("name", AGENTS)
def test_values_are_discounted_and_masked_actions_do_not_leak(name):
    np.testing.assert_allclose(values_of_the_probes(name)[1:3, 0], [GAMMA, 1.0], atol=0.1)


@pytest.mark.parametrize("name", AGENTS)
def test_truncation_bootstraps(name):
    np.testing.assert_allclose(values_of_the_probes(name)[3], 1 / (1 - GAMMA), atol=0.2)


def test_on_policy_training_finds_the_same_values():
    env = Probes()
    values = _trained_values(env, AGENTS["lktd"](env), jnp.eye(4), on_policy=True)
    np.testing.assert_allclose(values[0], [-1.0, 1.0], atol=0.1)
    np.testing.assert_allclose(values[1:3, 0], [GAMMA, 1.0], atol=0.1)
    np.testing.assert_allclose(values[3], 1 / (1 - GAMMA), atol=0.2)


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
    agent = DQN.build(task_of(env), DQNOptions(**NETWORK, learning_rate=0.1, target_every=3))
    state = agent.init(jax.random.key(0))
    batch = jax.tree.map(jnp.asarray, agents_batch(env))
    copied, update = [], jax.jit(agent.update)
    for t in range(7):
        before = state.target
        state, _ = update(jax.random.key(t), state, batch)
        jax.tree.map(np.testing.assert_array_equal, state.target, before)  # an update leaves it
        state = refresh_when_due(agent, state, t)
        same = jax.tree.map(lambda a, b: bool(jnp.all(a == b)), state.target, state.sampler.params)
        copied.append(all(jax.tree.leaves(same)))
    assert copied == [True, False, False, True, False, False, True]


def agents_batch(env, n=8):
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
