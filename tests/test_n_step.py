"""n-step transitions: put together from single steps, on both rings and in whole trainings."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import valuetrack as vt
from tests.probes import Fork, Probes
from tests.small_envs import Counter
from valuetrack.replay import DeviceRing, HostRing, Layout, host_transitions

GAMMA = 0.5
ENVIRONMENTS, STEPS, CYCLES, CAPACITY = 3, 2, 9, 36
LAYOUT = Layout((2,), np.dtype(np.float32), actions=2)


@functools.cache
def history(seed=0):
    """Return made-up steps of environments: (cycles, steps, environments) of each field.

    An observation is (environment, step); a step ends an episode by itself or is cut off.
    """
    draw = np.random.default_rng(seed)
    shape = (CYCLES, STEPS, ENVIRONMENTS)
    terminated, truncated = draw.random(shape) < 0.1, draw.random(shape) < 0.1
    at = np.broadcast_to(np.arange(CYCLES * STEPS).reshape(CYCLES, STEPS, 1), shape)
    place = np.broadcast_to(np.arange(ENVIRONMENTS), shape)
    rows = host_transitions(
        observation=np.stack([place, at], axis=-1).astype(np.float32),
        action=draw.integers(2, size=shape).astype(np.int32),
        reward=draw.normal(size=shape).astype(np.float32),
        discount=np.where(terminated, 0, GAMMA).astype(np.float32),
        next_observation=np.stack([place, at + 1], axis=-1).astype(np.float32),
        next_action=draw.integers(2, size=shape).astype(np.int32),
        next_mask=draw.random((*shape, 2)) < 0.8,
    )
    return rows, terminated | truncated


def expected(n, cycles):
    """Return by a plain loop what begins in each step, {(environment, step): ...}."""
    rows, over = history()
    rows = jax.tree.map(lambda x: x.reshape(CYCLES * STEPS, *x.shape[2:]), rows)
    over, found = over.reshape(-1, ENVIRONMENTS), {}
    for place in range(ENVIRONMENTS):
        for first in range(cycles * STEPS):
            reward, discount, last = 0.0, 1.0, first
            for last in range(first, min(first + n, cycles * STEPS)):
                reward += discount * rows.reward[last, place]
                discount *= rows.discount[last, place]
                if over[last, place]:
                    break
            end = [part[last, place] for part in rows[4:]]
            found[place, first] = (rows.action[first, place], reward, discount, *end)
    return found


def assert_expected(drawn, n, cycles):
    """Compare with the plain loop; all that is remembered has to be there."""
    whole, seen = expected(n, cycles), set()
    for i, observation in enumerate(drawn.observation):
        key = tuple(observation.astype(int))
        seen.add(key)
        parts = (drawn.action, drawn.reward, drawn.discount, *drawn[4:])
        for given, wanted in zip(parts, whole[key], strict=True):
            np.testing.assert_allclose(given[i], wanted, atol=1e-6)
    first = max(0, cycles * STEPS - CAPACITY // ENVIRONMENTS)
    assert seen == {key for key in whole if key[1] >= first}


@functools.cache
def device_ring(n):
    ring = DeviceRing(LAYOUT, CAPACITY, STEPS * ENVIRONMENTS, n)

    @jax.jit
    def write(rows, cycle, writes):
        transitions, over = cycle
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), transitions)
        ahead = jnp.where(over, 0, ENVIRONMENTS).reshape(-1)
        return ring.write(rows, ring.pack(flat, ahead), writes)

    return ring, write, jax.jit(ring.draw)


def every(size):
    """Return uniform numbers that draw each of so many rows once."""
    return (np.arange(size, dtype=np.float32) + 0.5) / size


@pytest.mark.parametrize("n", [2, 5])
def test_on_the_device_they_are_what_a_plain_loop_finds(n):
    ring, write, draw = device_ring(n)
    rows, (transitions, over) = ring.init(), history()
    for cycle in range(CYCLES):
        one = jax.tree.map(lambda x, at=cycle: x[at], (transitions, over))
        rows = write(rows, one, cycle)
        if cycle in (0, 2, 5, CYCLES - 1):  # also half full, just full and gone round
            drawn = draw(rows, every(CAPACITY), cycle + 1)
            assert_expected(jax.tree.map(np.asarray, drawn), n, cycle + 1)
    newest = jax.tree.map(np.asarray, ring.newest(rows, CYCLES))
    assert len(newest.reward) == STEPS * ENVIRONMENTS
    whole = expected(n, CYCLES)
    for reward, observation in zip(newest.reward, newest.observation, strict=True):
        np.testing.assert_allclose(reward, whole[tuple(observation.astype(int))][1], atol=1e-6)


def write_on_host(ring, cycle):
    transitions, over = jax.tree.map(lambda x: x[cycle], history())
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), transitions)
    ring.links.write(ring.written, np.ones((1, STEPS, ENVIRONMENTS), bool), over[None])
    assert ring.append(flat)


def host_ring(n):
    return HostRing(LAYOUT, 1, CAPACITY, n, ENVIRONMENTS)


@pytest.mark.parametrize("n", [2, 5])
def test_on_the_host_they_are_what_a_plain_loop_finds(n):
    ring = host_ring(n)
    for cycle in range(CYCLES):
        write_on_host(ring, cycle)
        drawn = ring.draw(every(CAPACITY)[None])
        assert_expected(jax.tree.map(lambda x: x[0], drawn), n, cycle + 1)
    newest = ring.newest(4)
    assert newest.reward.shape == (1, 4)


def test_a_saved_ring_comes_back_and_what_follows_begins_new_episodes():
    n, (ring, write, draw) = 4, device_ring(4)
    host, rows, (transitions, over) = host_ring(n), ring.init(), history()
    for cycle in range(7):
        write_on_host(host, cycle)
        rows = write(rows, jax.tree.map(lambda x, at=cycle: x[at], (transitions, over)), cycle)
    stacked = jax.tree.map(lambda x: np.asarray(x)[None], rows)
    saved = {"host": host.arrays(), "device": ring.arrays(stacked, 7)}
    assert saved["host"].keys() == saved["device"].keys()
    for arrays in saved.values():
        again = host_ring(n)
        again.restore(arrays)
        for one, other in zip(again.draw(every(36)[None]), host.draw(every(36)[None]), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)
        before = {tuple(o): r for o, r in zip(*_newest(again), strict=True)}
        write_on_host(again, 7)  # no longer the same episodes
        after = {tuple(o): r for o, r in zip(*_newest(again, 12), strict=True)}
        assert before.items() <= after.items()
        on_device = jax.tree.map(lambda x: jnp.asarray(x[0]), ring.restore(arrays, 1, 7))
        drawn = jax.tree.map(np.asarray, draw(on_device, every(CAPACITY), 7))
        assert_expected(drawn, n, 7)


def _newest(ring, count=6):
    newest = ring.newest(count)
    return newest.observation[0], newest.reward[0]


@pytest.mark.parametrize("wrong", [np.full((1, 6), 99, np.int32), np.zeros((1, 6)), None])
def test_links_that_cannot_be_are_refused(wrong):
    ring = host_ring(3)
    write_on_host(ring, 0)
    arrays = {**ring.arrays(), "replay.ahead": wrong}
    with pytest.raises(ValueError, match="the saved replay memory"):
        host_ring(3).restore({name: a for name, a in arrays.items() if a is not None})


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_environments_that_skip_steps_are_not_mixed_up(mode):
    """A counter's observation says how many steps were taken, and its reward follows from it."""
    vector = SyncVectorEnv([Counter] * 4, autoreset_mode=mode)
    agent = vt.DQN(
        vector, seeds=2, hidden=(4,), n_step=3,
        discount=GAMMA, exploration_final=1.0, learning_starts=10_000, steps_per_update=3,
        replay_capacity=60, samples=100,
    ).learn(200)  # fmt: skip
    drawn = agent.trainer.replay.draw(np.random.default_rng(0).random((2, 300), np.float32))
    at, end = drawn.observation, drawn.next_observation
    steps = (end[..., 1] - at[..., 1]).astype(int)
    over = end[..., 0] >= 9
    assert set(np.unique(steps)) == {1, 2, 3}
    full = (steps == 3) | over | (end[..., 1] >= 4)
    assert full.mean() > 0.8  # the rest have just been written
    np.testing.assert_allclose(drawn.discount, np.where(over, 0.0, GAMMA**steps))
    one = steps == 1
    np.testing.assert_allclose(drawn.reward[one], end[one][:, 0] / 10, rtol=1e-6)
    # Counting up by 1 to 3 per step, rewards lie between those of the slowest and the fastest.
    low = sum((GAMMA**k * (at[..., 0] + k + 1) / 10) * (k < steps) for k in range(3))
    high = sum((GAMMA**k * (end[..., 0] - (steps - 1 - k)) / 10) * (k < steps) for k in range(3))
    assert ((drawn.reward >= low - 1e-5) & (drawn.reward <= high + 1e-5)).all()
    memory = agent.trainer.memory(0)  # of which values are solved: single steps
    assert (memory.next_observation[:, 1] - memory.observation[:, 1] == 1).all()


PROBE = {
    "hidden": (16,), "init": "normal", "init_sd": 0.3, "discount": GAMMA, "n_step": 3,
    "exploration_initial": 0.5, "exploration_final": 0.5, "learning_starts": 64,
    "replay_capacity": 400, "batch_size": 32, "environments": 2, "steps_per_update": 2,
    "samples": 100, "thinning": 3,
}  # fmt: skip
GRADIENT = {"learning_rate": 3e-3, "target_every": 50}
SAMPLING = {
    "step_size": 1e-4, "pseudo_population": 1e5, "observation_sd": 0.1, "prior_sd": 3.0,
    "inner_power": 0.0,
}  # fmt: skip
KINDS = {
    "dqn": (vt.DQN, GRADIENT),
    "bootdqn": (vt.BootDQN, {**GRADIENT, "heads": 3}),
    "qrdqn": (vt.QRDQN, {**GRADIENT, "quantiles": 5}),
    "iqn": (vt.IQN, {**GRADIENT, "cosines": 8}),
    "lktd": (vt.LKTD, {**SAMPLING, "target_every": 5}),
    "lktd-sarsa": (vt.LKTD, {**SAMPLING, "form": "sarsa"}),
    "sgld": (vt.SGLD, {**SAMPLING, "form": "expected_sarsa", "target_every": 5}),
    "sghmc": (vt.SGHMC, {**SAMPLING, "form": "sarsa_target", "step_size": 2e-5}),
}


@pytest.mark.parametrize("name", KINDS)
def test_known_values_are_found(name):
    kind, own = KINDS[name]
    agent = kind(Probes(), **PROBE, **own).learn(6_000)
    q = np.asarray(agent.posterior(np.eye(4, dtype=np.float32)).mean)
    np.testing.assert_allclose(q[0], [-1.0, 1.0], atol=0.15)
    np.testing.assert_allclose(q[1:3, 0], [GAMMA, 1.0], atol=0.15)
    np.testing.assert_allclose(q[3], 1 / (1 - GAMMA), atol=0.3)


@pytest.mark.parametrize("name", ["dqn", "lktd"])
def test_solved_values_are_of_single_steps_whatever_the_training_learned(name):
    """At random, two steps from the first place pay 0; greedily they are worth gamma."""
    kind, own = KINDS[name]
    two_steps = {**PROBE, "n_step": 2, "exploration_initial": 1.0, "exploration_final": 1.0}
    agent = kind(Fork(), **two_steps, **own).learn(3_000)
    q = agent.posterior(np.eye(2, dtype=np.float32))
    np.testing.assert_allclose(q.latest[1], [-1.0, 1.0], atol=0.15)
    np.testing.assert_allclose(q.latest[0], 0.0, atol=0.25)
    np.testing.assert_allclose(q.solved.mean, [[GAMMA, GAMMA], [-1.0, 1.0]], atol=0.05)


def test_a_run_that_is_saved_and_resumed_has_the_same_bits(tmp_path):
    kind, own = KINDS["dqn"]
    whole = kind(Probes(), **PROBE, **own).learn(320)
    half = kind(Probes(), **PROBE, **own).learn(200)
    half.save(tmp_path / "half")
    half = vt.load(tmp_path / "half", env=Probes()).learn(120)
    one, other = whole.trainer.arrays(), half.trainer.arrays()
    assert one.keys() == other.keys()
    assert "replay.ahead" in one
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)
