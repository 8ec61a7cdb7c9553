"""Acting in NumPy: the same as the compiled code does, to rounding."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.small_envs import Counter
from valuetrack import host_networks, networks, rng, schedules
from valuetrack.agents.iqn import IQN
from valuetrack.envs.gym.make import make_vectorised
from valuetrack.learner import Task
from valuetrack.learner import acted as acted_in_jax
from valuetrack.normalisation import Scaling, normalised
from valuetrack.registry import AGENTS
from valuetrack.training.host_acting import _Exploration, acted
from valuetrack.training.host_trainer import HostTrainer
from valuetrack.training.trainer import Settings

SEEDS, ENVIRONMENTS, ACTIONS = 3, 5, 4
TASK = Task((6,), False, ACTIONS)
KINDS = [
    (name, own)
    for name in AGENTS
    for own in (
        [{"form": "q_learning"}, {"form": "sarsa"}, {"form": "expected_sarsa"}]
        if name == "lktd"
        else [{}]
    )
    if name != "iqn"
]


def stacked(init):
    return jax.jit(jax.vmap(init))(jax.vmap(rng.key)(jnp.arange(SEEDS, dtype=jnp.uint32)))


def on_host(tree):
    return jax.tree.map(np.asarray, tree)


@pytest.mark.parametrize("outputs", [3, (10, 3), (3, 7)], ids=str)
@pytest.mark.parametrize("activation", networks.ACTIVATIONS)
def test_a_network_in_numpy_is_that_in_jax(activation, outputs):
    network = networks.mlp((2, 3), outputs, (40, 30), activation=activation, init="pytorch")
    params = stacked(network.init)
    seen = np.random.default_rng(0).normal(0, 10, (SEEDS, ENVIRONMENTS, 2, 3)).astype(np.float32)
    for observations in (seen, seen.astype(np.int32), np.abs(seen).astype(np.uint8)):
        expected = jax.jit(jax.vmap(network.apply))(params, observations)
        kept = observations.copy()
        found = network.on_host(on_host(params))(observations)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
        np.testing.assert_array_equal(observations, kept)  # which it must not change


@pytest.mark.parametrize(("outputs", "axis"), [(3, -1), ((10, 3), -1), ((3, 7), 0)], ids=str)
def test_a_dueling_network_in_numpy_is_that_in_jax(outputs, axis):
    network = networks.mlp((2, 3), outputs, (40, 30), init="pytorch", dueling=axis)
    params = stacked(network.init)
    seen = np.random.default_rng(0).normal(size=(SEEDS, ENVIRONMENTS, 2, 3)).astype(np.float32)
    expected = jax.jit(jax.vmap(network.apply))(params, seen)
    found = network.on_host(on_host(params))(seen)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("hidden", [(), (16, 8)], ids=str)
@pytest.mark.parametrize("ones", [0, 1, 3, 90], ids=str)
def test_inputs_that_are_mostly_zero_give_the_same(ones, hidden):
    network = networks.mlp(100, 3, hidden, init="pytorch")
    params = stacked(network.init)
    seen = np.zeros((SEEDS, ENVIRONMENTS, 100), np.float32)
    seen[..., :ones] = np.random.default_rng(0).normal(size=(SEEDS, ENVIRONMENTS, ones))
    expected = jax.jit(jax.vmap(network.apply))(params, seen)
    found = network.on_host(on_host(params))(seen)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_every_activation_is_known_in_numpy():
    assert host_networks.ACTIVATIONS.keys() == networks.ACTIVATIONS.keys()
    assert networks.mlp(2, 3, activation=jnp.sin).on_host is None
    assert networks.cnn((10, 10, 2), 3, convolutions=((4, 3, 1),)).on_host is None


@pytest.mark.parametrize(("name", "own"), KINDS, ids=str)
def test_an_agent_acts_in_numpy_as_compiled(name, own):
    kind = AGENTS[name]
    options = kind.options_type(hidden=(16,), init="pytorch", **own)
    learner = normalised(kind.build(TASK, options), Scaling(np.arange(6) != 2, np.arange(1.0, 7.0)))
    states = stacked(learner.init)
    generator = np.random.default_rng(1)
    seen, seen_before = generator.normal(3, 9, (2, SEEDS, ENVIRONMENTS, 6)).astype(np.float32)
    counts = np.ones((SEEDS, ENVIRONMENTS), bool)
    states = jax.jit(jax.vmap(learner.observe))(states, seen_before, counts)
    mask = generator.random((SEEDS, ENVIRONMENTS, ACTIONS)) < 0.7
    mask[0, 0] = False  # of a terminal state
    uniforms = generator.random((SEEDS, ENVIRONMENTS, 2), np.float32)
    act = jax.jit(jax.vmap(learner.act, in_axes=(0, 0, 0, 0, None)))
    expected = act(states, seen, mask, uniforms, np.float32(0.4))
    q = learner.on_host(on_host(states))(seen).reshape(-1, ACTIONS)
    found = acted(q, mask.reshape(q.shape), uniforms.reshape(-1, 2), 0.4, learner.following)
    np.testing.assert_array_equal(found.action, expected.action.ravel())
    np.testing.assert_array_equal(found.follows, expected.follows.ravel())
    np.testing.assert_allclose(found.value, expected.value.ravel(), rtol=1e-4, atol=1e-4)
    assert found.value.dtype == np.float32


def test_an_agent_without_values_of_its_own_is_compiled():
    assert IQN.build(TASK, IQN.options_type(hidden=(8,))).on_host is None


@pytest.mark.parametrize("following", ["greedy", "taken", "expected"])
def test_actions_are_epsilon_greedy(following):
    count, epsilon = 20_000, 0.3
    q = np.tile(np.array([1.0, 5.0, 3.0, 2.0], np.float32), (count, 1))
    mask = np.tile([True, False, True, True], (count, 1))
    uniforms = np.random.default_rng(2).random((count, 2), np.float32)
    found = acted(q, mask, uniforms, epsilon, following)
    share = np.bincount(found.action, minlength=4) / count
    np.testing.assert_allclose(share, [0.1, 0, 0.8, 0.1], atol=0.01)
    explores = uniforms[:, 0] < epsilon
    assert (found.action[~explores] == 2).all()
    expected = jax.jit(acted_in_jax, static_argnums=4)(q, mask, uniforms, epsilon, following)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_exploration_on_the_host_is_the_schedule():
    falling = schedules.linear(1.0, 0.1, 5_000)
    epsilon = _Exploration(falling, 3)
    for step in (0, 3, 300, 3_069, 3_072, 4_998, 9_000, 6, 2**31 - 2):
        assert epsilon(step) == pytest.approx(float(falling(step)), rel=1e-6)
    assert _Exploration(schedules.constant(0.25), 1)(7) == 0.25


def test_a_run_in_numpy_is_that_of_the_compiled_code():
    def run(change):
        settings = Settings(
            schedules.constant(0.3), batch_size=10, learning_starts=10, replay_capacity=200
        )
        options = AGENTS["dqn"].options_type(hidden=(8,), learning_rate=1e-3)
        learner = AGENTS["dqn"].build(Task((2,), False, 3), options)
        trainer = HostTrainer(change(learner), settings, make_vectorised(Counter, 2), (0, 1))
        trainer.run(15)
        return trainer

    one, other = run(lambda learner: learner), run(lambda learner: learner._replace(on_host=None))
    for ours, theirs in zip(one.replay.rows, other.replay.rows, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in zip(one.trace, other.trace, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
