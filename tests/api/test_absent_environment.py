"""An agent is asked where its environment is missing."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import valuetrack as vt
from tests.small_envs import Counter, Marked, Spaced
from valuetrack.envs.cartpole import CartPole
from valuetrack.envs.gym.absent import described, space_of

SMALL = {"hidden": (8,), "learning_starts": 20, "samples": 10, "thinning": 1, "seed": 0}
SPACES = [
    spaces.Box(0, 100, (2,), np.float32),
    spaces.Box(np.array([-np.inf, 0.1]), np.array([1.0, np.inf]), dtype=np.float64),
    spaces.Box(0, 255, (6, 6, 1), np.uint8),
    spaces.Discrete(3, start=5),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary([2, 2]),
    spaces.Tuple([spaces.Discrete(2), spaces.Dict({"a": spaces.MultiBinary(3)})]),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_space_comes_back_from_json(space):
    assert space_of(described(space)) == space


def test_what_is_no_space_of_observations_is_not_described():
    assert described(spaces.Tuple([spaces.Text(3)])) is None


@pytest.mark.parametrize("replay", [True, False])
def test_an_agent_is_asked_without_its_environment(replay, tmp_path):
    agent = vt.LKTD(Counter, **SMALL).learn(60)
    agent.save(tmp_path / "agent.vt", replay=replay)
    again = vt.load(tmp_path / "agent.vt")
    seen = np.array([[1, 2], [3, 4]], np.float32)
    np.testing.assert_array_equal(again.predict(seen)[0], agent.predict(seen)[0])
    np.testing.assert_array_equal(again.posterior(seen).samples, agent.posterior(seen).samples)
    if replay:
        low, high = again.posterior(seen).interval(0.95)
        np.testing.assert_allclose((low, high), agent.posterior(seen).interval(0.95), rtol=1e-4)
    for use in (lambda: again.learn(10), lambda: again.play(1)):
        with pytest.raises(ValueError, match="loaded without its environment"):
            use()
    again.save(tmp_path / "again.vt", replay=replay)
    gone_on = vt.load(tmp_path / "again.vt", env=Counter).learn(10)
    assert gone_on.num_timesteps > 60


def test_parts_and_environments_in_jax(tmp_path):
    vt.DQN(Marked, **SMALL).save(tmp_path / "parts.vt")
    seen = {"mark": 1, "place": np.zeros(1, np.float32)}
    assert vt.load(tmp_path / "parts.vt").predict(seen)[0] in range(4)
    agent = vt.DQN(CartPole(), **SMALL)
    agent.save(tmp_path / "jax.vt")
    pole = np.zeros(4, np.float32)
    assert vt.load(tmp_path / "jax.vt").predict(pole) == agent.predict(pole)


def test_a_picture_stays_a_picture(tmp_path):
    agent = vt.DQN(lambda: Spaced(spaces.Box(0, 255, (6, 6, 1), np.uint8)), **SMALL)
    agent.save(tmp_path / "picture.vt")
    picture = np.full((6, 6, 1), 7, np.uint8)
    assert vt.load(tmp_path / "picture.vt").predict(picture) == agent.predict(picture)
