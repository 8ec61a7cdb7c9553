"""The options of KTD and AKQ reach their filters, and seeds go ways of their own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import valuetrack as vt
from tests.probes import Bandit
from valuetrack.learner import Task
from valuetrack.measurement import max_sarsa, sarsa
from valuetrack.types import Transition

TASK = Task((3,), False, 2)
KINDS = pytest.mark.parametrize("kind", [vt.KTD, vt.AKQ])
NOISE = {"observation_variance": 0.3, "initial_variance": 0.2, "process_variance": 0.01}


def batch(n: int = 6) -> Transition:
    rng = np.random.default_rng(0)
    drawn = Transition(
        observation=rng.normal(size=(n, 3)).astype(np.float32),
        action=rng.integers(2, size=n),
        reward=rng.normal(size=n).astype(np.float32),
        discount=np.full(n, 0.9, np.float32),
        next_observation=rng.normal(size=(n, 3)).astype(np.float32),
        next_action=rng.integers(2, size=n),
        next_mask=np.array([[True, i % 2 == 0] for i in range(n)]),
    )
    return jax.tree.map(jnp.asarray, drawn)


def one_update(kind, **options):
    options = kind.options_type(hidden=(4,), **options)
    learner = kind.build(TASK, options)
    state = learner.init(jax.random.key(1))
    return state, *learner.update(jax.random.key(2), state, batch())


def spread(state):
    """Return the variances of all parameters."""
    if hasattr(state.sampler, "factor"):
        return np.sum(np.square(state.sampler.factor), axis=1)
    return np.asarray(state.sampler.variances)


@KINDS
@pytest.mark.parametrize(("form", "measurement"), [("q_learning", max_sarsa), ("sarsa", sarsa)])
def test_the_form_is_what_is_compared_with_the_reward(kind, form, measurement):
    before, after, info = one_update(kind, form=form)
    assert before.target == ()
    network = kind.options_type(hidden=(4,)).network(TASK, 2)
    predicted = measurement(network.apply).predict(before.sampler.params, batch())
    expected = np.mean((batch().reward - predicted) ** 2)
    np.testing.assert_allclose(info.mean_squared_residual, expected, rtol=1e-5)
    assert info.finite
    assert int(after.sampler.updates) == 1


@KINDS
def test_noises_reach_the_filter(kind):
    before, after, _ = one_update(kind, **NOISE)
    np.testing.assert_allclose(spread(before), 0.2, rtol=1e-5)
    assert spread(after).max() <= 0.2 / (1 - 1e-4) + 0.01 + 1e-5
    for name, value in {
        "observation_variance": 3.0,
        "process_variance": 0.1,
        "forgetting": 0.5,
    }.items():
        _, other, _ = one_update(kind, **{**NOISE, name: value})
        assert (spread(other) > spread(after) * 1.0001).any(), name


def test_the_transform_reaches_ktd():
    _, usual, _ = one_update(vt.KTD, **NOISE)
    for changed in ({"alpha": 1.0}, {"beta": 0.0}, {"kappa": 50.0}):
        _, other, _ = one_update(vt.KTD, **NOISE, **changed)
        assert np.abs(spread(other) - spread(usual)).max() > 1e-6, changed


def test_the_gradient_reaches_akq():
    ends = [spread(one_update(vt.AKQ, gradient=gradient)[1]) for gradient in ("semi", "full")]
    assert np.abs(ends[0] - ends[1]).max() > 1e-5


@KINDS
def test_seeds_differ_and_repeat(kind):
    small = {"hidden": (4,), "batch_size": 8, "learning_starts": 8, "replay_capacity": 80}
    agent = kind(Bandit(), seeds=2, **small).learn(400)
    values = [agent.posterior([1.0], member=member).latest for member in range(2)]
    assert np.isfinite(values).all()
    assert (values[0] != values[1]).all()
    again = kind(Bandit(), seeds=2, **small).learn(400)
    np.testing.assert_array_equal(again.posterior([1.0], member=1).latest, values[1])
    assert "not a posterior" in kind.sample_name
