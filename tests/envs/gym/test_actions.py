"""Several choices at once, numbered."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from tests.small_envs import Levers, Spaced
from valuetrack.api.policy import PolicyError
from valuetrack.envs.gym.actions import Actions
from valuetrack.registry import DQN, ValueTracker, load

SMALL = {"hidden": (8,), "batch_size": 16, "learning_starts": 16, "learning_rate": 1e-2}


@pytest.mark.parametrize(
    ("space", "count"),
    [
        (spaces.Discrete(3, start=5), 3),
        (spaces.MultiDiscrete([2, 3], start=[1, -1]), 6),
        (spaces.MultiDiscrete([[2, 2], [3, 1]]), 12),
        (spaces.MultiBinary(3), 8),
    ],
)
def test_every_action_has_a_number(space, count):
    actions = Actions.of(space)
    assert actions.count == len(set(map(str, actions.names))) == count
    given = [actions.given(np.int64(number)) for number in range(count)]
    assert all(space.contains(one) for one in given)
    assert [actions.number(one) for one in given] == list(range(count))
    np.testing.assert_array_equal(actions.given(np.arange(count)), np.stack(given))
    for wrong in (None, "left", [0.5] * 6, np.full(space.shape, 99)):
        assert actions.number(wrong) is None


def test_the_best_combination_is_learned_and_saved(tmp_path):
    agent = DQN(Levers, exploration_steps=200, **SMALL).learn(400)
    action, _ = agent.predict([1.0])
    assert action.tolist() == [2, 1]
    assert agent.action_space.contains(action)
    assert agent.predict(np.ones((3, 1)))[0].shape == (3, 2)
    assert agent.evaluate(2).tolist() == [[1, 1]]
    agent.save(tmp_path / "agent.vt")
    assert load(tmp_path / "agent.vt", env=Levers).predict([1.0])[0].tolist() == [2, 1]


def test_masks_have_a_part_for_each_choice():
    agent = DQN(functools.partial(Levers, locked=True), **SMALL).learn(40)
    for action, _ in (agent.predict([1.0], action_mask=mask) for mask in ((([1, 0]), [0, 0, 1]),)):
        assert action.tolist() == [1, 3]
    assert (agent.trainer.memory(0).action % 3 != 0).all()
    assert agent.evaluate(2).tolist() == [[0, 0]]


def test_vector_environments():
    agent = DQN(SyncVectorEnv([Levers] * 2), **SMALL).learn(16)
    assert set(agent.trainer.memory(0).action.tolist()) <= set(range(6))


def test_a_given_policy_returns_the_environments_own_actions():
    tracker = ValueTracker(Levers, lambda seen: [2, 1], hidden=(8,), learning_starts=8)
    tracker.learn(16)
    assert (tracker.trainer.memory(0).action == 3).all()
    for wrong in ([0, 1], 3, "left"):
        with pytest.raises(PolicyError, match=r"an action is one of MultiDiscrete"):
            ValueTracker(Levers, lambda seen, wrong=wrong: wrong).learn(4)


def test_too_many_combinations_are_refused():
    class Many(Spaced):
        def __init__(self):
            super().__init__(spaces.Discrete(2))
            self.action_space = spaces.MultiDiscrete([20, 20, 20])

    with pytest.raises(ValueError, match="8,000 combinations of choices, and up to 1,024"):
        DQN(Many)


def test_combinations_are_in_the_order_of_their_numbers():
    actions = Actions.of(spaces.MultiDiscrete([2, 3]))
    combinations = list(itertools.product(range(2), range(3)))
    assert actions.names == [str(one) for one in combinations]
    mask = actions.flat_mask(([1, 0], [1, 0, 1]))
    assert mask.tolist() == [a == 0 and b != 1 for a, b in combinations]
