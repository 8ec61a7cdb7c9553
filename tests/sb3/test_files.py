"""Models in SB3's files: saved, loaded, continued, and their arrays exchanged."""

from __future__ import annotations

import io
import json
import zipfile

import gymnasium
import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import torch
from stable_baselines3 import DQN
from stable_baselines3.common.envs import FakeImageEnv, IdentityEnv
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from tests.sb3.small import EVERY, arrays, every_observation, make, same_bits
from valuetrack.sb3 import ALGORITHMS, LKTD, SGHMC, SGLD, CnnPolicy, MlpPolicy

STATES = every_observation(IdentityEnv(3))


@pytest.fixture(scope="module")
def trained():
    return make().learn(120)


@pytest.fixture
def saved(trained, tmp_path):
    trained.save(tmp_path / "model")
    return tmp_path / "model.zip"


@EVERY
def test_a_loaded_model_predicts_the_same(name, tmp_path):
    model = make(ALGORITHMS[name]).learn(80)
    model.save(tmp_path / "model")
    loaded = ALGORITHMS[name].load(tmp_path / "model")
    assert same_bits(model, loaded)
    assert loaded.step_size == 3e-5
    assert loaded.num_timesteps == 80
    before, after = model.posterior(STATES), loaded.posterior(STATES)
    np.testing.assert_array_equal(before.samples, after.samples)
    np.testing.assert_array_equal(
        model.predict(STATES, deterministic=True)[0], loaded.predict(STATES, deterministic=True)[0]
    )


def test_a_loaded_model_goes_on_the_same_way_every_time(tmp_path):
    first = make(env="CartPole-v1").learn(60)
    first.save(tmp_path / "model")
    first.save_replay_buffer(tmp_path / "buffer")
    twins = []
    for _ in range(2):
        model = LKTD.load(tmp_path / "model", env=gymnasium.make("CartPole-v1"))
        model.load_replay_buffer(tmp_path / "buffer")
        assert model.replay_buffer.size() == first.replay_buffer.size()
        model.learn(40, reset_num_timesteps=False)
        twins.append(model)
    assert twins[0].num_timesteps == 100
    assert twins[0].learner.updates == first.learner.updates + 10
    assert same_bits(*twins)
    assert not same_bits(twins[0], first)


def test_the_file_holds_tensors_under_names_that_can_be_read(trained, saved):
    with zipfile.ZipFile(saved) as archive:
        networks, sampler = (
            torch.load(io.BytesIO(archive.read(name)), weights_only=True)
            for name in ("policy.pth", "policy.optimizer.pth")
        )
        described = json.loads(archive.read("data"))
    assert networks["q_net.body.0.w"].shape == (3, 16)
    assert networks["q_net_target.head.w"].shape == (16, 3)
    assert all(tensor.is_floating_point() for tensor in networks.values())
    assert sampler["learned.pool.samples.head.b"].shape == (6, 3)
    assert sampler["learned.learner.sampler.updates"] == trained.learner.updates
    assert {"key", "learned.diverged"} <= sampler.keys()
    assert len(networks) + len(sampler) == len(trained.learner.state_dict())
    assert described["pseudo_population"] == "data"
    assert "learner" not in described


def test_options_change_at_loading(saved):
    model = LKTD.load(saved, env=IdentityEnv(3), step_size=1e-6, exploration_final_eps=0.2)
    assert (model.step_size, model.exploration_final_eps) == (1e-6, 0.2)
    before = arrays(model)["learned.learner.sampler.params.head.w"]
    usual = LKTD.load(saved, env=IdentityEnv(3))
    moved = []
    for each in (model, usual):
        each.learn(24, reset_num_timesteps=False)
        moved.append(np.abs(arrays(each)["learned.learner.sampler.params.head.w"] - before).max())
    assert 0 < moved[0] < moved[1] / 3  # the loaded model's sampler has the new step
    with pytest.raises(ValueError, match="LKTD's step_size is wrong"):
        LKTD.load(saved, step_size=-1.0)
    with pytest.raises(TypeError, match="'step_sise'; did you mean step_size"):
        LKTD.load(saved, step_sise=1e-6)
    rated = LKTD.load(saved, learning_rate=0.1)
    assert (rated.step_size, rated.learning_rate) == (None, 0.1)
    with pytest.raises(ValueError, match="two words for one step"):
        LKTD.load(saved, learning_rate=0.1, step_size=1e-6)
    assert LKTD.load(saved, buffer_size=10, tensorboard_log=None, device="cpu").buffer_size == 10


def test_a_seed_at_loading_gives_other_noise(trained, saved):
    same, one, other = (LKTD.load(saved, **given) for given in ({}, {"seed": 1}, {"seed": 2}))
    keys = [arrays(model)["key"].tolist() for model in (trained, same, one, other)]
    assert keys[0] == keys[1]
    assert keys[1] != keys[2] != keys[3]


def test_a_pool_is_not_read_with_another_thinning(trained, saved):
    for take in (
        lambda: LKTD.load(saved, thinning=1),
        lambda: make(thinning=1).set_parameters(trained.get_parameters()),
    ):
        with pytest.raises(RuntimeError, match="filled with thinning=2, and this model has 1"):
            take()


def test_parameters_are_taken_and_given(trained, saved):
    other = make(seed=9)
    assert not same_bits(trained, other)
    other.set_parameters(trained.get_parameters())
    assert same_bits(trained, other)
    other = make(seed=9)
    other.set_parameters(str(saved))
    assert same_bits(trained, other)
    params = "learned.learner.sampler.params.head.b"
    wanted = torch.tensor([1.0, 2.0, 3.0])
    other.set_parameters({"learner": {params: wanted}}, exact_match=False)
    wanted += 1  # what the model took is its own
    np.testing.assert_array_equal(arrays(other)[params], [1.0, 2.0, 3.0])


def test_what_was_given_is_not_changed_by_learning(trained):
    model = make(seed=9)
    model.set_parameters(trained.get_parameters())
    for given in model.get_parameters().values():
        copies = {name: tensor.clone() for name, tensor in given.items()}
        model.learn(60)
        assert all(torch.equal(given[name], copies[name]) for name in given)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda p, s: s.pop("key"), "lacks the array 'key'"),
        (lambda p, s: p.pop("q_net.head.w"), "lacks the array 'q_net.head.w'"),
        (lambda p, s: s.update(surprise=torch.zeros(1)), "no array 'surprise'"),
        (lambda p, s: p.update({"key": s["key"]}), "no array 'key' here"),
        (
            lambda p, s: s.update({"learned.diverged": torch.zeros(2)}),
            r"'learned.diverged' should be int32 of shape \(\), and is float32 of shape \(2,\)",
        ),
    ],
    ids=["missing", "no weights", "unknown", "elsewhere", "shape"],
)
def test_arrays_that_do_not_fit_are_refused(trained, change, sentence):
    parameters = trained.get_parameters()
    change(parameters["policy"], parameters["policy.optimizer"])
    with pytest.raises(RuntimeError, match=sentence):
        make().set_parameters(parameters)


def test_files_of_others_are_refused(trained, saved, tmp_path):
    with pytest.raises(RuntimeError, match="The file holds LKTD: load it"):
        SGLD.load(saved)
    with pytest.raises(RuntimeError, match="load it with the options it was saved with"):
        LKTD.load(saved, samples=3)
    DQN("MlpPolicy", IdentityEnv(3), buffer_size=10).save(tmp_path / "dqn")
    with pytest.raises(ValueError, match="LKTD takes the policies of"):
        LKTD.load(tmp_path / "dqn")
    with pytest.raises(ValueError, match="spaces do not match"):
        LKTD.load(saved, env=IdentityEnv(4))


def test_another_environment_can_be_set(trained, saved):
    model = LKTD.load(saved)
    assert model.get_env() is None
    model.set_env(IdentityEnv(3))
    model.learn(20, reset_num_timesteps=False)
    with pytest.raises(ValueError, match="spaces do not match"):
        model.set_env(IdentityEnv(4))


def test_a_policy_is_saved_and_loaded_alone(trained, tmp_path):
    trained.policy.save(tmp_path / "policy")
    alone = MlpPolicy.load(tmp_path / "policy")
    np.testing.assert_array_equal(
        alone.predict(STATES)[0], trained.predict(STATES, deterministic=True)[0]
    )
    mine, others = alone.posterior(STATES), trained.posterior(STATES)
    np.testing.assert_array_equal(mine.samples, others.samples)
    np.testing.assert_array_equal(mine.weights, others.weights)
    assert mine.what == "posterior samples of LKTD"
    evaluate_policy(alone, Monitor(IdentityEnv(3, ep_length=5)), 1, warn=False)
    other = make(seed=9)
    other.policy.load_state_dict(alone.state_dict())
    other.policy.optimizer.load_state_dict(alone.optimizer.state_dict())
    assert same_bits(trained, other)


def test_a_policy_for_images_is_loaded_with_its_network(tmp_path):
    model = make(
        SGHMC, FakeImageEnv(screen_height=8, screen_width=8, n_channels=1, discrete=True),
        "CnnPolicy", friction=0.2, policy_kwargs={
            "net_arch": [4], "convolutions": [(2, 3, 1)], "activation_fn": torch.nn.Tanh,
            "normalize_images": False,
        },
    )  # fmt: skip
    model.policy.save(tmp_path / "policy")
    alone = CnnPolicy.load(tmp_path / "policy")
    assert not alone.normalize_images
    assert alone.learner.functions is model.learner.functions
    picture = model.observation_space.sample()
    np.testing.assert_array_equal(alone.posterior(picture).latest, model.posterior(picture).latest)


def test_a_schedule_of_steps_is_saved_and_weights_the_samples(tmp_path):
    schedule = {"schedule": "polynomial", "initial": 1e-4, "power": 0.5}
    model = make(step_size=schedule).learn(80)
    weights = model.posterior(STATES).weights
    assert (np.diff(weights) < 0).all()
    model.save(tmp_path / "model")
    loaded = LKTD.load(tmp_path / "model")
    assert loaded.step_size == schedule
    np.testing.assert_array_equal(loaded.posterior(STATES).weights, weights)
    model.policy.save(tmp_path / "policy")
    assert MlpPolicy.load(tmp_path / "policy").learner.functions is model.learner.functions


def test_a_state_is_no_vector(trained):
    with pytest.raises(NotImplementedError, match="by their names"):
        trained.policy.parameters_to_vector()
    with pytest.raises(NotImplementedError, match="by their names"):
        trained.policy.load_from_vector(np.ones(3))


def test_a_policy_gives_and_takes_its_networks(trained):
    other = make(seed=9)
    other.policy.load_state_dict(trained.policy.state_dict())
    assert not other.learner.updates  # the sampler begins anew
    seen = trained.policy.obs_to_tensor(STATES)[0]
    np.testing.assert_array_equal(
        trained.policy(seen), trained.predict(STATES, deterministic=True)[0]
    )


def test_files_of_earlier_versions_hold_all_in_one(trained):
    other = make(seed=9)
    other.set_parameters({"learner": trained.learner.state_dict()})
    assert same_bits(trained, other)
    policy = make(seed=9).policy
    policy.load_state_dict(trained.learner.state_dict())
    assert policy.learner.updates == trained.learner.updates


def test_networks_move_on_without_the_sampler(trained):
    other, networks = make(seed=9), {"policy": trained.get_parameters()["policy"]}
    with pytest.raises(ValueError, match="do not match"):
        other.set_parameters(networks)
    other.set_parameters(networks, exact_match=False)
    assert not other.learner.updates
    np.testing.assert_array_equal(other.posterior(STATES).latest, trained.posterior(STATES).latest)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, as it compiles
def test_a_compiled_policy_is_saved(trained, tmp_path):
    model = make(seed=9)
    model.set_parameters(trained.get_parameters())
    model.policy = torch.compile(model.policy)
    model.save(tmp_path / "compiled")
    assert same_bits(LKTD.load(tmp_path / "compiled"), trained)


def test_momentum_is_saved(tmp_path):
    model = make(SGHMC, momentum="carried").learn(40)
    assert any("velocity" in name or "momentum" in name for name in arrays(model)), arrays(model)
