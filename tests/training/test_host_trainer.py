"""The host's loop: what it stores, what it draws, and what it does not share."""

from __future__ import annotations

import copy
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tests.small_envs import Counter, Marked
from valuetrack import rng, schedules
from valuetrack.agents.lktd import LKTD, LKTDOptions
from valuetrack.envs.gym.make import make_vectorised
from valuetrack.envs.gym.vectorised import WrappedVectorEnv
from valuetrack.learner import Task
from valuetrack.training.host_trainer import HostTrainer
from valuetrack.training.trainer import Settings

WEIGHTS = "learned.learner.sampler.params.body.0.w"
STATES = np.array([[0, 0], [3, 1], [7, 2]], np.float32)


def make_trainer(seeds=(0,), envs=None, **changes):
    """Return a fresh trainer; those of equal settings share what is compiled."""
    if envs is not None:
        return build_trainer.__wrapped__(seeds, envs, **changes)
    built = build_trainer(seeds, **changes)
    trainer = copy.copy(built)
    trainer.envs, trainer.replay, trainer.returns = copy.deepcopy(
        (built.envs, built.replay, built.returns)
    )
    trainer._learned = jax.tree.map(jnp.copy, built._learned)  # an update consumes what it gets
    return trainer


@functools.cache
def settings_of(epsilon, **changes):
    return Settings(
        exploration=schedules.constant(epsilon),
        **{
            "steps_per_update": 5,
            "replay_capacity": 50,
            "batch_size": 10,
            "learning_starts": 10,
            "discount": 0.9,
            "pool_size": 4,
            **changes,
        },
    )


@functools.cache
def learner_of(task, step_size):
    options = LKTDOptions(
        hidden=(8,),
        init="normal",
        form="sarsa",
        step_size=step_size,
        pseudo_population=100,
        guard=False,
    )
    return LKTD.build(task, options)


@functools.cache
def build_trainer(seeds, envs=None, env=Counter, epsilon=0.3, step_size=1e-5, **changes):
    settings = settings_of(epsilon, **changes)
    envs = envs or make_vectorised(env, len(seeds) * settings.environments)
    task = Task(tuple(envs.encoder.shape), False, envs.num_actions)
    return HostTrainer(learner_of(task, step_size), settings, envs, seeds)


def rows(trainer, seed=0):
    """Return the transitions of a memory that has not gone round, in the order of time."""
    filled = int(trainer.replay.filled[seed])
    assert trainer.replay.written[seed] == filled
    return type(trainer.replay.rows)(*(ring[seed, :filled] for ring in trainer.replay.rows))


def state_of(trainer):
    return {name: array.copy() for name, array in trainer.arrays().items()}


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def test_transitions_follow_the_environment():
    trainer = make_trainer(replay_capacity=200, epsilon=1.0, learning_starts=999)
    trainer.run(40)
    t = rows(trainer)
    assert len(t.reward) == 200
    np.testing.assert_array_equal(t.next_observation[:, 0], t.observation[:, 0] + 1 + t.action)
    np.testing.assert_array_equal(t.next_observation[:, 1], t.observation[:, 1] + 1)
    np.testing.assert_allclose(t.reward, t.next_observation[:, 0] / 10, rtol=1e-6)
    terminated = t.next_observation[:, 0] >= 9
    truncated = ~terminated & (t.next_observation[:, 1] >= 4)
    assert terminated.sum() > 5
    assert truncated.sum() > 5
    np.testing.assert_array_equal(t.discount, np.where(terminated, 0, np.float32(0.9)))
    goes_on = ~(terminated | truncated)[:-1]
    np.testing.assert_array_equal(t.observation[1:][goes_on], t.next_observation[:-1][goes_on])
    np.testing.assert_array_equal(t.action[1:][goes_on], t.next_action[:-1][goes_on])
    assert (t.observation[1:][~goes_on, 1] == 0).all()  # a new episode begins with no step taken
    assert set(t.action) == set(t.next_action) == {0, 1, 2}


def test_the_masks_are_those_of_the_next_state():
    trainer = make_trainer(env=Marked, replay_capacity=200, epsilon=1.0, learning_starts=999)
    trainer.run(40)
    t = rows(trainer)
    place = np.round(t.next_observation[:, -1] * 2)  # the parts in the order of their keys
    over = abs(place) == 2
    assert over.sum() > 10
    expected = np.stack([~over, place == 0, ~over, np.zeros_like(over)], axis=1)
    np.testing.assert_array_equal(t.next_mask, expected)
    np.testing.assert_array_equal(t.discount == 0, over)


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.value)
def test_a_vector_environment_leaves_no_false_transitions(mode):
    vector = SyncVectorEnv([Counter] * 4, autoreset_mode=mode)
    changes = {"environments": 2, "replay_capacity": 400, "epsilon": 1.0, "learning_starts": 999}
    trainer = make_trainer((0, 1), envs=WrappedVectorEnv(vector), **changes)
    trainer.run(30)
    trace = trainer.trace
    for seed in range(2):
        t = rows(trainer, seed)
        np.testing.assert_array_equal(t.next_observation[:, 0], t.observation[:, 0] + 1 + t.action)
        np.testing.assert_array_equal(t.next_observation[:, 1], t.observation[:, 1] + 1)
        np.testing.assert_allclose(t.reward.sum(), trace.reward[seed], rtol=1e-5)
        ends = (t.next_observation[:, 0] >= 9) | (t.next_observation[:, 1] >= 4)
        assert ends.sum() == trace.episodes[seed] > 20
        lost = 0 if mode is not AutoresetMode.NEXT_STEP else 300 - len(t.reward)
        assert len(t.reward) == 300 - lost
        assert abs(lost - (trace.episodes[seed] if lost else 0)) <= 2


def test_a_run_can_be_cut_anywhere():
    whole, parts = make_trainer((0, 5)), make_trainer((0, 5))
    whole.track(STATES)
    parts.track(STATES)
    values = whole.run(10)
    early, late = parts.run(4), parts.run(6)
    assert_same_bits(state_of(whole), state_of(parts))  # the sums among it
    np.testing.assert_array_equal(values, np.concatenate([early, late]))


def test_sums_go_on_until_somebody_takes_them():
    trainer = make_trainer((0, 5))
    trainer.run(4)
    seen = trainer.trace
    kept = [part.copy() for part in seen]
    trainer.run(3)
    assert trainer.trace.cycles.tolist() == [7, 7]
    assert trainer.trace.learning.tolist() == [6, 6]  # the first cycle only fills the memory
    assert (trainer.trace.reward > trainer.trace.returns).all()
    for before, now in zip(kept, seen, strict=True):
        np.testing.assert_array_equal(before, now)  # what was looked at does not change
    taken = trainer.take_trace()
    assert taken.cycles.tolist() == [7, 7]
    assert not any(part.any() for part in trainer.trace)
    trainer.run(1)
    assert trainer.trace.cycles.tolist() == trainer.trace.learning.tolist() == [1, 1]


def test_sums_of_a_file_go_on():
    whole, first = make_trainer((0, 5)), make_trainer((0, 5))
    whole.run(4)
    first.run(4)
    again = make_trainer((0, 5))
    again.restore(state_of(first))
    again.run(2)
    assert again.trace.cycles.tolist() == [6, 6]
    assert (again.trace.reward > whole.trace.reward).all()


def test_a_seed_does_not_depend_on_its_neighbours():
    alone, together = make_trainer((3,)), make_trainer((1, 2, 3))
    alone.run(10)
    together.run(10)
    mine, others = jax.tree.leaves(alone.states), jax.tree.leaves(together.states)
    for own, all_of_them in zip(mine, others, strict=True):
        np.testing.assert_allclose(own[0], all_of_them[2], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(rows(alone).observation, rows(together, 2).observation)
    np.testing.assert_array_equal(rows(alone).action, rows(together, 2).action)
    for i in range(3):
        for j in range(i):
            assert (rows(together, i).action != rows(together, j).action).any()
            assert any((leaf[i] != leaf[j]).any() for leaf in others if leaf.ndim > 1)


def test_environments_of_one_seed_differ():
    trainer = make_trainer(environments=2, epsilon=1.0, replay_capacity=200, learning_starts=999)
    trainer.run(10)
    t = rows(trainer)
    assert (t.action[::2] != t.action[1::2]).any()
    np.testing.assert_array_equal(t.next_observation[:, 0], t.observation[:, 0] + 1 + t.action)


def test_returns_are_those_of_whole_episodes():
    trainer = make_trainer((0, 1), epsilon=1.0, learning_starts=999)
    returns, episodes, reward = np.zeros(2), np.zeros(2), np.zeros(2)
    for _ in range(8):
        trainer.run(1)
        trace = trainer.take_trace()
        returns += trace.returns
        episodes += trace.episodes
        reward += trace.reward
    assert (episodes > 5).all()
    # What is not in a finished episode is in the running one.
    np.testing.assert_allclose(returns + trainer.returns, reward, rtol=1e-6)
    assert (abs(trainer.returns) < 4).all()


def test_learning_starts_when_it_should():
    trainer = make_trainer(learning_starts=21, updates_per_cycle=2)
    seen = []
    for _ in range(7):
        before = state_of(trainer)[WEIGHTS]
        trainer.run(1)
        changed = (before != state_of(trainer)[WEIGHTS]).any()
        seen.append((trainer.steps, trainer.clock.updates, bool(changed)))
    steps, updates, changed = zip(*seen, strict=True)
    assert steps == (5, 10, 15, 20, 25, 30, 35)
    assert updates == (0, 0, 0, 0, 2, 4, 6)
    assert changed == (False,) * 4 + (True,) * 3


def batches_of(trainer):
    """Let a trainer show what it learns from."""
    seen, update = [], trainer._update

    def spy(batch):
        seen.append(jax.tree.map(np.array, batch))
        return update(batch)

    trainer._update = spy
    return seen


def test_on_policy_an_update_uses_the_transitions_of_its_cycle():
    trainer = make_trainer(replay_capacity=None, learning_starts=0, updates_per_cycle=2)
    seen = batches_of(trainer)
    trainer.run(6)
    assert [batch.reward.shape for batch in seen] == [(1, 2, 5)] * 6
    for batch in seen:
        for name in batch._fields:
            field = getattr(batch, name)
            np.testing.assert_array_equal(field[:, 0], field[:, 1])  # each update on all of it
    clock = np.concatenate([batch.observation[0, 0, :, 1] for batch in seen])
    ends = np.concatenate([batch.next_observation[0, 0, :, 1] for batch in seen])
    # One step after the other, over the borders of cycles: nothing twice, and nothing missing.
    assert ((clock[1:] == ends[:-1]) | (clock[1:] == 0)).all()
    assert (clock == 0).sum() >= 7


def test_on_policy_no_empty_row_is_learned_from():
    vector = SyncVectorEnv([lambda: Counter(last=1)], autoreset_mode=AutoresetMode.NEXT_STEP)
    envs = WrappedVectorEnv(vector)  # every episode has one step, so every second step is a reset
    trainer = make_trainer(envs=envs, replay_capacity=None, learning_starts=0)
    seen = batches_of(trainer)
    trainer.run(3)
    for batch in seen:
        assert (batch.reward > 0).all()


def test_a_batch_comes_from_the_memory():
    trainer = make_trainer((0, 1), epsilon=1.0, updates_per_cycle=3)
    seen = batches_of(trainer)
    trainer.run(8)
    assert [batch.reward.shape for batch in seen] == [(2, 3, 10)] * 7
    for seed in range(2):
        t = rows(trainer, seed)
        known = {(*o, a) for o, a in zip(t.observation.tolist(), t.action.tolist(), strict=True)}
        drawn = seen[-1]
        states, actions = drawn.observation[seed].reshape(30, 2), drawn.action[seed].reshape(30)
        pairs = zip(states.tolist(), actions.tolist(), strict=True)
        assert {(*o, a) for o, a in pairs} <= known
    assert (seen[-1].action[:, 0] != seen[-1].action[:, 1]).any()


def test_tracked_values_are_those_after_each_update():
    trainer = make_trainer((0, 1), updates_per_cycle=2)
    trainer.track(STATES)
    values_of = jax.jit(jax.vmap(trainer.learner.values, in_axes=(None, 0, None)))
    for cycle in range(5):
        values = trainer.run(1)
        if cycle < 1:
            assert len(values) == 0
            continue
        assert values.shape == (2, 2, 1, 3, 3)
        expected = values_of(rng.key(0), trainer.states, STATES)
        np.testing.assert_allclose(values[-1], expected, rtol=1e-5, atol=1e-6)
        assert (values[0] != values[1]).any()
    trainer.track(None)
    assert len(trainer.run(1)) == 0


def test_tracking_changes_nothing():
    plain, tracked = make_trainer(), make_trainer()
    tracked.track(STATES)
    plain.run(5)
    tracked.run(5)
    assert_same_bits(state_of(plain), state_of(tracked))


def test_a_seed_that_diverges_is_flagged_and_leaves_the_others_alone():
    healthy, sick = make_trainer((0, 1, 2)), make_trainer((0, 1, 2))
    learned = sick.learned
    sampler = learned.learner.sampler
    broken = jax.tree.map(lambda p: p.at[1].set(jnp.nan), sampler.params)
    state = learned.learner._replace(sampler=sampler._replace(params=broken))
    sick._learned = sick._groups.split(learned._replace(learner=state))
    healthy.run(5)
    sick.run(5)
    np.testing.assert_array_equal(healthy.diverged, [-1, -1, -1])
    np.testing.assert_array_equal(sick.diverged, [-1, 1, -1])
    for one, other in zip(
        jax.tree.leaves(healthy.states), jax.tree.leaves(sick.states), strict=True
    ):
        np.testing.assert_array_equal(one[::2], other[::2])


def test_a_huge_step_size_diverges():
    trainer = make_trainer(step_size=1e3)
    trainer.run(30)
    assert 1 <= trainer.diverged[0] <= trainer.clock.updates


@pytest.mark.parametrize("capacity", [50, None], ids=["replay", "on-policy"])
def test_what_is_saved_goes_on_the_same_way_each_time(capacity):
    trainer = make_trainer((0, 4), replay_capacity=capacity)
    trainer.run(6)
    saved = state_of(trainer)
    kept = {name: array.copy() for name, array in saved.items()}
    results = []
    for _ in range(2):
        again = make_trainer((0, 4), replay_capacity=capacity)
        again.restore(saved)
        assert_same_bits(state_of(again), kept)
        again.run(7)
        assert (again.steps, again.clock.updates) == (65, 12)
        results.append(state_of(again))
    assert_same_bits(*results)
    assert_same_bits(saved, kept)  # training on does not write into what was read
    assert (results[0][WEIGHTS] != kept[WEIGHTS]).any()


def test_arrays_do_not_change_as_training_goes_on():
    trainer = make_trainer()
    trainer.run(5)
    saved = trainer.arrays()
    learned = {name: a.copy() for name, a in saved.items() if name.startswith("learned.")}
    trainer.run(5)
    assert_same_bits({name: saved[name] for name in learned}, learned)


def test_without_replay_the_memory_is_filled_before_learning():
    trainer = make_trainer(learning_starts=20)
    trainer.run(8)
    saved = {name: a.copy() for name, a in trainer.arrays(replay=False).items()}
    assert not any(name.startswith("replay.") for name in saved)
    again = make_trainer(learning_starts=20)
    again.restore(saved, replay=False)
    assert again.replay.filled[0] == 0
    before = state_of(again)[WEIGHTS]
    again.run(3)
    assert (again.steps, again.clock.updates) == (55, 5)
    np.testing.assert_array_equal(state_of(again)[WEIGHTS], before)
    again.run(1)
    assert again.clock.updates == 6
    assert (state_of(again)[WEIGHTS] != before).any()


def test_a_cycle_that_is_cut_off_leaves_nothing_behind():
    trainer = make_trainer()
    trainer.run(3)
    step, before = trainer.envs.step, state_of(trainer)
    steps = iter([step, step])

    def failing(actions):
        chosen = next(steps, None)
        if chosen is None:
            raise KeyboardInterrupt
        return chosen(actions)

    trainer.envs.step = failing
    with pytest.raises(KeyboardInterrupt):
        trainer.run(1)
    trainer.envs.step = step
    saved = state_of(trainer)
    np.testing.assert_array_equal(saved["replay.written"], before["replay.written"])
    np.testing.assert_array_equal(saved["trace.reward"], before["trace.reward"])
    make_trainer().restore(saved)
    trainer.run(2)
    assert trainer.replay.written[0] == 25


def test_exploration_is_that_of_the_step():
    trainer = make_trainer(env=lambda: Counter(last=999, horizon=999), epsilon=1.0)
    seen, choose = [], trainer._choose
    trainer._choose = lambda *inputs: seen.append(int(inputs[3])) or choose(*inputs)
    trainer.run(2)
    assert seen == list(range(10))


def test_a_wrong_number_of_environments_is_refused():
    with pytest.raises(
        ValueError, match="2 seeds with 2 environments each need 4 environments, not 3"
    ):
        make_trainer((0, 1), envs=make_vectorised(Counter, 3), environments=2)


def test_state_of_another_shape_is_refused():
    saved = state_of(make_trainer((0, 1)))
    with pytest.raises(ValueError, match=r"should be .* and is"):
        make_trainer((0,)).restore(saved)
