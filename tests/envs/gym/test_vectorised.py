"""Vectorised environments: the same transitions, whatever holds the environments."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tests.small_envs import Broken, Counter, Marked, Spaced
from valuetrack.envs.gym.make import make_vectorised
from valuetrack.envs.gym.vectorised import SequentialEnvs, WrappedVectorEnv

PARTS = spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)))
Paired = functools.partial(Spaced, PARTS)
SEEDS = [11, 12, 13]
STEPS = 60


def vector(builder, mode, count=3):
    return WrappedVectorEnv(SyncVectorEnv([builder] * count, autoreset_mode=mode))


def legal_action(rng, mask):
    return int(rng.choice(np.flatnonzero(mask))) if mask.any() else 0


def transitions(envs, seeds=SEEDS, steps=STEPS):
    """Walk at random, each environment with numbers of its own; return each one's transitions."""
    rngs = [np.random.default_rng(seed) for seed in seeds]
    current = envs.reset(seeds)
    real_before = np.ones(envs.count, bool)
    over_before = np.zeros(envs.count, bool)
    walked = [[] for _ in seeds]
    for _ in range(2 * steps):
        actions = np.zeros(envs.count, int)
        for i in range(envs.count):
            # Where the next step is only a reset, nothing is drawn.
            waits = isinstance(envs, WrappedVectorEnv) and envs.mode is AutoresetMode.NEXT_STEP
            if not (waits and over_before[i]):
                actions[i] = legal_action(rngs[i], current.mask[i])
        result = envs.step(actions)
        assert not (result.terminated & result.truncated).any()
        assert result.reward.dtype == np.float32
        for i in np.flatnonzero(result.is_transition):
            walked[i].append(
                [
                    current.observation[i].tolist(),
                    int(actions[i]),
                    float(result.reward[i]),
                    result.next.observation[i].tolist(),
                    result.next.mask[i].tolist(),
                    bool(result.terminated[i]),
                    bool(result.truncated[i]),
                ]
            )
        current, real_before = result.current, result.is_transition
        over_before = (result.terminated | result.truncated) & real_before
    return [walk[:steps] for walk in walked]


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.value)
@pytest.mark.parametrize("builder", [Counter, Marked])
def test_all_kinds_yield_the_same_transitions(builder, mode):
    expected = transitions(SequentialEnvs([builder() for _ in SEEDS]))
    assert transitions(vector(builder, mode)) == expected
    assert all(len(walk) == STEPS for walk in expected)
    assert expected[0] != expected[1]


@pytest.mark.parametrize("mode", [None, *AutoresetMode], ids=str)
@pytest.mark.parametrize("space", [Counter, Marked, Paired])
def test_the_observation_as_it_was_given_is_the_encoded_one(space, mode):
    envs = SequentialEnvs([space(), space()]) if mode is None else vector(space, mode, 2)
    walk, differ = np.random.default_rng(0), 0
    seen = [envs.reset([0, 1])]
    for _ in range(40):
        actions = np.array([legal_action(walk, mask) for mask in seen[-1].mask])
        result = envs.step(actions)
        seen = [result.next, result.current]
        for one, i in itertools.product(seen, range(2)):
            np.testing.assert_array_equal(envs.encoder.encode(one.given(i)), one.observation[i])
        differ += (result.next.observation != result.current.observation).any()
    assert bool(differ) == (mode is not AutoresetMode.NEXT_STEP)


def test_a_counters_transitions_are_right():
    (walk,) = transitions(SequentialEnvs([Counter()]), [5])
    ends = []
    for (s, a, r, after, mask, terminated, truncated), following in itertools.pairwise(walk):
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
    assert both > 0  # the environment said both, and the result only the one


@pytest.mark.parametrize("mode", [None, *AutoresetMode], ids=str)
def test_masks_at_the_end_and_at_the_fresh_start(mode):
    count = 2
    envs = SequentialEnvs([Marked(), Marked()]) if mode is None else vector(Marked, mode, count)
    current = envs.reset([0, 1])
    np.testing.assert_array_equal(current.mask, [[True, True, True, False]] * 2)
    result = envs.step(np.array([2, 1]))
    np.testing.assert_array_equal(result.current.mask[0], [True, False, True, False])
    result = envs.step(np.array([2, 0]))
    np.testing.assert_array_equal(result.terminated, [True, False])
    assert not result.next.mask[0].any()
    assert result.next.observation[0, -1] == 1
    aside = [True, False, True, False]
    np.testing.assert_array_equal(result.next.mask[1], aside)
    np.testing.assert_array_equal(result.current.mask[1], aside)  # where nothing ended
    assert result.current.observation[1, -1] == -0.5
    if mode is AutoresetMode.NEXT_STEP:
        assert result.is_transition.all()
        result = envs.step(np.array([0, 2]))
        np.testing.assert_array_equal(result.is_transition, [False, True])
        assert result.reward[0] == 0
        assert result.current.observation[1, -1] == 0
    else:
        assert result.is_transition.all()
    np.testing.assert_array_equal(result.current.mask[0], [True, True, True, False])
    assert result.current.observation[0, -1] == 0


@pytest.mark.parametrize("mode", [None, *AutoresetMode], ids=str)
def test_an_empty_mask_is_for_terminal_states(mode):
    class Stuck(Marked):
        def step(self, action):
            observation, *_ = super().step(action)
            return observation, 0.0, False, True, {"action_mask": np.zeros(4, bool)}

    envs = SequentialEnvs([Stuck()]) if mode is None else vector(Stuck, mode, 1)
    envs.reset([0])
    with pytest.raises(ValueError, match="allows no action in a state that is not terminal"):
        envs.step(np.array([0]))


def test_the_same_seeds_start_the_same_way():
    envs = SequentialEnvs([Counter(low=0), Counter(low=0)])
    first = envs.reset([3, 4])
    envs.step(np.array([0, 0]))
    again = envs.reset([3, 4])
    np.testing.assert_array_equal(first.observation, again.observation)
    envs.reset([5, 6])
    starts = {tuple(envs.reset([seed, 0]).observation[0]) for seed in range(20)}
    assert len(starts) == 3


def test_a_reset_forgets_that_an_episode_was_over():
    envs = vector(lambda: Counter(last=1), AutoresetMode.NEXT_STEP, 1)
    envs.reset([0])
    envs.step(np.array([0]))
    envs.reset([0])
    assert envs.step(np.array([0])).is_transition.all()


def test_actions_are_counted_from_the_start_of_their_space():
    for envs in (SequentialEnvs([Counter()]), vector(Counter, AutoresetMode.SAME_STEP, 1)):
        assert (envs.num_actions, envs.actions.first) == (3, 5)
        at = envs.reset([0]).observation[0, 0]
        assert envs.step(np.array([2])).next.observation[0, 0] == at + 3


@pytest.mark.parametrize("reward", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("mode", [None, AutoresetMode.SAME_STEP], ids=str)
def test_rewards_that_are_no_numbers_are_refused(mode, reward):
    def builder():
        return Broken(reward=reward)

    envs = SequentialEnvs([builder()]) if mode is None else vector(builder, mode, 1)
    envs.reset([0])
    envs.step(np.array([0]))
    envs.step(np.array([0]))
    with pytest.raises(ValueError, match=f"no finite number: {reward}"):
        envs.step(np.array([0]))


def test_closing_closes_every_environment():
    closed = []

    class Closing(Counter):
        def close(self):
            closed.append(self)

    make_vectorised(Closing, 3).close()
    assert len(closed) == 3
    vector(Closing, AutoresetMode.SAME_STEP, 2).close()
    assert len(closed) == 5


def test_forms_of_environments():
    assert isinstance(make_vectorised(Counter(), 1), SequentialEnvs)
    assert isinstance(make_vectorised(SyncVectorEnv([Counter] * 2), 2), WrappedVectorEnv)
    built = make_vectorised(Counter, 2)
    assert built.envs[0] is not built.envs[1]
    by_id = make_vectorised("FrozenLake-v1", 2, is_slippery=False)
    assert (by_id.count, by_id.num_actions, by_id.encoder.shape) == (2, 4, (16,))
    np.testing.assert_array_equal(by_id.reset([0, 1]).observation.argmax(axis=1), [0, 0])
    following = by_id.step(np.array([1, 2])).next.observation
    np.testing.assert_array_equal(following.argmax(axis=1), [4, 1])


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
def test_what_makes_no_environments(env, count, telling):
    with pytest.raises((ValueError, TypeError)) as error:
        make_vectorised(env, count)
    text = str(error.value)
    assert telling in text
    assert text.endswith(".")
    assert "\n" not in text


def test_options_that_an_environment_does_not_have():
    with pytest.raises(ValueError, match="FrozenLake-v1 cannot be made") as error:
        make_vectorised("FrozenLake-v1", 1, depth=3)
    assert "\n" not in str(error.value)


def test_every_environment_of_a_builder_is_checked():
    made = iter([Counter(), 5])
    with pytest.raises(TypeError, match=r"returned no gymnasium\.Env but a int"):
        make_vectorised(lambda: next(made), 2)
