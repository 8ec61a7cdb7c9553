"""The compiled loop: what it stores, what it draws, and what it does not share."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import as_users_compile
from valuetrack import posterior, rng, schedules
from valuetrack.agents.lktd import LKTD, LKTDOptions
from valuetrack.envs.indoor_escape import IndoorEscape, observations
from valuetrack.io.arrays import from_arrays, to_arrays
from valuetrack.learner import Task
from valuetrack.training.compiled_loop import Loop
from valuetrack.training.trainer import Clock, Settings, Trace

ENV = IndoorEscape(width=4, height=3, horizon=7)


@functools.cache
def make_loop(epsilon=0.3, room=6, **changes):
    options = LKTDOptions(
        hidden=(8,),
        init="normal",
        form="sarsa",
        step_size=1e-4,
        pseudo_population=100,
        observation_sd=0.1,
    )
    learner = LKTD.build(Task((2,), False, 4), options)
    settings = Settings(
        exploration=schedules.constant(epsilon),
        **{
            "steps_per_update": 5,
            "replay_capacity": 50,
            "batch_size": 10,
            "learning_starts": 20,
            "pool_size": 4,
            **changes,
        },
    )
    return Loop(ENV, learner, settings, jnp.asarray(observations(ENV)), room)


MANY = {"in_axes": (0, 0, None, None), "out_axes": (0, 0)}


@functools.cache
def compiled(loop):
    """Return init, collect and train of a loop, for one seed and for many, compiled once.

    Those that run cycles go from (state, clock, cycles) to (state, clock, sums over the cycles).
    """
    one = jax.tree.map(lambda leaf: leaf[0], Trace.empty(1))
    return SimpleNamespace(
        init=jax.jit(loop.init),
        collect=from_clock_to_clock(jax.jit(loop.collect), lambda state: one, 0),
        train=from_clock_to_clock(
            jax.jit(loop.train), lambda state: one, loop.settings.updates_per_cycle
        ),
        init_many=jax.jit(jax.vmap(lambda seed: loop.init(jax.random.key(seed)))),
        train_many=from_clock_to_clock(
            jax.jit(jax.vmap(loop.train, **MANY)),
            lambda state: Trace.empty(len(state.action)),
            loop.settings.updates_per_cycle,
        ),
    )


def from_clock_to_clock(run, nothing, updates):
    def advance(state, clock, cycles):
        state, trace = run(state, nothing(state), clock, cycles)
        later = Clock(clock.cycles + cycles, clock.updates + updates * cycles, clock.emptied)
        return state, later.traced(), trace

    return advance


def start(loop, seed=0):
    return compiled(loop).init(jax.random.key(seed)), Clock().traced()


def rows_of(loop, state):
    return loop.ring.unpack(state.replay)


def test_transitions_follow_the_grid():
    loop = make_loop(epsilon=1.0)
    state, clock = start(loop)
    state, clock, _ = compiled(loop).collect(state, clock, 10)
    t = jax.tree.map(np.asarray, rows_of(loop, state))
    size = np.array([4, 3])
    before = np.round(t.observation * size - 0.5).astype(int)
    after = np.round(t.next_observation * size - 0.5).astype(int)
    moves = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
    np.testing.assert_array_equal(after, before + moves[t.action])  # masked: no wall is hit
    at_goal = (after == size - 1).all(axis=1)
    np.testing.assert_array_equal(t.discount, np.where(at_goal, 0.0, np.float32(0.9)))
    # The next transition goes on at s' with the stored next action, unless the episode ended.
    goes_on = (before[1:] == after[:-1]).all(axis=1)
    np.testing.assert_array_equal(t.next_action[:-1][goes_on], t.action[1:][goes_on])
    assert goes_on.sum() > 30
    assert (before[1:][~goes_on] == 0).all()  # a new episode begins at the start


def test_the_masks_are_those_of_the_next_state():
    loop = make_loop(epsilon=1.0)
    state, clock = start(loop)
    state, _, _ = compiled(loop).collect(state, clock, 10)
    t = jax.tree.map(np.asarray, rows_of(loop, state))
    after = np.round(t.next_observation * [4, 3] - 0.5).astype(int)
    x, y = after.T
    expected = np.stack([x < 3, y < 2, x > 0, y > 0], axis=1) & ~((x == 3) & (y == 2))[:, None]
    np.testing.assert_array_equal(t.next_mask, expected)


def test_the_ring_keeps_the_newest_transitions():
    loop = make_loop()
    state, clock = start(loop)
    state, clock, _ = compiled(loop).collect(state, clock, 10)
    older = np.asarray(state.replay.numbers)
    state, clock, _ = compiled(loop).collect(state, clock, 1)
    newer = np.asarray(state.replay.numbers)
    np.testing.assert_array_equal(older[5:], newer[5:])
    assert (older[:5] != newer[:5]).any(axis=1).all()


def test_the_ring_of_values_holds_those_after_each_update():
    loop = make_loop()
    state, clock = start(loop)
    state, clock, _ = compiled(loop).collect(state, clock, 3)
    values = jax.jit(loop.learner.values)
    expected = []
    for _ in range(8):
        state, clock, _ = compiled(loop).train(state, clock, 1)
        expected.append(np.asarray(values(rng.key(0), state.learned.learner, loop.tracked)))
    kept = np.asarray(state.values)
    np.testing.assert_allclose(kept[(np.arange(2, 8)) % 6], expected[2:], rtol=1e-5, atol=1e-6)


def test_a_seed_does_not_depend_on_its_neighbours():
    loop = make_loop()

    def run(seeds):
        state = compiled(loop).init_many(jnp.asarray(seeds))
        return compiled(loop).train_many(state, Clock(cycles=4).traced(), 20)[0]

    others, together = run([7, 5, 3, 6]), run([1, 2, 3, 4])
    np.testing.assert_array_equal(
        jax.random.key_data(others.key)[2], jax.random.key_data(together.key)[2]
    )
    np.testing.assert_array_equal(others.env.cell[2], together.env.cell[2])
    np.testing.assert_array_equal(others.values[2], together.values[2])
    for i in range(4):
        for j in range(i):
            assert (together.values[i] != together.values[j]).any()
            assert (together.replay.numbers[i] != together.replay.numbers[j]).any()


def test_a_seed_that_diverges_is_flagged_and_leaves_the_others_alone():
    loop = make_loop()
    state = compiled(loop).init_many(jnp.arange(4))
    learner = state.learned.learner
    broken = jax.tree.map(lambda p: p.at[1].set(jnp.nan), learner.sampler.params)
    learner = learner._replace(sampler=learner.sampler._replace(params=broken))
    sick = state._replace(learned=state.learned._replace(learner=learner))
    clock = Clock(cycles=4).traced()
    healthy, _, _ = compiled(loop).train_many(state, clock, 20)
    result, _, _ = compiled(loop).train_many(sick, clock, 20)
    np.testing.assert_array_equal(result.learned.diverged, [-1, 1, -1, -1])
    np.testing.assert_array_equal(result.values[::2], healthy.values[::2])


def test_a_loop_can_be_cut_anywhere():
    loop = make_loop()
    state, clock = start(loop)
    whole, whole_clock, _ = compiled(loop).train(state, clock, 12)
    part, part_clock, _ = compiled(loop).train(state, clock, 5)
    saved = to_arrays(part, "seed")
    part = from_arrays(saved, jax.eval_shape(lambda: part), "seed")
    part, part_clock, _ = compiled(loop).train(part, part_clock, 7)
    for name, array in to_arrays((whole, whole_clock), "x").items():
        np.testing.assert_array_equal(array, to_arrays((part, part_clock), "x")[name])


def test_state_of_another_shape_is_refused():
    loop = make_loop()
    state, _ = start(loop)
    saved = to_arrays(state, "seed")
    saved["seed.action"] = np.zeros(3, saved["seed.action"].dtype)
    with pytest.raises(ValueError, match=r"'seed.action' should be .* and is"):
        from_arrays(saved, state, "seed")


def test_the_rings_are_written_in_place(optimised):
    loop = make_loop(replay_capacity=100_000, pool_size=20_000, room=50_000)
    state = jax.eval_shape(compiled(loop).init_many, jnp.arange(2))
    train = jax.jit(jax.vmap(loop.train, **MANY), donate_argnums=0)
    lowered = train.lower(state, Trace.empty(2), Clock().traced(), 10)
    memory = lowered.compile(as_users_compile()).memory_analysis()
    pool = sum(leaf.size for leaf in jax.tree.leaves(state.learned.pool.samples))
    assert memory.temp_size_in_bytes < min(state.replay.numbers.size, state.values.size, pool)


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="multiple of the 5"):
        make_loop(replay_capacity=51)


def test_several_updates_a_cycle_each_have_a_batch_of_their_own():
    one, many = make_loop(), make_loop(thinning=3, updates_per_cycle=2)
    state, clock = start(many)
    state, clock, _ = compiled(many).collect(state, clock, 3)
    after, later, trace = compiled(many).train(state, clock, 1)
    assert (int(later.cycles), int(later.updates)) == (4, 2)
    assert int(after.learned.learner.sampler.updates) == 2
    values = np.asarray(after.values)[:2]
    assert len({row.tobytes() for row in values}) == 2  # one entry after each update
    assert np.isfinite(trace.squared_residual)
    # The memory is untouched by learning: the same rows as with one update a cycle.
    other, clock = start(one)
    other, clock, _ = compiled(one).collect(other, clock, 3)
    other, _, _ = compiled(one).train(other, clock, 1)
    assert other.replay.numbers.shape == after.replay.numbers.shape
    np.testing.assert_array_equal(other.replay.numbers[:15], after.replay.numbers[:15])


def test_parameter_samples_are_the_last_of_every_few_updates():
    thinning = 3
    loop = make_loop(thinning=thinning, updates_per_cycle=2)
    state, clock = start(loop)
    state, clock, _ = compiled(loop).collect(state, clock, 3)
    seen = []
    for _ in range(8):  # two updates each, of which the second is seen from outside
        state, clock, _ = compiled(loop).train(state, clock, 1)
        seen.append(
            (int(clock.updates), np.asarray(state.learned.learner.sampler.params["head"]["w"]))
        )
    pool = state.learned.pool
    kept = np.asarray(pool.samples["head"]["w"])
    slots = posterior.order(pool)[::-1].tolist()
    assert len(slots) == len(set(slots)) == 4
    np.testing.assert_array_equal(kept[slots[0]], seen[-1][1])  # the newest is always there
    by_update = dict(seen)
    for age, slot in enumerate(slots[1:], start=1):
        last = ((16 - 1) // thinning - age + 1) * thinning  # the last update of that slot
        if last in by_update:
            np.testing.assert_array_equal(kept[slot], by_update[last])


def test_samples_weigh_as_much_as_their_step():
    loop = make_loop()
    state, clock = start(loop)
    state, _, _ = compiled(loop).train(state, clock, 3)
    pool = state.learned.pool
    np.testing.assert_allclose(pool.weights, [1e-4, 1e-4, 1e-4, 0], rtol=1e-6)
    assert (int(pool.filled), int(pool.position)) == (3, 3)


def test_returns_are_those_of_whole_episodes():
    loop = make_loop(epsilon=1.0)
    state, clock = start(loop)
    returns, episodes, reward = 0.0, 0, 0.0
    for _ in range(10):
        state, clock, trace = compiled(loop).collect(state, clock, 1)
        returns += float(trace.returns)
        episodes += int(trace.episodes)
        reward += float(trace.reward)
    t = jax.tree.map(np.asarray, rows_of(loop, state))
    np.testing.assert_allclose(t.reward.sum(), reward, rtol=1e-5)
    assert episodes > 3
    # What is not in a finished episode is in the running one.
    np.testing.assert_allclose(returns + float(state.episode_return[0]), reward, rtol=1e-5)
    assert abs(float(state.episode_return[0])) < 7 * 1.5  # the horizon times a large reward
