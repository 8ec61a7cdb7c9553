"""Small models, and when two of them are the same."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from gymnasium import spaces
from stable_baselines3.common.envs import IdentityEnv

from valuetrack.sb3 import ALGORITHMS, LKTD

EVERY = pytest.mark.parametrize("name", ALGORITHMS)

SMALL = {
    "policy_kwargs": {"net_arch": [16]},
    "step_size": 3e-5,
    "batch_size": 16,
    "buffer_size": 300,
    "learning_starts": 20,
    "samples": 6,
    "thinning": 2,
}
QUICK = {"lktd": 5e-3, "sgld": 5e-3, "sghmc": 5e-4}
"""A step size with which each learns a small task in a few hundred updates."""


def make(kind=LKTD, env=None, policy="MlpPolicy", **changes):
    env = IdentityEnv(3) if env is None else env
    return kind(policy, env, **{**SMALL, "seed": 0, **changes})


def arrays(model):
    return {name: tensor.numpy() for name, tensor in model.learner.state_dict().items()}


def same_bits(one, other):
    mine, others = arrays(one), arrays(other)
    assert mine.keys() == others.keys()
    return all(np.array_equal(mine[name], others[name], equal_nan=True) for name in mine)


def every_observation(env):
    assert isinstance(env.observation_space, spaces.Discrete)
    return np.arange(env.observation_space.n)
