"""gymnax's environments behind our protocol: the same steps, with the ends told apart."""

from __future__ import annotations

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from valuetrack import DQN, load
from valuetrack.envs import ObservationSpec, find, ids_in_jax
from valuetrack.envs.gym.guards import EnvironmentFailedError
from valuetrack.envs.gymnax import GymnaxEnv, key_from_uniforms, make

CARTPOLE, BREAKOUT = "gymnax/CartPole-v1", "gymnax/Breakout-MinAtar"
SMALL = {"hidden": (8,), "batch_size": 8, "replay_capacity": 200, "samples": 4}


def is_one_sentence(text):
    return text.endswith(".") and "\n" not in text


def walk(env, steps, seed=0, reset=True):
    """Walk at random; return the results of all steps, each with its action and uniforms."""

    def body(state, key):
        uniforms = jax.random.uniform(key, (5,))
        action = (uniforms[4] * env.num_actions).astype(jnp.int32)
        result = env.step(state, action, uniforms[:2])
        over = (result.terminated | result.truncated) & reset
        fresh = env.reset(uniforms[2:4])
        current = jax.tree.map(lambda f, s: jnp.where(over, f, s), fresh, result.state)
        return current, (state, action, uniforms, result)

    start, steps_key = jax.random.split(jax.random.key(seed))
    first = env.reset(jax.random.uniform(start, (env.reset_uniforms,)))
    return jax.jit(jax.lax.scan, static_argnums=0)(body, first, jax.random.split(steps_key, steps))[
        1
    ]


@pytest.mark.parametrize("name", ["CartPole-v1", "Breakout-MinAtar", "Catch-bsuite"])
def test_the_steps_are_those_of_gymnax(name):
    env, params = gymnax.make(name)
    ours = GymnaxEnv(env, params)
    states, actions, uniforms, results = walk(ours, 200)

    @jax.jit
    @jax.vmap
    def theirs(state, action, uniforms):
        # gymnax's `step` splits its key before it steps.
        key = key_from_uniforms(uniforms[:2])
        observation, after, reward, terminated, _ = env.step_env(key, state.state, action, params)
        return observation, after, reward, terminated, env.is_truncated(after, params)

    observation, after, reward, terminated, truncated = theirs(states, actions, uniforms)
    np.testing.assert_array_equal(results.observation, observation)
    np.testing.assert_array_equal(results.reward, reward)
    np.testing.assert_array_equal(results.terminated, terminated)
    np.testing.assert_array_equal(results.truncated, truncated & ~terminated)
    for mine, their in zip(
        jax.tree.leaves(results.state.state), jax.tree.leaves(after), strict=True
    ):
        np.testing.assert_array_equal(mine, their)
    assert terminated.any()


def test_episodes_are_those_of_gymnaxs_own_step():
    """gymnax's public ``step``, from the same states with the same actions, which resets."""
    env, params = gymnax.make("CartPole-v1")
    states, actions, _, results = walk(GymnaxEnv(env, params), 200)
    step = jax.jit(jax.vmap(env.step, in_axes=(0, 0, 0, None)))
    keys = jax.random.split(jax.random.key(1), 200)
    _, _, reward, terminated, truncated, info = step(keys, states.state, actions, params)
    np.testing.assert_allclose(results.observation, info["final_observation"], atol=1e-6)
    np.testing.assert_array_equal(results.reward, reward)
    np.testing.assert_array_equal(results.terminated, terminated)
    np.testing.assert_array_equal(results.truncated, truncated)


def test_a_step_that_ends_an_episode_does_not_reset():
    env = find(CARTPOLE)()
    *_, results = walk(env, 100)
    ends = np.flatnonzero(results.terminated)
    assert len(ends)
    angles, positions = results.observation[ends, 2], results.observation[ends, 0]
    limit = env.params.theta_threshold_radians
    assert ((np.abs(angles) > limit) | (np.abs(positions) > env.params.x_threshold)).all()


def test_the_time_limit_truncates_and_does_not_terminate():
    env = find(CARTPOLE)(max_steps_in_episode=7)
    *_, results = walk(env, 100)
    np.testing.assert_array_equal(results.truncated, results.state.state.time == 7)
    assert results.truncated.any()
    assert not results.terminated.any()


def test_an_episode_that_ends_both_ways_is_terminated():
    env = find("gymnax/Catch-bsuite")(max_steps_in_episode=9)  # the ball is caught in the ninth
    *_, results = walk(env, 40)
    at_limit = np.asarray(results.state.state.time) == 9
    assert at_limit.any()
    assert results.terminated[at_limit].all()
    assert not results.truncated.any()


def test_different_uniforms_give_different_keys():
    uniforms = jax.random.uniform(jax.random.key(0), (100_000, 2))
    words = np.asarray(jax.random.key_data(jax.vmap(key_from_uniforms)(uniforms)))
    assert len(np.unique(words, axis=0)) == len(np.unique(np.asarray(uniforms), axis=0)) == 100_000
    for word in words.T:
        bits = np.unpackbits(word.astype(">u4").view(np.uint8).reshape(-1, 4), axis=1)
        np.testing.assert_array_equal(bits[:, :8], 0)  # 24 bits, of which JAX draws 23
        np.testing.assert_allclose(bits[:, 8:31].mean(axis=0), 0.5, atol=0.01)


def test_neighbouring_uniforms_give_unrelated_numbers():
    least = 2.0**-23
    pairs = jnp.array([[0.5, 0.5], [0.5 + least, 0.5], [0.5, 0.5 + least], [0.0, 0.0]])
    numbers = jax.vmap(lambda u: jax.random.uniform(key_from_uniforms(u), (1000,)))(pairs)
    correlations = np.corrcoef(numbers)[np.triu_indices(4, 1)]
    assert (np.abs(correlations) < 0.15).all()


def test_different_uniforms_give_different_transitions():
    uniforms = jax.random.uniform(jax.random.key(0), (500, 2))
    starts = jax.vmap(find(CARTPOLE)().reset)(uniforms)
    assert len(np.unique(starts.observation, axis=0)) == 500
    env = find("gymnax/GaussianBandit-misc")()  # whose rewards have a normal distribution
    state = env.reset(jnp.array([0.1, 0.2]))
    step = jax.jit(jax.vmap(lambda each: env.step(state, jnp.int32(1), each).reward))
    rewards = np.asarray(step(uniforms))
    assert len(np.unique(rewards)) == 500
    noise = (rewards - state.state.mu) / env.params.sigma_l
    assert stats.kstest(noise, "norm").pvalue > 0.001
    np.testing.assert_array_equal(step(uniforms), rewards)


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "is_image"),
    [
        ("Breakout-MinAtar", (10, 10, 4), np.float32, True),
        ("Seaquest-MinAtar", (10, 10, 10), np.float32, True),
        ("DeepSea-bsuite", (8, 8), np.float32, False),
        ("FourRooms-misc", (4,), np.int32, False),
        ("FrozenLake-misc", (16,), np.float32, False),  # one-hot
    ],
)
def test_observations(name, shape, dtype, is_image):
    env = make(name)
    assert ObservationSpec.of_env(env) == (shape, dtype, is_image)
    uniforms = np.array([0.3, 0.4], np.float32)
    state = jax.jit(env.reset)(uniforms)
    result = jax.jit(env.step)(state, np.int32(1), uniforms)
    for seen in (env.observe(state), result.observation, env.observe(result.state)):
        assert (seen.shape, seen.dtype) == (shape, dtype)
    assert env.action_mask(state).tolist() == [True] * env.num_actions
    same = jax.tree.map(lambda a, b: a.dtype == b.dtype, state, result.state)
    assert all(jax.tree.leaves(same))


def test_discrete_states_are_one_hot():
    env = make("FrozenLake-misc")
    state = env.reset(jnp.array([0.3, 0.4]))
    assert env.observe(state).argmax() == state.state.position
    assert env.observe(state).sum() == 1


def test_ids_and_options():
    ids = ids_in_jax()
    assert {CARTPOLE, BREAKOUT, "CartPole-v1"} <= set(ids)
    assert find(BREAKOUT)(use_minimal_action_set=False).num_actions == 6
    assert find(BREAKOUT)(max_steps_in_episode=9).params.max_steps_in_episode == 9


@pytest.mark.parametrize(
    ("env", "options", "said"),
    [
        ("gymnax/NoSuch", {}, "gymnax has no environment 'NoSuch'; it has CartPole-v1"),
        ("gymnax/Pendulum-v1", {}, "actions of gymnax/Pendulum-v1 are Box"),
        (CARTPOLE, {"wheels": 3}, "cannot be made: .*'wheels'.* Its parameters are force_mag"),
    ],
)
def test_what_cannot_be_made_is_one_sentence(env, options, said):
    with pytest.raises(ValueError, match=said) as error:
        find(env)(**options)
    assert is_one_sentence(str(error.value))


def test_an_environment_that_fails_is_named(monkeypatch):
    def fail(**_):
        raise OSError("no network")

    monkeypatch.setitem(gymnax.registration._registry, "CartPole-v1", fail)
    with pytest.raises(EnvironmentFailedError, match="gymnax/CartPole-v1 failed: OSError: no net"):
        find(CARTPOLE)()


def test_observations_of_several_parts_are_refused():
    class Parts(type(gymnax.make("CartPole-v1")[0])):
        def reset_env(self, key, params):
            observation, state = super().reset_env(key, params)
            return {"all": observation}, state

    with pytest.raises(ValueError, match="has several parts") as error:
        GymnaxEnv(Parts())
    assert is_one_sentence(str(error.value))


def test_an_agent_learns_by_id_and_is_loaded_again(tmp_path):
    agent = DQN(CARTPOLE, env_options={"max_steps_in_episode": 20}, seeds=2, **SMALL)
    agent.learn(64)
    assert agent.env.in_jax.params.max_steps_in_episode == 20
    agent.save(tmp_path / "agent.vt")
    again = load(tmp_path / "agent.vt")
    assert again.env.in_jax.params.max_steps_in_episode == 20
    observation = np.zeros(4, np.float32)
    assert again.predict(observation) == agent.predict(observation)
    again.learn(64)


def test_an_agent_learns_from_images():
    agent = DQN(GymnaxEnv(*gymnax.make("Breakout-MinAtar")), convolutions=((4, 3, 2),), **SMALL)
    agent.learn(32)
    kernel = jax.tree.leaves(agent.trainer.states.sampler.params["body"][0]["w"])[0]
    assert kernel.shape[-4:] == (3, 3, 4, 4)


def test_on_the_host_there_is_no_such_environment():
    with pytest.raises(ValueError, match="written in JAX takes the compiled trainer"):
        DQN(BREAKOUT, backend="host", **SMALL)
