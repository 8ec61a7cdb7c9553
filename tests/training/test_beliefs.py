"""What a learner believed of its episodes, and what came of them."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.small_envs import Counter
from tests.training.test_trainers import Pixel
from valuetrack import networks, samplers, schedules
from valuetrack.envs.gym.make import make_vectorised
from valuetrack.learner import acted, build_learner
from valuetrack.measurement import mean_squared_error, q_learning
from valuetrack.training import beliefs
from valuetrack.training.beliefs import Belief, Ended
from valuetrack.training.compiled_trainer import CompiledTrainer
from valuetrack.training.host_trainer import HostTrainer
from valuetrack.training.trainer import Settings

GAMMA = 0.5


def played(values, follows, rewards, truncated, xp=np) -> Ended:
    """Return the sums over one episode; there is a value for the state after the last step, too."""
    number = xp.asarray
    belief = beliefs.begun(number([np.float32(values[0])]), number([follows[0]]))
    for step, reward in enumerate(rewards):
        belief = beliefs.paid(belief, number([np.float32(reward)]), GAMMA)
        value = number([np.float32(values[step + 1])])
        if step + 1 < len(rewards):
            belief = beliefs.chosen(belief, value, number([follows[step + 1]]))
    return beliefs.ended(belief, number([True]), number([truncated]), value)


@pytest.mark.parametrize("xp", [np, jnp])
@pytest.mark.parametrize(
    ("follows", "truncated", "came", "reach"),
    [
        ([1, 1, 1], False, 4 + 0.5 * 2 + 0.25 * 8, 1),  # to the end
        ([1, 1, 1], True, 4 + 0.5 * 2 + 0.25 * 8 + 0.125 * 40, 1 - 0.125),  # and cut off there
        ([1, 1, 0], False, 4 + 0.5 * 2 + 0.25 * 30, 1 - 0.25),  # explores at the third step
        ([1, 0, 0], True, 4 + 0.5 * 20, 1 - 0.5),
        ([0, 1, 1], False, 10, 0),
    ],
)
def test_an_episode_counts_until_the_policy_is_left(xp, follows, truncated, came, reach):
    found = played([10, 20, 30, 40], [bool(f) for f in follows], [4, 2, 8], truncated, xp)
    gap = 10 - came
    expected = (1, 10, 7, 49, reach**2, reach * gap, gap**2)
    np.testing.assert_allclose([float(part) for part in found], expected)


def test_an_episode_whose_start_is_unknown_is_left_out():
    belief = beliefs.begun(np.float32([1, 2]), np.array([True, True]))
    found = beliefs.ended(
        beliefs.forgotten(belief), np.array([True, True]), np.zeros(2, bool), np.zeros(2)
    )
    assert [float(part) for part in found] == [0] * 7


def test_right_values_have_no_gap_however_much_is_explored():
    """Walk on a line of ten states; the greedy policy goes right and is paid noisy rewards."""
    generator, length, epsilon = np.random.default_rng(0), 10, 0.3
    truth = np.array([sum(GAMMA**k for k in range(length - s)) for s in range(length + 1)])
    for excess in (0.0, 3.0):  # values that are all too large by that are found out
        gaps, reaches = [], []
        for _ in range(2_000):
            values = [*(truth[:-1] + excess), 0.0]
            follows = list(generator.random(length) > epsilon)
            end = follows.index(False) if False in follows else length
            rewards = 1 + generator.normal(size=length)
            rewards[end:] -= 5  # what comes of exploring does not matter
            found = played(values, follows, rewards, truncated=False)
            gaps.append(float(found.reached_gaps))
            reaches.append(float(found.squared_reaches))
        estimate = np.sum(gaps) / np.sum(reaches)
        error = np.std(np.array(gaps) - estimate * np.array(reaches)) * np.sqrt(2_000)
        assert abs(estimate - excess) < 5 * error / np.sum(reaches)
        assert error / np.sum(reaches) < 0.2


@pytest.mark.parametrize("following", ["greedy", "taken", "expected"])
def test_the_value_is_that_of_the_policy_it_is_of(following):
    q, mask = jnp.array([[1.0, 5.0, 9.0]]), jnp.array([[True, True, False]])
    explores, greedy = (acted(q, mask, jnp.array([[u, 0.0]]), 0.4, following) for u in (0.1, 0.9))
    assert (int(explores.action[0]), int(greedy.action[0])) == (0, 1)
    expected = {"greedy": (5, 5), "taken": (1, 5), "expected": (4.2, 4.2)}[following]
    np.testing.assert_allclose([explores.value[0], greedy.value[0]], expected, rtol=1e-6)
    assert bool(explores.follows[0]) is (following != "greedy")
    assert bool(greedy.follows[0])


@functools.cache
def learner_and_settings(inputs):
    network = networks.mlp(inputs, 3, (4,))
    loss = mean_squared_error(q_learning(network.apply))
    learner = build_learner(network, samplers.adam(loss, learning_rate=1e-3), target_every=5)
    return learner, Settings(
        exploration=schedules.constant(0.0),
        discount=GAMMA,
        steps_per_update=5,
        replay_capacity=100,
        learning_starts=1_000,
    )


def make(kind):
    """Return a trainer that collects greedily and never learns, one environment per seed."""
    if kind == "host":
        return HostTrainer(*learner_and_settings(2), make_vectorised(Counter, 2), (3, 4))
    return CompiledTrainer(*learner_and_settings(1), Pixel((1,), np.float32), (3, 4))


@pytest.mark.parametrize("kind", ["host", "compiled"])
def test_trainers_sum_up_what_was_believed_and_what_came(kind):
    trainer = make(kind)
    trainer.run(7)
    trainer.run(9)  # 80 steps
    trace = trainer.take_trace()
    for seed in range(2):
        memory, state = trainer.memory(seed), trainer.member(seed).learner
        values = trainer.learner.values(jax.random.key(0), state, jnp.asarray(memory.observation))
        best = np.asarray(values)[0].max(axis=1)
        episodes = ends_of(kind, memory)
        assert len(episodes) == trace.episodes[seed] == trace.believed[seed] > 15
        starts = [0, *(end + 1 for end in episodes)]
        came = [
            sum(GAMMA**k * r for k, r in enumerate(memory.reward[a : b + 1]))
            for a, b in zip(starts, episodes, strict=False)
        ]
        np.testing.assert_allclose(trace.discounted_returns[seed], sum(came), rtol=1e-5)
        np.testing.assert_allclose(trace.squared_returns[seed], np.sum(np.square(came)), rtol=1e-5)
        believed = best[starts[: len(episodes)]]
        np.testing.assert_allclose(trace.start_values[seed], believed.sum(), rtol=1e-4)
    value, discounted = trace.beliefs()
    np.testing.assert_allclose(value, trace.start_values / trace.believed)
    np.testing.assert_allclose(discounted, trace.discounted_returns / trace.believed)


def ends_of(kind, memory):
    """Return the rows at which episodes end."""
    if kind == "compiled":  # after four steps
        return list(range(3, len(memory.reward), 4))
    following = memory.next_observation
    return np.flatnonzero((memory.discount == 0) | (following[:, 1] >= 4)).tolist()


def test_what_was_believed_is_saved_and_old_files_tell_nothing():
    trainer, again, old = make("compiled"), make("compiled"), make("compiled")
    trainer.run(1)  # in the middle of an episode
    saved = trainer.arrays()
    again.restore(saved)
    kept = {name: array for name, array in saved.items() if not name.startswith("loop.belief.")}
    assert len(saved) - len(kept) == len(Belief._fields)
    old.restore(kept)
    for each in (trainer, again, old):
        each.take_trace()
        each.run(1)
    first, same, less = (each.take_trace() for each in (trainer, again, old))
    for one, other in zip(first, same, strict=True):
        np.testing.assert_array_equal(one, other)
    assert list(less.believed) == [count - 1 for count in first.believed]
    assert (first.believed > 0).all()
