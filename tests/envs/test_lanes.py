"""Lanes: the same transitions, whatever holds the environments."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tests.small_envs import Broken, Counter, Marked
from valuetrack.envs.lanes import SingleLanes, VectorLanes, make_lanes

SEEDS = [11, 12, 13]
STEPS = 60


def vector(builder, mode, count=3):
    return VectorLanes(SyncVectorEnv([builder] * count, autoreset_mode=mode))


def legal_action(rng, mask):
    return int(rng.choice(np.flatnonzero(mask))) if mask.any() else 0


def transitions(lanes, seeds=SEEDS, steps=STEPS):
    """Walk at random, each lane with numbers of its own; return each lane's real transitions."""
    rngs = [np.random.default_rng(seed) for seed in seeds]
    places = lanes.reset(seeds)
    real_before = np.ones(lanes.count, bool)
    over_before = np.zeros(lanes.count, bool)
    walked = [[] for _ in seeds]
    for _ in range(2 * steps):
        actions = np.zeros(lanes.count, int)
        for lane in range(lanes.count):
            # Where the next step is only a reset, nothing is drawn.
            waits = isinstance(lanes, VectorLanes) and lanes.mode is AutoresetMode.NEXT_STEP
            if not (waits and over_before[lane]):
                actions[lane] = legal_action(rngs[lane], places.mask[lane])
        arrived = lanes.step(actions)
        assert not (arrived.terminated & arrived.truncated).any()
        assert arrived.reward.dtype == np.float32
        for lane in np.flatnonzero(arrived.real):
            walked[lane].append(
                [
                    places.observation[lane].tolist(),
                    int(actions[lane]),
                    float(arrived.reward[lane]),
                    arrived.reached.observation[lane].tolist(),
                    arrived.reached.mask[lane].tolist(),
                    bool(arrived.terminated[lane]),
                    bool(arrived.truncated[lane]),
                ]
            )
        places, real_before = arrived.going_on, arrived.real
        over_before = (arrived.terminated | arrived.truncated) & real_before
    return [lane[:steps] for lane in walked]


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.value)
@pytest.mark.parametrize("builder", [Counter, Marked])
def test_all_lanes_yield_the_same_transitions(builder, mode):
    expected = transitions(SingleLanes([builder() for _ in SEEDS]))
    assert transitions(vector(builder, mode)) == expected
    assert all(len(lane) == STEPS for lane in expected)
    assert expected[0] != expected[1]


def test_a_counters_transitions_are_right():
    (lane,) = transitions(SingleLanes([Counter()]), [5])
    ends = []
    for (s, a, r, after, mask, terminated, truncated), following in itertools.pairwise(lane):
        assert after == [s[0] + a + 1, s[1] + 1]
        assert r == pytest.approx(after[0] / 10)
        assert mask == [True] * 3
        assert terminated == (after[0] >= 9)
        assert truncated == (after[1] >= 4 and not terminated)
        ends.append((terminated, truncated, after[0] >= 9 and after[1] >= 4))
        assert following[0] == after or ((terminated or truncated) and following[0][1] == 0)
    terminated, truncated, both = np.sum(ends, axis=0)
    assert terminated > 0
    assert truncated > 0
    assert both > 0  # the environment said both, and the lane only the one


@pytest.mark.parametrize("mode", [None, *AutoresetMode], ids=str)
def test_masks_at_the_end_and_at_the_fresh_start(mode):
    count = 2
    lanes = SingleLanes([Marked(), Marked()]) if mode is None else vector(Marked, mode, count)
    places = lanes.reset([0, 1])
    np.testing.assert_array_equal(places.mask, [[True, True, True, False]] * 2)
    arrived = lanes.step(np.array([2, 1]))
    np.testing.assert_array_equal(arrived.going_on.mask[0], [True, False, True, False])
    arrived = lanes.step(np.array([2, 0]))
    np.testing.assert_array_equal(arrived.terminated, [True, False])
    assert not arrived.reached.mask[0].any()
    assert arrived.reached.observation[0, -1] == 1
    aside = [True, False, True, False]
    np.testing.assert_array_equal(arrived.reached.mask[1], aside)
    np.testing.assert_array_equal(arrived.going_on.mask[1], aside)  # where nothing ended
    assert arrived.going_on.observation[1, -1] == -0.5
    if mode is AutoresetMode.NEXT_STEP:
        assert arrived.real.all()
        arrived = lanes.step(np.array([0, 2]))
        np.testing.assert_array_equal(arrived.real, [False, True])
        assert arrived.reward[0] == 0
        assert arrived.going_on.observation[1, -1] == 0
    else:
        assert arrived.real.all()
    np.testing.assert_array_equal(arrived.going_on.mask[0], [True, True, True, False])
    assert arrived.going_on.observation[0, -1] == 0


@pytest.mark.parametrize("mode", [None, *AutoresetMode], ids=str)
def test_an_empty_mask_is_for_terminal_states(mode):
    class Stuck(Marked):
        def step(self, action):
            observation, *_ = super().step(action)
            return observation, 0.0, False, True, {"action_mask": np.zeros(4, bool)}

    lanes = SingleLanes([Stuck()]) if mode is None else vector(Stuck, mode, 1)
    lanes.reset([0])
    with pytest.raises(ValueError, match="allows no action in a state that is not terminal"):
        lanes.step(np.array([0]))


def test_the_same_seeds_start_the_same_way():
    lanes = SingleLanes([Counter(low=0), Counter(low=0)])
    first = lanes.reset([3, 4])
    lanes.step(np.array([0, 0]))
    again = lanes.reset([3, 4])
    np.testing.assert_array_equal(first.observation, again.observation)
    lanes.reset([5, 6])
    starts = {tuple(lanes.reset([seed, 0]).observation[0]) for seed in range(20)}
    assert len(starts) == 3


def test_a_reset_forgets_that_an_episode_was_over():
    lanes = vector(lambda: Counter(last=1), AutoresetMode.NEXT_STEP, 1)
    lanes.reset([0])
    lanes.step(np.array([0]))
    lanes.reset([0])
    assert lanes.step(np.array([0])).real.all()


def test_actions_are_counted_from_the_start_of_their_space():
    for lanes in (SingleLanes([Counter()]), vector(Counter, AutoresetMode.SAME_STEP, 1)):
        assert (lanes.actions, lanes.offset) == (3, 5)
        at = lanes.reset([0]).observation[0, 0]
        assert lanes.step(np.array([2])).reached.observation[0, 0] == at + 3


@pytest.mark.parametrize("reward", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("mode", [None, AutoresetMode.SAME_STEP], ids=str)
def test_rewards_that_are_no_numbers_are_refused(mode, reward):
    def builder():
        return Broken(reward=reward)

    lanes = SingleLanes([builder()]) if mode is None else vector(builder, mode, 1)
    lanes.reset([0])
    lanes.step(np.array([0]))
    lanes.step(np.array([0]))
    with pytest.raises(ValueError, match=f"no finite number: {reward}"):
        lanes.step(np.array([0]))


def test_closing_closes_every_environment():
    closed = []

    class Closing(Counter):
        def close(self):
            closed.append(self)

    make_lanes(Closing, 3).close()
    assert len(closed) == 3
    vector(Closing, AutoresetMode.SAME_STEP, 2).close()
    assert len(closed) == 5


def test_forms_of_environments():
    assert isinstance(make_lanes(Counter(), 1), SingleLanes)
    assert isinstance(make_lanes(SyncVectorEnv([Counter] * 2), 2), VectorLanes)
    built = make_lanes(Counter, 2)
    assert built.envs[0] is not built.envs[1]
    by_id = make_lanes("FrozenLake-v1", 2, is_slippery=False)
    assert (by_id.count, by_id.actions, by_id.inputs.shape) == (2, 4, (16,))
    np.testing.assert_array_equal(by_id.reset([0, 1]).observation.argmax(axis=1), [0, 0])
    reached = by_id.step(np.array([1, 2])).reached.observation
    np.testing.assert_array_equal(reached.argmax(axis=1), [4, 1])


@pytest.mark.parametrize(
    ("env", "count", "telling"),
    [
        ("NoSuch-v0", 1, "There is no environment 'NoSuch-v0'"),
        ("no such thing", 1, "There is no environment 'no such thing'"),
        ("nowhere/Some-v0", 1, "There is no environment 'nowhere/Some-v0'"),
        ("no_such_module:Some-v0", 1, "There is no environment 'no_such_module:Some-v0'"),
        ("mine:Some-v0", 1, "Import the module 'mine' first"),
        (Counter(), 2, "One environment object cannot serve 2 runs"),
        (SyncVectorEnv([Counter] * 2), 3, "has 2 environments, and 3 are needed"),
        (3.5, 1, "not float"),
        (None, 1, "not NoneType"),
        (lambda: "CartPole-v1", 1, "returned no gymnasium.Env but a str"),
    ],
    ids=[
        "id",
        "text",
        "namespace",
        "module",
        "cure",
        "object",
        "vector",
        "number",
        "none",
        "builder",
    ],
)
def test_what_makes_no_lanes(env, count, telling):
    with pytest.raises((ValueError, TypeError)) as error:
        make_lanes(env, count)
    text = str(error.value)
    assert telling in text
    assert text.endswith(".")
    assert "\n" not in text


def test_options_that_an_environment_does_not_have():
    with pytest.raises(ValueError, match="FrozenLake-v1 cannot be made") as error:
        make_lanes("FrozenLake-v1", 1, depth=3)
    assert "\n" not in str(error.value)


def test_every_environment_of_a_builder_is_checked():
    made = iter([Counter(), 5])
    with pytest.raises(TypeError, match=r"returned no gymnasium\.Env but a int"):
        make_lanes(lambda: next(made), 2)
