"""What is wrong is said in one sentence."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import torch
from gymnasium import spaces
from stable_baselines3.common.envs import FakeImageEnv, IdentityEnv
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.dqn.policies import MlpPolicy as TorchPolicy

from tests.sb3.small import make
from tests.small_envs import Spaced
from valuetrack import registry
from valuetrack.agents.lktd import LKTDOptions
from valuetrack.sb3 import ALGORITHMS, LKTD, SGLD
from valuetrack.sb3.names import NAMED_BY_SB3, option_defaults


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"step_sise": 1e-3}, TypeError, "LKTD has no 'step_sise'; did you mean step_size"),
        ({"wings": 2}, TypeError, "LKTD has no 'wings'; there are .*step_size"),
        ({"discount": 0.9}, TypeError, "no 'discount': SB3 calls it gamma"),
        ({"hidden": (8,)}, TypeError, r"no 'hidden': give policy_kwargs=dict\(net_arch"),
        ({"learning_rate": 0.0, "step_size": None}, ValueError, "LKTD's learning_rate is wrong"),
        ({"learning_rate": 1e-3, "step_size": 1e-5}, ValueError, "two words for one step"),
        ({"form": "sarsa"}, TypeError, "does not keep the next action"),
        ({"seeds": 4}, TypeError, "no 'seeds': train one model per seed"),
        ({"step_size": 0.0}, ValueError, "LKTD's step_size is wrong: .* greater than 0"),
        ({"alpha": 1.0}, ValueError, "LKTD's alpha is wrong"),
        ({"latent": "sleepy"}, ValueError, "LKTD's latent is wrong: .*'restart'"),
        ({"batch_size": 0}, ValueError, "LKTD's batch_size is a whole number of at least 1, not 0"),
        ({"gamma": 1.5}, ValueError, "LKTD's gamma lies between 0 and 1, and 1.5 does not"),
        ({"exploration_fraction": -1}, ValueError, "exploration_fraction lies between 0 and 1"),
        (
            {"target_update_interval": 0},
            ValueError,
            "interval is a whole number of at least 1, not 0",
        ),
        ({"policy_kwargs": {"net_arch": 8}}, ValueError, "net_arch is a list of layer widths"),
        ({"policy_kwargs": {"net_arch": [0]}}, ValueError, "net_arch is a list of layer widths"),
        ({"policy_kwargs": {"activation_fn": "sine"}}, ValueError, "activation_fn is one of relu"),
        (
            {"policy_kwargs": {"convolutions": [(4, 3, 1)]}},
            ValueError,
            "convolutions are for CnnPolicy, not for MlpPolicy",
        ),
        ({"policy_kwargs": {"optimizer_class": None}}, TypeError, "no 'optimizer_class' here"),
        ({"train_freq": (1, "year")}, ValueError, "'step' or 'episode'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_wrong_options(options, kind, sentence):
    with pytest.raises(kind, match=sentence):
        make(**options)


@pytest.mark.parametrize(
    ("policy", "env", "kind", "sentence"),
    [
        ("MlpPolicy", "Pendulum-v1", AssertionError, "only supports .*Discrete.* as action spaces"),
        ("CnnPolicy", FakeImageEnv(discrete=False), AssertionError, "only supports"),
        ("CnnPolicy", "CartPole-v1", ValueError, "CnnPolicy needs images"),
        ("MultiInputPolicy", "CartPole-v1", ValueError, "MultiInputPolicy needs Dict observations"),
        ("FancyPolicy", "CartPole-v1", ValueError, "Policy FancyPolicy unknown"),
        (TorchPolicy, "CartPole-v1", ValueError, "whose network is PyTorch's"),
    ],
)
def test_policies_and_environments_that_do_not_fit(policy, env, kind, sentence):
    with pytest.raises(kind, match=sentence):
        LKTD(policy, env)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, ()),
        spaces.MultiDiscrete([[2, 3], [2, 2]]),
        spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-1, 1, ())}),
    ],
)
def test_observations_that_the_buffer_cannot_hold(space):
    policy = "MultiInputPolicy" if isinstance(space, spaces.Dict) else "MlpPolicy"
    with pytest.raises(ValueError, match="SB3's replay buffer cannot hold observations of"):
        make(env=Spaced(space), policy=policy)


def test_numbers_of_numpy_are_numbers():
    model = make(
        gamma=np.float32(0.5), batch_size=np.int64(8), policy_kwargs={"net_arch": [np.int64(4)]}
    )
    assert model.policy.net_arch == (4,)


def test_more_environments_than_steps_between_two_copies_are_told():
    with pytest.warns(UserWarning, match="3 environments take 3 steps at a time"):
        make(env=DummyVecEnv([lambda: IdentityEnv(3)] * 3), target_update_interval=2)


def test_what_a_reset_returns_is_no_observation():
    model = make(env="CartPole-v1")
    with pytest.raises(ValueError, match=r"write observation, info = env.reset\(\)"):
        model.posterior((np.zeros(4, np.float32), {}))


def test_observations_of_another_shape():
    model = make(env="CartPole-v1")
    with pytest.raises(ValueError, match="Unexpected observation shape"):
        model.predict(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="Unexpected observation shape"):
        model.posterior(np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match="finite numbers"):
        model.posterior(np.full(4, np.nan, np.float32))


def test_activations_have_two_names():
    named = make(policy_kwargs={"activation_fn": "tanh", "net_arch": [4]})
    by_class = make(policy_kwargs={"activation_fn": torch.nn.Tanh, "net_arch": (4,)})
    values = [model.posterior(np.array(0)).mean for model in (named, by_class)]
    np.testing.assert_array_equal(*values)


def test_every_option_of_valuetracks_class_has_a_place():
    here = set(option_defaults(LKTDOptions))
    assert here | set(NAMED_BY_SB3) == set(LKTDOptions.model_fields)
    model = make(step_size=2e-5)
    assert model.step_size == 2e-5
    assert model.pseudo_population == LKTDOptions().pseudo_population
    assert not hasattr(make(SGLD), "alpha")


@pytest.mark.parametrize("missing", ["tqdm", "rich"])
def test_a_progress_bar_without_its_packages_names_the_extra(missing, monkeypatch):
    model = make()
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r"tqdm and rich: pip install 'valuetrack\[sb3\]'"):
        model.learn(1, progress_bar=True)


def test_the_extra_brings_what_sb3_needs():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    extra = project["project"]["optional-dependencies"]["sb3"]
    assert {"tqdm", "rich"} <= {re.split("[<>=]", each)[0] for each in extra}
    assert "tensorboard>=2.21" in extra  # those before import pkg_resources, gone in setuptools 82


def test_every_sampler_of_the_registry_is_here():
    own = {name: kind for name, kind in registry.AGENTS.items() if kind.is_sampler}
    assert {name: kind.agent for name, kind in ALGORITHMS.items()} == own
    assert all(ALGORITHMS[name].__name__ == kind.__name__ for name, kind in own.items())


def test_without_sb3_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    monkeypatch.delitem(sys.modules, "valuetrack.sb3")
    with pytest.raises(ImportError, match=r"pip install 'valuetrack\[sb3\]'"):
        __import__("valuetrack.sb3")
