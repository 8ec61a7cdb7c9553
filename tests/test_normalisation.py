"""Observations in a common scale: the statistics, who is meant, and where they are used."""

from __future__ import annotations

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import valuetrack as vt
from tests.small_envs import Counter
from valuetrack import normalisation
from valuetrack.envs import find
from valuetrack.envs.base import bounds_in_jax
from valuetrack.envs.gym.spaces import bounds, encoder, factors
from valuetrack.experiments.spec import experiment_names, load
from valuetrack.io import array_file
from valuetrack.learner import Task
from valuetrack.normalisation import CLIP, Scaling, components, normalised
from valuetrack.registry import agent_type
from valuetrack.types import Transition

OTHERS = ("honest-values", "defaults", "deep-sea", "n-chain", "changing-worlds")
PAPERS = [name for name in experiment_names() if name not in OTHERS]
"""The experiments of the paper; the others have the defaults of users."""
SMALL = {
    "hidden": (8,),
    "learning_starts": 20,
    "batch_size": 8,
    "replay_capacity": 400,
    "samples": 2,
}


def test_moments_are_those_of_all_observations():
    generator = np.random.default_rng(0)
    data = generator.normal([3.0, -5_000.0, 0.0], [0.1, 20.0, 1e-3], (500, 3)).astype(np.float32)
    counts = generator.random(500) < 0.8
    moments = normalisation.init((3,))
    add = jax.jit(normalisation.add)
    for start in range(0, 500, 20):
        rows = slice(start, start + 20)
        moments = add(moments, jnp.asarray(data[rows]), jnp.asarray(counts[rows]))
    counted = data[counts].astype(np.float64)
    assert int(moments.seen) == len(counted)
    np.testing.assert_allclose(moments.mean, counted.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(moments.variance, counted.var(0), rtol=1e-4)
    every = np.ones(3, bool)
    found = normalisation.normalise(moments, jnp.asarray(data), every)
    expected = (data - counted.mean(0)) / np.sqrt(counted.var(0) + 1e-8)
    np.testing.assert_allclose(found, expected, atol=5e-3)


def test_far_observations_are_clipped_and_others_stay_as_they_are():
    moments = normalisation.Moments(jnp.int32(5), jnp.array([1.0, 2.0]), jnp.array([4.0, 0.0]))
    found = normalisation.normalise(moments, jnp.array([[1e6, 7.0]]), np.array([True, False]))
    np.testing.assert_allclose(found, [[CLIP, 7.0]])


def test_no_observations_change_nothing():
    before = normalisation.init((2,))
    after = normalisation.add(before, jnp.ones((3, 2)), jnp.zeros(3, bool))
    np.testing.assert_array_equal(after.mean, before.mean)
    np.testing.assert_array_equal(after.variance, before.variance)


@pytest.mark.parametrize(
    ("space", "meant"),
    [
        (spaces.Box(-np.inf, np.inf, (2,)), [True, True]),
        (spaces.Box(np.float32([-1, -0.05]), np.float32([1, 0.05])), [True, True]),
        (spaces.Box(-50, 50, (1,)), [True]),
        (spaces.Box(0, 255, (3,), np.uint8), [True] * 3),  # bytes that are not divided by 255
        (spaces.Box(-1, 1, (2,)), None),
        (spaces.Box(0, 1, (2,)), None),
        (spaces.Discrete(3), None),
        (spaces.MultiBinary(3), None),
        (spaces.MultiDiscrete([2, 3]), None),
        (spaces.Box(0, 255, (8, 8, 3), np.uint8), None),
        (spaces.Box(-np.inf, np.inf, (8, 8, 3)), None),
        (
            spaces.Dict(
                {
                    "kind": spaces.Discrete(2),
                    "picture": spaces.Box(0, 255, (2, 2, 3), np.uint8),
                    "speed": spaces.Box(-np.inf, np.inf, (1,)),
                }
            ),
            [False] * 14 + [True],
        ),
    ],
)
def test_spaces_without_a_common_scale_are_meant(space, meant):
    made = encoder(space)
    found = components(bounds(space), "auto", is_image=made.is_image)
    assert bounds(space).shape == (2, *made.shape)
    assert (None if found is None else found.tolist()) == meant
    assert components(bounds(space), False) is None


@pytest.mark.parametrize(
    ("env", "is_meant"),
    [
        ("CartPole-v1", True),
        ("MountainCar-v0", True),
        ("Acrobot-v1", True),
        ("valuetrack/IndoorEscape-v0", False),
        ("gymnax/Catch-bsuite", False),
        ("gymnax/CartPole-v1", True),
    ],
)
def test_environments_in_jax_without_a_common_scale_are_meant(env, is_meant):
    if env.startswith("gymnax/"):
        pytest.importorskip("gymnax")
    made = find(env)()
    is_image = len(made.observation_shape) == 3
    found = components(bounds_in_jax(made), "auto", is_image=is_image)
    assert (found is not None) is is_meant


@pytest.mark.parametrize("backend", ["compiled", "host"])
def test_each_seed_has_the_moments_of_what_it_has_collected(backend):
    agent = vt.DQN("CartPole-v1", seed=3, seeds=2, environments=2, backend=backend, **SMALL)
    agent.learn(160)
    scale = agent.trainer.states.scale
    assert scale.seen.tolist() == [160] * 2
    for seed in range(2):
        raw = agent.trainer.memory(seed).observation  # as it came
        assert len(raw) == 160
        np.testing.assert_allclose(scale.mean[seed], raw.mean(0), atol=1e-5)
        np.testing.assert_allclose(scale.variance[seed], raw.var(0), rtol=1e-3)
    assert not np.allclose(scale.mean[0], scale.mean[1])


def test_steps_that_only_reset_are_not_counted():
    envs = gymnasium.vector.SyncVectorEnv([Counter, Counter])  # resets with the step after an end
    agent = vt.DQN(envs, normalise_observations=True, **SMALL).learn(200)
    raw, scale = agent.trainer.memory(0).observation, agent.trainer.member(0).learner.scale
    assert int(scale.seen) == len(raw) < 200
    np.testing.assert_allclose(scale.mean, raw.mean(0), rtol=1e-5)
    np.testing.assert_allclose(scale.variance, raw.var(0), rtol=1e-4)


@pytest.mark.parametrize("name", ["lktd", "iqn"])
def test_a_learner_sees_normalised_observations_wherever_it_looks(name):
    kind, every = agent_type(name), np.ones(2, bool)
    plain = kind.build(Task((2,), False, 3), kind.options_type(hidden=(4,)))
    learner, key = normalised(plain, Scaling(every)), jax.random.key(0)
    draw = np.random.default_rng(1)
    seen, ahead = (jnp.asarray(draw.normal(50, [9, 0.1], (8, 2)), jnp.float32) for _ in range(2))
    state = learner.observe(learner.init(key), seen, jnp.ones(8, bool))
    batch = Transition(
        seen,
        jnp.zeros(8, int),
        jnp.ones(8),
        jnp.ones(8),
        ahead,
        jnp.zeros(8, int),
        jnp.ones((8, 3)),
    )
    scaled, scaled_ahead = (normalisation.normalise(state.scale, x, every) for x in (seen, ahead))
    in_scale = batch._replace(observation=scaled, next_observation=scaled_ahead)
    uniforms, mask = jnp.full((8, learner.acting_uniforms), 0.5), jnp.ones((8, 3), bool)

    def everything(one, observations, transitions):
        values = one.values(key, state, observations)
        return (
            values,
            one.act(state, observations, mask, uniforms, 0.1),
            one.update(key, state, transitions),
        )

    raw = jax.jit(lambda: everything(learner, seen, batch))()
    own = jax.jit(lambda: everything(plain, scaled, in_scale))()
    for one, other in zip(jax.tree.leaves(raw), jax.tree.leaves(own), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert not np.allclose(plain.values(key, state, seen), own[0])


def test_evaluation_and_prediction_leave_the_moments_alone(tmp_path):
    agent = vt.DQN("CartPole-v1", seed=0, backend="host", **SMALL).learn(80)
    before = jax.tree.map(np.asarray, agent.trainer.states.scale)
    agent.evaluate(2)
    agent.predict([0.1, 0.2, 0.3, 0.4])
    agent.posterior([0.1, 0.2, 0.3, 0.4])
    agent.save(tmp_path / "agent.vt")
    loaded = vt.load(tmp_path / "agent.vt")
    for after in (agent, loaded):
        for old, new in zip(before, after.trainer.states.scale, strict=True):
            np.testing.assert_array_equal(old, new)
    seen = [[0.1, 0.2, 0.3, 0.4]]
    np.testing.assert_array_equal(agent.posterior(seen).latest, loaded.posterior(seen).latest)
    assert loaded.options.normalise_observations is True  # as "auto" had decided


def test_one_hot_vectors_have_the_mean_square_of_other_numbers():
    space = spaces.Tuple([spaces.Discrete(4), spaces.MultiDiscrete([2, 9]), spaces.Box(-1, 1)])
    draws = [space.sample() for _ in range(5)]
    found = np.stack([encoder(space).encode(one) * factors(space) for one in draws])
    for part in (slice(0, 4), slice(4, 6), slice(6, 15)):
        np.testing.assert_allclose(np.mean(found[:, part] ** 2, axis=1), 1)
    np.testing.assert_allclose(found[:, 15], [one[2][0] for one in draws])
    assert factors(spaces.Box(0, 255, (8, 8, 3), np.uint8)).tolist() == np.ones((8, 8, 3)).tolist()


@pytest.mark.parametrize(("wanted", "factor"), [("auto", 4.0), ("one-hot", 4.0), (False, 1.0)])
def test_agents_see_states_by_numbers_in_the_scale_of_other_numbers(wanted, factor, tmp_path):
    agent = vt.DQN("FrozenLake-v1", normalise_observations=wanted, **SMALL).learn(80)
    assert agent.options.normalise_observations == (wanted and "one-hot")
    assert agent.learner.observe is None  # there are no statistics
    plain, state = agent.build(agent.task, agent.options), agent.trainer.member(0).learner
    hot = factor * jnp.eye(16)
    expected = plain.values(jax.random.key(0), state, hot)[0]
    np.testing.assert_allclose(agent.posterior(np.arange(16)).latest, expected, rtol=1e-6)
    assert set(np.unique(agent.trainer.memory(0).observation)) == {0.0, 1.0}  # as it came
    agent.save(tmp_path / "agent.vt")
    again = vt.load(tmp_path / "agent.vt").posterior(np.arange(16))
    np.testing.assert_array_equal(again.latest, agent.posterior(np.arange(16)).latest)


def test_a_file_from_before_the_option_goes_on_as_it_was(tmp_path):
    agent = vt.DQN("CartPole-v1", backend="host", normalise_observations=False, **SMALL)
    description = agent.describe()
    del description["options"]["normalise_observations"]
    array_file.save(tmp_path / "old.vt", agent.trainer.arrays(), description)
    loaded = vt.load(tmp_path / "old.vt")
    assert loaded.options.normalise_observations is False
    assert loaded.learner.observe is None


def test_a_given_policy_sees_observations_as_they_came():
    seen = []

    def policy(observation):
        seen.append(observation)
        return 5

    tracker = vt.ValueTracker(Counter, policy, normalise_observations=True, seed=0, **SMALL).learn(
        60
    )
    assert np.max(seen) >= 4  # counts, of which a normalised one is below 3
    assert int(tracker.trainer.member(0).learner.scale.seen) == 60


@pytest.mark.parametrize("name", PAPERS)
def test_experiments_see_observations_as_they_come_and_have_no_guard(name):
    spec = load(name)
    for row in spec.rows:
        kind = agent_type(row.algorithm)
        options = kind.options_type(**row.options)
        wanted = options.normalise_observations
        if wanted == "auto":  # on the grid alone, which is a unit square
            assert components(bounds_in_jax(find(row.env)()), wanted) is None
        else:
            assert wanted is False
        assert not kind.is_sampler or options.guard is False
