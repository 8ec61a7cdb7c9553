"""IQN learns the quantiles of the return, at levels drawn in every pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tests.probes import Bandit, Probes, ProbeState
from valuetrack import rng
from valuetrack.agents.iqn import IQN, IQNOptions, quantile_network
from valuetrack.envs.base import Step
from valuetrack.learner import Task
from valuetrack.types import Array

GAMMA = 0.5
SMALL = {
    "hidden": (16, 16),
    "cosines": 8,
    "learning_rate": 3e-3,
    "target_every": 10,
    "batch_size": 32,
    "learning_starts": 64,
    "exploration_final": 0.5,
    "exploration_steps": 1,
    "discount": GAMMA,
}


@dataclass(frozen=True)
class Lottery(Bandit):
    """One step; action 0 pays an even draw from [0, 1), action 1 twice as much."""

    step_uniforms: ClassVar[int] = 1

    def step(self, state: ProbeState, action: Array, uniforms: Array) -> Step[ProbeState]:
        after = super().step(state, action, uniforms)
        return after._replace(reward=uniforms[0] * (1.0 + action))


def test_the_means_are_the_values():
    agent = IQN(Probes(), seed=1, **SMALL).learn(6_000)
    values = agent.posterior(np.eye(4, dtype=np.float32)).mean
    np.testing.assert_allclose(values[0], [-1.0, 1.0], atol=0.15)  # the bandit
    np.testing.assert_allclose(values[1:3, 0], [GAMMA, 1.0], atol=0.15)  # the corridor
    np.testing.assert_allclose(values[3], 1 / (1 - GAMMA), atol=0.15)  # the treadmill


def test_the_quantiles_are_those_of_the_return():
    settles = {"schedule": "linear", "initial": 3e-3, "updates": 2_500}
    options = {**SMALL, "hidden": (32,), "learning_rate": settles, "levels": 8, "target_levels": 8}
    agent = IQN(Lottery(), seed=0, normalise_observations=False, **options).learn(10_000)
    params = agent.trainer.member(0).learner.sampler.params
    _, quantiles = quantile_network(agent.task, agent.options)
    levels = jnp.array([0.1, 0.25, 0.5, 0.75, 0.9])
    found = np.asarray(quantiles(params, jnp.ones((1, 1)), levels))[0]
    # Huber's loss pulls the outer quantiles of such a narrow law inwards, towards the mean: they
    # are expectiles. Those of the even law on [0, 1) are sqrt(t) / (sqrt(t) + sqrt(1 - t)).
    t = np.asarray(levels)
    expectiles = np.sqrt(t) / (np.sqrt(t) + np.sqrt(1 - t))
    np.testing.assert_allclose(found[:, 0], expectiles, atol=0.07)
    assert (np.diff(found, axis=0) > 0).all()


def test_acting_and_values_draw_their_levels():
    task = Task((1,), False, 2)
    learner = IQN.build(task, IQNOptions(hidden=(8,), cosines=8, acting_levels=4))
    state = jax.jit(learner.init)(rng.key(0))
    seen = jnp.ones((3, 1))
    values = jax.jit(learner.values)
    one, again, other = (values(rng.key(k), state, seen) for k in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert (np.asarray(one) != np.asarray(other)).all()
    assert one.shape == (1, 3, 2)
    assert learner.acting_uniforms == 2 + 4
    uniforms = jax.random.uniform(rng.key(2), (3, learner.acting_uniforms))
    acted = jax.jit(learner.act)(state, seen, jnp.ones((3, 2), bool), uniforms, 0.0)
    assert acted.action.shape == acted.value.shape == (3,)


def test_a_value_is_the_mean_over_many_levels():
    task = Task((1,), False, 2)
    options = IQNOptions(hidden=(8,), cosines=8, acting_levels=20_000)
    learner = IQN.build(task, options)
    state = learner.init(rng.key(0))
    _, quantiles = quantile_network(task, options)
    levels = (jnp.arange(2_000) + 0.5) / 2_000
    exact = jnp.mean(quantiles(state.sampler.params, jnp.ones((1, 1)), levels), axis=-2)
    drawn = learner.values(rng.key(3), state, jnp.ones((1, 1)))[0]
    np.testing.assert_allclose(drawn, exact, atol=0.02)


def test_images_and_one_layer_have_quantiles_too():
    for shape, is_image, hidden in (((8, 8, 2), True, (16, 16)), ((3,), False, (16,))):
        options = IQNOptions(hidden=hidden, cosines=8)
        init, quantiles = quantile_network(Task(shape, is_image, 3), options)
        found = jax.jit(lambda key, *given, f=quantiles, init=init: f(init(key), *given))(
            rng.key(0), np.ones((5, *shape), np.float32), np.full((5, 7), 0.5, np.float32)
        )
        assert found.shape == (5, 7, 3)
