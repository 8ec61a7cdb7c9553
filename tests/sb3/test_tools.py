"""The tools around a model: callbacks, normalisation, logs, and all kinds of observations."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("stable_baselines3")

from stable_baselines3.common.callbacks import CallbackList, CheckpointCallback, EvalCallback
from stable_baselines3.common.envs import FakeImageEnv, IdentityEnv
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import valuetrack as vt
from tests.sb3.small import make, same_bits
from tests.small_envs import Counter, Picture, Spaced
from valuetrack.sb3 import LKTD


def test_callbacks_evaluate_keep_the_best_and_save(tmp_path):
    evaluation = EvalCallback(
        Monitor(IdentityEnv(3, ep_length=10)), eval_freq=40, n_eval_episodes=2, verbose=0,
        log_path=str(tmp_path), best_model_save_path=str(tmp_path),
    )  # fmt: skip
    checkpoints = CheckpointCallback(save_freq=50, save_path=str(tmp_path), name_prefix="at")
    calls = []

    def count(local, everything):
        calls.append(local["self"].num_timesteps)
        return len(calls) < 90

    model = make().learn(200, callback=CallbackList([evaluation, checkpoints]))
    assert np.load(tmp_path / "evaluations.npz")["results"].shape == (5, 2)
    assert (tmp_path / "at_150_steps.zip").exists()
    LKTD.load(tmp_path / "best_model")
    model.learn(200, callback=count)
    assert calls == list(range(1, 91))  # and no step after the callback has said no


def test_normalised_observations_and_rewards():
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 2), gamma=0.9)
    model = make(env=env).learn(120)
    assert model.get_vec_normalize_env() is env
    assert env.ret_rms.count > 100
    drawn = model._draw(1, 64)
    raw = model.replay_buffer
    seen = raw.observations[: raw.pos].reshape(-1, 4)
    assert seen.std(axis=0).min() < 0.3 < drawn.observation.std(axis=(0, 1)).min()
    assert drawn.reward.max() < 1.0 == raw.rewards[: raw.pos].max()
    mean, _ = evaluate_policy(model, env, 2, warn=False)
    assert mean > 0
    assert model.posterior(env.reset()).mean.shape == (2, 2)


def test_tensorboard_files_are_written(tmp_path):
    pytest.importorskip("tensorboard")
    model = make(tensorboard_log=str(tmp_path)).learn(240, log_interval=1)
    (folder,) = tmp_path.iterdir()
    assert folder.name == "LKTD_1"
    assert list(folder.glob("events.out.tfevents.*"))
    assert model.logger.name_to_value.keys() >= {"train/loss", "rollout/exploration_rate"}


@pytest.mark.filterwarnings("ignore:rich is experimental")  # as SB3 does, outside of pytest
def test_a_progress_bar_is_shown(capsys):
    pytest.importorskip("tqdm")
    assert make(learning_starts=100).learn(12, progress_bar=True).num_timesteps == 12
    assert "12/12" in "".join(capsys.readouterr())


def test_net_arch_none_is_the_default_network():
    usual, none = (make(policy_kwargs=kwargs) for kwargs in (None, {"net_arch": None}))
    assert same_bits(usual, none)
    assert usual.learner.functions.options.hidden == (256, 256)
    linear = make(policy_kwargs={"net_arch": []})
    assert linear.learner.functions.options.hidden == ()


def test_images_are_divided_unless_told_otherwise():
    env = FakeImageEnv(screen_height=8, screen_width=8, n_channels=1, discrete=True)
    kwargs = {"net_arch": [4], "activation_fn": "relu"}
    for policy in ("CnnPolicy", "MlpPolicy"):
        usual, raw = (
            make(env=env, policy=policy, policy_kwargs={**kwargs, "normalize_images": divided})
            for divided in (True, False)
        )
        picture = env.observation_space.sample()
        small, large = (model.posterior(picture).latest for model in (usual, raw))
        # Biases begin at zero, so the network is homogeneous.
        np.testing.assert_allclose(large, 255 * small, rtol=1e-4)
        assert raw.learn(8)._draw(1, 2).observation.dtype == np.float32
    model = make(
        env=Spaced(MIXED), policy="MultiInputPolicy", policy_kwargs={"normalize_images": False}
    ).learn(8)
    assert model._draw(1, 8).observation.max() > 1


@pytest.mark.parametrize(
    "options", [{"init": "pytorch"}, {"init": "prior"}, {"init": "normal", "init_sd": 2.0}]
)
def test_the_first_parameters_are_drawn_as_told(options):
    step = {"step_size": 3e-5}
    mine, own = make(**options), vt.LKTD("CartPole-v1", hidden=(16,), seed=0, **options, **step)
    assert not np.array_equal(mine.posterior(np.array(0)).latest, make().posterior(0).latest)
    model, seen = make(env="CartPole-v1", **options), np.array([0.1, -0.2, 0.03, 0.4], np.float32)
    np.testing.assert_allclose(
        model.posterior(seen).latest, own.posterior(seen).latest, rtol=1e-4, atol=1e-6
    )


def test_double_q_learning_and_the_priors_phase_in_change_what_is_learned():
    common = {"step_size": 1e-3, "target_update_interval": 1000}
    common |= {"prior_sd": 1.0, "prior_narrow_sd": 0.05}
    changes = [{}, {"double": True}, {"prior_phase_in": 20}]
    plain, double, phased = (
        make(train_freq=1, **common, **change).learn(120) for change in changes
    )
    assert not same_bits(plain, double)
    assert not same_bits(plain, phased)


def test_images_are_learned_with_convolutions(tmp_path):
    model = make(
        env=Picture(side=6), policy="CnnPolicy", step_size=2e-3, gamma=0.0, train_freq=1,
        policy_kwargs={"net_arch": [16], "convolutions": [(8, 3, 1)]},
        exploration_fraction=0.6, buffer_size=1000, inner_iterations=2,
    )  # fmt: skip
    assert model.policy.task == ((6, 6, 1), True, 2)
    assert model.replay_buffer.observations.dtype == np.uint8
    model.learn(500)
    mean, _ = evaluate_policy(model, Monitor(Picture(side=6)), 60, warn=False)
    assert mean > 0.7
    picture = Picture(side=6).observation_space.sample()  # channels last, as Gymnasium has it
    action, _ = model.predict(picture, deterministic=True)
    assert action.shape == ()
    assert model.posterior(picture[None]).mean.shape == (1, 2)
    model.save(tmp_path / "model")
    assert same_bits(model, LKTD.load(tmp_path / "model"))


def test_images_of_sb3s_tests_run_with_and_without_convolutions():
    env = FakeImageEnv(screen_height=12, screen_width=10, n_channels=3, discrete=True)
    flat, convolved = {"net_arch": [8]}, {"net_arch": [8], "convolutions": [(4, 3, 2)]}
    cases = [("CnnPolicy", (12, 10, 3), convolved), ("MlpPolicy", (360,), flat)]
    for policy, shape, network in cases:
        model = make(env=env, policy=policy, policy_kwargs=network, buffer_size=60).learn(8)
        assert model.policy.task.shape == shape
        encoded = model._draw(1, 2).observation
        assert encoded.max() <= (255 if policy == "CnnPolicy" else 1.0)


MIXED = spaces.Dict(
    {
        "mark": spaces.Discrete(3),
        "place": spaces.Box(-1, 1, (2,), np.float32),
        "picture": spaces.Box(0, 255, (4, 4, 1), np.uint8),
    }
)


def test_parts_of_an_observation_are_flattened():
    model = make(env=Spaced(MIXED), policy="MultiInputPolicy")
    model.learn(28)
    assert model.policy.task.shape == (3 + 2 + 16,)
    assert model.learner.updates == 2
    env = model.get_env()
    assert model.posterior(env.reset()).mean.shape == (1, 2)
    assert model.predict(MIXED.sample(), deterministic=True)[0].shape == ()


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(4, start=2),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(5),
        spaces.Box(-1, 1, (2, 3), np.float64),
    ],
    ids=lambda space: type(space).__name__,
)
def test_observations_of_every_kind(space):
    model = make(env=Spaced(space)).learn(8)  # before the first update: none is compiled
    assert model._draw(2, 4).observation.shape == (2, 4, *model.policy.task.shape)
    single, batch = space.sample(), np.stack([space.sample() for _ in range(3)])
    assert model.posterior(np.asarray(single)).mean.shape == (2,)
    assert model.posterior(batch).mean.shape == (3, 2)


def test_returns_over_several_steps():
    model = make(env=Counter(last=9, horizon=50), n_steps=3, gamma=0.5, learning_starts=1000)
    drawn = model.learn(100)._draw(1, 500)
    at, end = drawn.observation[..., 0], drawn.next_observation[..., 0]
    # Three steps at most, fewer where the episode ends by itself before.
    steps = drawn.next_observation[..., 1] - drawn.observation[..., 1]
    over = end >= 9
    assert set(np.unique(steps[over])) == {1, 2, 3}
    assert (end > at).all()
    np.testing.assert_array_equal(drawn.discount, np.where(over, 0.0, 0.5**steps))
    first = steps == 1
    np.testing.assert_allclose(drawn.reward[first], end[first] / 10, rtol=1e-6)
    assert (drawn.reward[~first] > at[~first] / 10).all()


def test_the_buffer_that_saves_memory_gives_the_same_kind_of_batches():
    model = make(
        env="CartPole-v1", optimize_memory_usage=True,
        replay_buffer_kwargs={"handle_timeout_termination": False},
    ).learn(60)  # fmt: skip
    assert model.learner.updates == 10
    drawn = model._draw(2, 4)
    assert drawn.next_observation.shape == (2, 4, 4)
    assert not np.array_equal(drawn.next_observation, drawn.observation)
