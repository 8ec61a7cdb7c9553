"""Intervals for the value, solved from SB3's replay buffer."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from gymnasium import spaces
from stable_baselines3.common.envs import IdentityEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from tests.sb3.small import make
from tests.small_envs import Counter, Spaced
from valuetrack.sb3 import LKTD
from valuetrack.sb3.memory import ModelSource

TABULAR = {"policy_kwargs": {"net_arch": []}, "gamma": 0.0, "exploration_fraction": 1.0}


@pytest.mark.parametrize("environments", [1, 3])
def test_the_values_are_right_whatever_was_learned(environments):
    """The identity pays 1 for the right action and 0 for a wrong one."""
    env = DummyVecEnv([lambda: IdentityEnv(3, ep_length=20)] * environments)
    model = make(env=env, **TABULAR).learn(240)
    q = model.posterior(np.arange(3))
    assert np.abs(q.latest - np.eye(3)).max() > 0.3  # it has learned next to nothing,
    np.testing.assert_allclose(q.solved.mean, np.eye(3), atol=0.15)  # and its buffer knows
    low, high = q.interval()
    assert ((low < high) & (high - low < 1)).all()
    assert np.mean((low <= np.eye(3)) & (np.eye(3) <= high)) > 0.7  # 1 is also the most
    one = model.posterior(np.array(1)).interval()
    np.testing.assert_allclose(one, np.stack([low, high])[:, 1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_steps": 3},
        {
            "optimize_memory_usage": True,
            "replay_buffer_kwargs": {"handle_timeout_termination": False},
        },
    ],
    ids=["plain", "n-step", "one array"],
)
@pytest.mark.parametrize("steps", [40, 100], ids=["filling", "full"])
def test_the_transitions_are_those_that_happened(options, steps):
    """A counter's next observation is one more than the last, unless an episode has ended."""
    model = make(env=Counter(last=9, horizon=4), buffer_size=60, **options).learn(steps)
    found = ModelSource(model).memory(0)
    full = options.get("optimize_memory_usage") and steps > 60
    assert len(found.reward) == min(steps, 60) - bool(full)
    again = model.replay_buffer.observations[: model.replay_buffer.size(), 0]
    if not full:
        np.testing.assert_array_equal(found.observation, again)
    drawn = model._draw(1, 200)
    seen = {(*row, int(a)) for row, a in zip(found.observation, found.action, strict=True)}
    batch = zip(drawn.observation[0], drawn.action[0], strict=True)
    assert {(*row, int(a)) for row, a in batch} <= seen
    assert set(np.unique(found.discount)) <= {np.float32(0.0), np.float32(0.99)}


def test_values_of_several_steps_are_solved_from_the_memory_alone():
    """Its mean has learned another equation, so it does not count as data of its own."""
    one, three = (make(n_steps=n, buffer_size=60).learn(100) for n in (1, 3))
    pools = [ModelSource(m).member(0).pool._replace(filled=np.int32(100)) for m in (one, three)]
    assert ModelSource(one).seen(0, pools[0]) > 1.0 == ModelSource(three).seen(0, pools[1])
    assert three.learner.functions.options.n_step == 3
    assert make(gamma=0.5).learner.functions.options.discount == 0.5  # of the guard's bound


def test_dicts_and_normalised_observations():
    space = spaces.Dict({"near": spaces.Discrete(2), "far": spaces.Box(0, 1, (2,))})
    with_dict = make(env=Spaced(space), policy="MultiInputPolicy").learn(60)
    observation = with_dict.get_env().reset()
    assert np.isfinite(with_dict.posterior(observation).interval()).all()
    env = VecNormalize(DummyVecEnv([Counter]))
    model = make(env=env).learn(60)
    found = ModelSource(model).memory(0)
    stored = model.replay_buffer.observations[:60, 0]
    np.testing.assert_allclose(found.observation, env.normalize_obs(stored), rtol=1e-5)
    rewards = model.replay_buffer.rewards[:60, 0]
    np.testing.assert_allclose(found.reward, env.normalize_reward(rewards), rtol=1e-5)


def test_without_a_buffer_the_way_out_is_named(tmp_path):
    model = make()
    with pytest.raises(ValueError, match=r"call learn first, or ask for kind='credible'"):
        model.posterior(np.array(1)).interval()
    model.learn(100)
    before = model.posterior(np.array(1))
    expected = model.posterior(np.array(1)).interval()
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    again = LKTD.load(tmp_path / "model", env=IdentityEnv(3))
    with pytest.raises(ValueError, match=r"load_replay_buffer.*or ask for kind='credible'"):
        again.posterior(np.array(1)).interval()
    again.load_replay_buffer(tmp_path / "buffer")
    np.testing.assert_allclose(again.posterior(np.array(1)).interval(), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="no replay memory behind it"):
        model.policy.posterior(np.array(1)).interval()
    model.learn(20, reset_num_timesteps=False)
    with pytest.raises(ValueError, match="has learned on since"):
        before.interval()
