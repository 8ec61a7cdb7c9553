"""The guard: values that would run away do not, and those that would not have the same bits."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import valuetrack as vt
from valuetrack import priors, samplers
from valuetrack.measurement import TargetBatch, q_learning
from valuetrack.samplers.guard import MARGIN, UNDONE, guarded
from valuetrack.types import Transition

GAMMA, REWARD = 0.9, 1.0
BOUND = REWARD / (1 - GAMMA)
QUICK = {"hidden": (16,), "learning_starts": 50, "batch_size": 16, "replay_capacity": 1_000}
FOLLOWS_ITSELF = {"inner_iterations": 1, "target_every": 1, "steps_per_update": 1}


def linear(params, observations):
    return observations @ params


def batch(count=32):
    """Return transitions whose features are large where they lead to: Q-learning with a fast
    target network runs away on them."""
    seen = np.linspace(0.5, 1.0, count, dtype=np.float32)[:, None]
    return Transition(
        observation=jnp.asarray(seen),
        action=jnp.zeros(count, jnp.int32),
        reward=jnp.full(count, REWARD),
        discount=jnp.full(count, GAMMA),
        next_observation=jnp.asarray(3 * seen),
        next_action=jnp.zeros(count, jnp.int32),
        next_mask=jnp.ones((count, 1), bool),
    )


def chain(name, step_size, guard):
    def make(measurement):
        build = getattr(samplers, name)
        common = {"pseudo_population": 1e4, "observation_sd": 1.0, "inner_iterations": 1}
        return build(measurement, priors.gaussian(1.0), step_size=step_size, **common)

    measurement = q_learning(linear)
    return guarded(make, measurement, linear, GAMMA) if guard else make(measurement)


def run(sampler, updates=300):
    """Return the state after some updates, the target copied after each, and what was finite."""

    def once(state, key):
        data = TargetBatch(batch(), state.params)
        state, info = sampler.step(key, state, data)
        return state, (info.finite, jnp.max(jnp.abs(state.params)))

    start = sampler.init(jnp.full((1, 1), 0.1))
    keys = jax.random.split(jax.random.key(0), updates)
    return jax.jit(lambda: jax.lax.scan(once, start, keys))()


@pytest.mark.parametrize("name", ["lktd", "sgld", "sghmc"])
@pytest.mark.parametrize("step_size", [0.01, 1.0, 1e4])
def test_what_runs_away_without_a_guard_does_not_with_it(name, step_size):
    _, (finite, largest) = run(chain(name, step_size, guard=False))
    assert not finite.all() or largest[-1] > 1e6
    state, (finite, largest) = run(chain(name, step_size, guard=True))
    assert finite.all()
    assert largest.max() <= 2 * MARGIN * BOUND  # features are at least a half
    guard = state.units.guard
    assert float(guard.largest_reward) == REWARD
    assert int(state.updates) == 300
    if step_size > 1e3:  # no target can help such a step
        assert int(guard.halvings) >= 5
        assert float(guard.factor) == 2.0 ** -int(guard.halvings)
        # It goes on, towards targets that are cut off at the bound.
        assert largest[-1] > BOUND


def test_the_step_is_halved_after_some_updates_in_a_row():
    sampler = chain("sgld", 1e8, guard=True)
    factors = [float(run(sampler, count)[0].units.guard.factor) for count in (4, 5, 9, 10)]
    assert UNDONE == 5
    assert factors == [1.0, 0.5, 0.5, 0.25]


def test_nothing_is_undone_before_the_first_reward():
    sampler = chain("sgld", 1e4, guard=True)
    free = batch()._replace(reward=jnp.zeros(32))
    state = sampler.init(jnp.full((1, 1), 0.1))
    after, _ = sampler.step(jax.random.key(0), state, TargetBatch(free, state.params))
    assert jnp.abs(after.params).max() > MARGIN * BOUND
    assert int(after.units.guard.undone) == 0


def test_without_discount_there_is_no_guard():
    plain = chain("sgld", 1e-3, guard=False)
    assert guarded(lambda measurement: plain, q_learning(linear), linear, 1.0) is plain


def test_a_state_that_is_not_finite_is_not_called_finite():
    sampler = chain("sgld", 1e-3, guard=True)
    state = sampler.init(jnp.full((1, 1), jnp.nan))
    _, info = sampler.step(jax.random.key(0), state, TargetBatch(batch(), state.params))
    assert not bool(info.finite)


@pytest.mark.parametrize("name", ["lktd", "sgld", "sghmc"])
def test_values_that_stay_within_are_those_without_a_guard(name):
    states = [run(chain(name, 1e-4, guard), updates=50)[0] for guard in (True, False)]
    one, other = (np.asarray(state.params) for state in states)
    np.testing.assert_allclose(one, other, rtol=1e-5)  # XLA rounds another program in another way
    assert abs(one - 0.1) > 1e-3  # it has moved
    assert int(states[0].units.guard.halvings) == 0


def test_an_agent_whose_step_is_halved_says_so_once_and_goes_on(tmp_path):
    options = {**QUICK, **FOLLOWS_ITSELF, "step_size": 1.0}
    agent = vt.SGLD("CartPole-v1", seed=0, **options)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        agent.learn(400).learn(100)
    (warning,) = said
    assert "step was halved" in str(warning.message)
    assert not agent.diverged
    assert agent.trainer.halvings[0] > 0
    agent.save(tmp_path / "agent.vt")
    loaded = vt.load(tmp_path / "agent.vt")
    for one, other in zip(
        *(jax.tree.leaves(a.trainer.learned.learner.sampler.units) for a in (agent, loaded)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["LKTD", "SGLD", "SGHMC"])
def test_an_agent_with_its_defaults_learns_the_same_in_another_unit(name):
    def values(scale):
        env = {"of": "CartPole-v1", "scale": scale}
        agent = getattr(vt, name)("valuetrack/ChangedRewards-v0", env_options=env, **QUICK)
        return agent.learn(400).posterior(np.eye(4, dtype=np.float32)).mean

    one, other = values(1.0), values(1024.0)
    assert np.abs(one).max() > 0.1
    np.testing.assert_allclose(other / 1024, one, rtol=0.02, atol=0.01)
