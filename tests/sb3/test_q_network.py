"""The Q-values under SB3's names, and options that mean what they mean in SB3's DQN."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import torch
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import FakeImageEnv, IdentityEnv

from tests.sb3.small import every_observation, make
from tests.small_envs import Spaced
from valuetrack.sb3.parts import QNetwork

STATES = every_observation(IdentityEnv(3))
IMAGES = FakeImageEnv(screen_height=8, screen_width=8, n_channels=1, discrete=True)


@pytest.fixture(scope="module")
def trained():
    return make(target_update_interval=1_000).learn(120)


def test_q_net_has_the_values_of_the_current_sample(trained):
    seen, _ = trained.policy.obs_to_tensor(STATES)
    values, wanted = trained.q_net(seen), trained.posterior(STATES).latest
    np.testing.assert_allclose(values.numpy(), wanted, rtol=1e-6)
    of_target = trained.q_net_target(seen)
    assert not torch.allclose(values, of_target)  # it was not yet refreshed
    trained.learner.refresh_target()
    np.testing.assert_array_equal(trained.q_net_target(seen), trained.q_net(seen))


def test_q_net_is_saved_and_loaded_alone(trained, tmp_path):
    mine = trained.q_net
    mine.save(tmp_path / "q_net")
    alone = QNetwork.load(tmp_path / "q_net")
    seen, _ = trained.policy.obs_to_tensor(STATES)
    np.testing.assert_array_equal(alone(seen), mine(seen))
    np.testing.assert_array_equal(
        alone.predict(STATES)[0], trained.predict(STATES, deterministic=True)[0]
    )
    assert sum(p.numel() for p in mine.parameters()) == 3 * 16 + 16 + 16 * 3 + 3
    with pytest.raises(RuntimeError, match="lacks the array"):
        alone.load_state_dict({})
    with pytest.raises(NotImplementedError, match="by their names"):
        alone.parameters_to_vector()
    with pytest.raises(NotImplementedError, match="by their names"):
        alone.load_from_vector(np.ones(3))


def test_parameters_of_q_net_are_copies_and_can_be_set():
    model = make()
    before = {name: tensor.clone() for name, tensor in model.q_net.state_dict().items()}
    for parameter in model.q_net.parameters():
        parameter.add_(1)
    assert all(torch.equal(t, before[name]) for name, t in model.q_net.state_dict().items())
    model.q_net.load_state_dict({name: t + 1 for name, t in before.items()})
    after = model.q_net.state_dict()
    assert all(torch.equal(after[name], before[name] + 1) for name in before)
    assert all(torch.equal(t, before[n]) for n, t in model.q_net_target.state_dict().items())


@pytest.mark.parametrize(
    ("options", "tau"),
    [
        ({}, 0.015),
        ({"target_update_interval": 100}, 1.0),
        ({"target_update_interval": 100, "tau": 0.2}, 0.2),
    ],
)
def test_the_target_becomes_the_network_at_intervals_as_in_dqn(options, tau):
    model = make(step_size=None, **options)
    assert model.tau == model.learner.functions.options.tau == tau


def test_the_sampler_is_told_how_much_data_there_is():
    env = make_vec_env(lambda: IdentityEnv(3), n_envs=2)
    model = make(env=env, train_freq=3, gradient_steps=2, learning_starts=20, buffer_size=60)
    # The first two updates come after 24 transitions, those to follow with 6 more.
    population = model.learner.functions.options.population()
    assert [float(population(u)) for u in (0, 1, 2, 4, 100)] == [24, 24, 30, 36, 60]
    one = make(train_freq=(1, "episode"), gradient_steps=-1, learning_starts=0)
    assert float(one.learner.functions.options.population()(9)) == 10


def test_features_dim_is_a_layer_after_the_convolutions():
    network = {"convolutions": [(2, 3, 1)], "features_extractor_kwargs": {"features_dim": 8}}
    alone = make(env=IMAGES, policy="CnnPolicy", policy_kwargs=network)
    assert alone.learner.functions.options.hidden == (8,)
    more = make(env=IMAGES, policy="CnnPolicy", policy_kwargs={**network, "net_arch": [4]})
    assert more.learner.functions.options.hidden == (8, 4)


def test_what_extractors_of_pytorch_have_is_refused_or_warned_about():
    parts = spaces.Dict({"place": spaces.Box(-1, 1, (2,), np.float32)})
    kwargs = {"net_arch": [4], "features_extractor_kwargs": {"cnn_output_dim": 16}}
    with pytest.warns(UserWarning, match="cnn_output_dim is not used"):
        make(env=Spaced(parts), policy="MultiInputPolicy", policy_kwargs=kwargs)
    wrong = {"features_extractor_kwargs": {"features_dim": 16}}
    with pytest.raises(TypeError, match="has cnn_output_dim here, not features_dim"):
        make(env=Spaced(parts), policy="MultiInputPolicy", policy_kwargs=wrong)
    with pytest.raises(TypeError, match="MlpPolicy has no features_extractor_kwargs"):
        make(policy_kwargs=kwargs)
    with pytest.raises(TypeError, match="'optimizer_class' here, as the sampler is in"):
        make(policy_kwargs={"optimizer_class": torch.optim.Adam})
