"""Learning as Stable-Baselines3 does it, with valuetrack's core."""

from __future__ import annotations

import itertools
import signal

import jax
import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from stable_baselines3.common.envs import IdentityEnv
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv

import valuetrack as vt
from tests.sb3.small import EVERY, QUICK, arrays, every_observation, make, same_bits
from tests.small_envs import Counter
from valuetrack import rng
from valuetrack.api.estimate import Estimate
from valuetrack.sb3 import ALGORITHMS
from valuetrack.types import Transition


@EVERY
def test_the_identity_is_learned(name):
    env = IdentityEnv(3, ep_length=50)
    model = make(
        ALGORITHMS[name], env, step_size=QUICK[name], gamma=0.0, exploration_fraction=0.5,
        train_freq=2, guard=False,  # with so large a noise samples go beyond what rewards allow
        pseudo_population=5_000,
    )  # fmt: skip
    assert isinstance(model, OffPolicyAlgorithm)
    model.learn(800)
    mean, _ = evaluate_policy(model, Monitor(IdentityEnv(3, ep_length=50)), 4, warn=False)
    assert mean > 0.9 * 50
    seen = every_observation(env)
    assert (model.predict(seen, deterministic=True)[0] == seen).all()
    values = model.posterior(seen)
    right, wrong = values.mean[seen, seen], values.mean[seen, (seen + 1) % 3]
    assert (right - wrong > 0.5).all()
    assert (values.policy_probabilities()[seen, seen] > 0.5).all()


def test_two_environments_at_once_learn_the_identity():
    env = DummyVecEnv([lambda: IdentityEnv(2, ep_length=20)] * 2)
    model = make(env=env, step_size=5e-3, gamma=0.0, train_freq=2).learn(800)
    mean, _ = evaluate_policy(model, env, 4, warn=False)
    assert mean > 18


@EVERY
def test_the_same_seed_gives_the_same_bits(name):
    one, again, other = (
        make(ALGORITHMS[name], "CartPole-v1", seed=seed).learn(60) for seed in (3, 3, 4)
    )
    assert one.learner.updates == 10
    assert same_bits(one, again)
    params = "learned.learner.sampler.params.head.w"
    assert not np.array_equal(arrays(one)[params], arrays(other)[params])


def test_the_three_are_three_samplers():
    models = [make(kind).learn(24) for kind in ALGORITHMS.values()]
    assert [model.learner.updates for model in models] == [1, 1, 1]
    learned = [arrays(model)["learned.learner.sampler.params.head.w"] for model in models]
    for one, other in itertools.combinations(learned, 2):
        assert not np.array_equal(one, other)


def test_without_a_seed_two_models_differ():
    assert not same_bits(make(seed=None), make(seed=None))


def test_it_starts_with_the_network_of_valuetracks_own_class():
    observation = np.array([0.1, -0.2, 0.03, 0.4], np.float32)
    own = vt.LKTD("CartPole-v1", seed=5, hidden=(16,), samples=6, step_size=3e-5)
    model = make(env="CartPole-v1", seed=5)
    np.testing.assert_allclose(  # programs round differently
        model.posterior(observation).latest, own.posterior(observation).latest, rtol=1e-5
    )


def test_updates_are_those_of_the_agent_one_after_the_other():
    model = make(seed=7).learn(16)  # fills the buffer
    learner, update = model.learner, jax.jit(model.learner.functions.learner.update)
    np.random.seed(11)  # noqa: NPY002 - SB3's buffer draws from this generator
    batches = model._draw(3, 4)
    state = jax.tree.map(np.array, learner.state.learned.learner)
    done, keys = learner.updates, jax.random.split(rng.key(7), 3)
    for index in range(3):
        batch = Transition(*(field[index] for field in batches))
        key = jax.random.fold_in(keys[0], done + index)
        updated, _ = update(key, state, batch)
        state = updated._replace(target=state.target)
    learner.update(batches)
    for mine, expected in zip(
        jax.tree.leaves(learner.state.learned.learner), jax.tree.leaves(state), strict=True
    ):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-6)


def test_the_target_is_copied_by_the_clock_of_environment_steps():
    model = make(learning_starts=0, target_update_interval=10, train_freq=5)
    params, target = "learned.learner.sampler.params.head.w", "learned.learner.target.head.w"
    start = arrays(model)[target]
    model.learn(5)
    assert np.array_equal(arrays(model)[target], start)
    learned = arrays(model)[params]
    assert not np.array_equal(learned, start)
    model.learn(5, reset_num_timesteps=False)  # at the tenth step a copy, then an update
    assert np.array_equal(arrays(model)[target], learned)
    assert not np.array_equal(arrays(model)[params], learned)


@pytest.mark.parametrize("tau", [0.25, 1.0])
def test_by_default_the_target_moves_after_every_update(tau):
    model = make(learning_starts=0, train_freq=5, tau=tau)
    params, target = "learned.learner.sampler.params.head.w", "learned.learner.target.head.w"
    expected = arrays(model)[target]
    for _ in range(3):
        model.learn(5, reset_num_timesteps=False)
        expected = expected + tau * (arrays(model)[params] - expected)
        np.testing.assert_allclose(arrays(model)[target], expected, rtol=1e-5, atol=1e-7)


def test_with_several_environments_the_clock_counts_their_steps():
    env = DummyVecEnv([lambda: IdentityEnv(3)] * 2)
    model = make(env=env, learning_starts=0, target_update_interval=10, train_freq=1)
    target = "learned.learner.target.head.w"
    start = arrays(model)[target]
    model.learn(8)  # four calls, eight steps
    assert np.array_equal(arrays(model)[target], start)
    model.learn(2, reset_num_timesteps=False)
    assert not np.array_equal(arrays(model)[target], start)


@pytest.mark.parametrize("bootstraps", [True, False])
def test_batches_are_what_happened(bootstraps):
    """`Counter` ends by itself at 9 and is cut after four steps, which is no end of the task."""
    options = {"handle_timeout_termination": bootstraps}
    env = Counter(last=9, horizon=4)
    model = make(env=env, gamma=0.5, learning_starts=1000, replay_buffer_kwargs=options).learn(200)
    drawn = model._draw(3, 100)
    at, steps = drawn.observation[..., 0], drawn.observation[..., 1]
    assert set(np.unique(drawn.action)) == {0, 1, 2}
    np.testing.assert_array_equal(drawn.next_observation[..., 0], at + 1 + drawn.action)
    np.testing.assert_array_equal(drawn.next_observation[..., 1], steps + 1)
    np.testing.assert_allclose(drawn.reward, drawn.next_observation[..., 0] / 10, rtol=1e-6)
    over, cut = drawn.next_observation[..., 0] >= 9, drawn.next_observation[..., 1] >= 4
    assert (over & ~cut).any()
    assert (cut & ~over).any()
    ends = over if bootstraps else over | cut
    np.testing.assert_array_equal(drawn.discount, np.where(ends, 0.0, 0.5))


def test_as_many_updates_as_an_episode_had_steps():
    model = make(env="CartPole-v1", train_freq=(1, "episode"), gradient_steps=-1, learning_starts=0)
    model.learn(1)
    assert model.num_timesteps > 5
    assert model.learner.updates == model._n_updates == model.num_timesteps
    assert model._updates_of_calls(200) == [64, 64, 64, 8]
    assert model._updates_of_calls(7) == [4, 2, 1]
    fixed = make(gradient_steps=3)
    assert fixed._updates_of_calls(3) == [3]
    many = make(gradient_steps=200)
    assert many._updates_of_calls(200) == [
        64,
        64,
        64,
        8,
    ]  # the batches of one piece are held together


def test_exploration_falls_and_draws_every_action():
    model = make(exploration_fraction=1.0, exploration_final_eps=0.0, learning_starts=0)
    model.exploration_rate = 1.0
    drawn, _ = model.predict(np.zeros(200, int))
    assert set(drawn) == {0, 1, 2}
    model.exploration_rate = 0.5
    drawn, _ = model.predict(np.zeros(1000, int))
    greedy, _ = model.predict(np.array(0), deterministic=True)
    assert 0.55 < np.mean(drawn == greedy) < 0.78  # 1/2 + 1/2 * 1/3
    rates = {}

    def note(local, _):
        # Epsilon falls after the callbacks of a step.
        rates[local["self"].num_timesteps] = local["self"].exploration_rate
        return True

    model.learn(30, callback=note)
    for step in range(2, 31):
        assert rates[step] == pytest.approx(1 - (step - 1) / 30)


def test_a_seed_set_later_decides_exploration_and_noise():
    models = [make(seed=seed, env="CartPole-v1").learn(40) for seed in (0, 0)]
    for model in models:
        model.set_random_seed(5)
        model.exploration_rate = 0.5
    chosen = [
        [int(model.predict(np.zeros(4, np.float32))[0]) for _ in range(60)] for model in models
    ]
    assert chosen[0] == chosen[1]
    assert len(set(chosen[0])) == 2
    expected = arrays(make(seed=5, env="CartPole-v1"))["key"]
    np.testing.assert_array_equal(arrays(models[0])["key"], expected)


def test_ctrl_c_in_an_update_leaves_a_whole_model(tmp_path, monkeypatch):
    model = make(env="CartPole-v1").learn(40)
    update = model.learner.functions.update

    def pressed(state, batches, refresh):
        result = update(state, batches, refresh)
        signal.raise_signal(signal.SIGINT)  # the old state is gone, the new one not yet assigned
        return result

    monkeypatch.setattr(model.learner.functions, "update", pressed)
    done = model.learner.updates
    with pytest.raises(KeyboardInterrupt):
        model.learn(200, reset_num_timesteps=False)
    monkeypatch.undo()
    assert model.learner.updates == done + 1
    model.save(tmp_path / "model")
    assert same_bits(model, type(model).load(tmp_path / "model"))


def test_a_posterior_has_the_face_of_valuetracks():
    model = make().learn(100)
    one, batch = model.posterior(np.array(1)), model.posterior(np.array([1, 2]))
    assert isinstance(one, Estimate)
    assert one.is_posterior
    assert one.what == "posterior samples of LKTD"
    assert one.samples.shape == (6, 3)
    assert batch.samples.shape == (6, 2, 3)
    np.testing.assert_allclose(batch.samples[:, 0], one.samples, rtol=1e-5)
    np.testing.assert_array_equal(one.samples[-1], one.latest)  # the newest is the current one
    low, high = one.interval(0.5, kind="credible")
    assert (low <= high).all()
    assert one.std.shape == (3,)
    assert one.policy_probabilities().sum() == pytest.approx(1.0)


def test_predictions_have_the_shapes_that_sb3_promises():
    model = make(env="CartPole-v1")
    single, state = model.predict(np.zeros(4, np.float32), deterministic=True)
    assert single.shape == ()
    assert state is None
    assert model.predict(np.zeros((5, 4), np.float32), deterministic=True)[0].shape == (5,)
    assert model.predict(np.zeros((5, 4), np.float32))[0].shape == (5,)
    model.exploration_rate = 1.0
    assert model.predict(np.zeros(4, np.float32))[0].shape == ()


def test_actions_that_begin_elsewhere_are_translated():
    model = make(env=Counter(last=99)).learn(40)
    action, _ = model.predict(np.zeros((4, 2), np.float32), deterministic=True)
    assert set(action) <= {5, 6, 7}


def test_divergence_is_told_once_in_a_sentence():
    model = make(env="CartPole-v1", step_size=1e6, guard=False)
    with pytest.warns(RuntimeWarning, match=r"LKTD diverged at update \d+: .* smaller step size"):
        model.learn(40)
    assert model.learner.diverged >= 1
    model.learn(40, reset_num_timesteps=False)  # a second warning would be an error here
