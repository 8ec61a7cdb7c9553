"""Worlds that change, against plain accounts of them; training and evaluations in them."""

from __future__ import annotations

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from scipy.stats import norm

import valuetrack as vt
from tests.envs.played import uniforms
from valuetrack.envs import (
    CHANGING_ID,
    CartPole,
    ChangingWorld,
    DeepSea,
    IndoorEscape,
    action_values,
    changing,
    find,
)
from valuetrack.experiments.measure.truths import exact_finder

SMALL = {"hidden": (8,), "discount": 0.9, "batch_size": 8, "replay_capacity": 200, "seed": 0}
MOVES = [(1, 0), (0, 1), (-1, 0), (0, -1)]


class PlainEscape:
    """A 3 x 3 grid, one rule after the other: at step 40 a wall and another goal, at 80 dearer."""

    def __init__(self):
        self.clock, self.cell, self.steps = 0, (0, 0), 0

    @property
    def world(self):
        walls = [(1, 1)] if self.clock >= 40 else []
        goal = (2, 0) if self.clock >= 40 else (2, 2)
        return walls, goal, -3.0 if self.clock >= 80 else -1.0

    def legal(self):
        walls, goal, _ = self.world
        x, y = self.cell
        there = [(x + dx, y + dy) for dx, dy in MOVES]
        free = [min(c) >= 0 and max(c) <= 2 and c not in walls for c in there]
        return [f and self.cell != goal and self.cell not in walls for f in free]

    def step(self, action, uniform):
        _, goal, mean = self.world
        if self.legal()[action]:
            self.cell = tuple(np.add(self.cell, MOVES[action]).tolist())
        self.clock += 1
        self.steps += 1
        terminated = self.cell == goal
        truncated = self.steps >= 15 and not terminated
        if self.clock == 40 and not terminated and not truncated and not any(self.legal()):
            self.cell = (0, 0)
        return mean + 0.1 * norm.ppf(uniform), terminated, truncated

    def reset(self):
        self.cell, self.steps = (0, 0), 0


CHANGES = [{"at": 40, "walls": [(1, 1)], "goal": (2, 0)}, {"at": 80, "reward_mean": -3.0}]
OPTIONS = {"width": 3, "height": 3, "horizon": 15, "changes": CHANGES}


def test_steps_are_those_of_the_plain_rules():
    env, carried = changing(**OPTIONS), 0
    step, restart = jax.jit(env.step), jax.jit(env.restart)
    mask = jax.jit(env.action_mask)
    for seed in range(6):
        draws = np.random.default_rng(seed)
        plain, state = PlainEscape(), env.reset(np.zeros(0, np.float32))
        for clock in range(120):
            legal = plain.legal()
            assert np.asarray(mask(state)).tolist() == legal
            action, uniform = draws.choice(np.flatnonzero(legal)), np.float32(draws.random())
            before = plain.cell
            paid, terminated, truncated = plain.step(action, uniform)
            carried += clock == 39 and plain.cell == (0, 0) != before
            result = step(state, np.int32(action), uniform[None])
            assert float(result.reward) == pytest.approx(paid, abs=1e-4)
            assert (bool(result.terminated), bool(result.truncated)) == (terminated, truncated)
            seen = (np.array(plain.cell) + 0.5) / 3
            np.testing.assert_allclose(result.observation, seen, rtol=1e-6)
            state = result.state
            if terminated or truncated:
                plain.reset()
                state = restart(state, np.zeros(0, np.float32))
            assert int(state.clock) == clock + 1
    assert carried  # one of them stood where the wall came up


def test_whoever_stands_in_a_new_wall_begins_again():
    world = ChangingWorld((IndoorEscape(), IndoorEscape(walls=((1, 0),))), (1,))
    state = world.reset(np.zeros(0))
    after = world.step(state, np.int32(0), np.array([0.5]))
    assert int(after.state.inside.cell) == 0
    stays = world.step(state, np.int32(1), np.array([0.5]))
    assert int(stays.state.inside.cell) == 10


def test_the_pole_gets_heavier():
    env = changing(of="CartPole-v1", changes=[{"at": 30, "pole_mass": 1.5}])
    twin = gymnasium.make("CartPole-v1").unwrapped
    step, restart = jax.jit(env.step), jax.jit(env.restart)
    state, draw = env.reset(uniforms(1)(4)), np.random.default_rng(2)
    twin.reset(seed=0)
    twin.state, episodes = [float(x) for x in state.inside[:4]], 0
    for clock in range(90):
        if clock == 30:
            twin.masspole = 1.5
            twin.total_mass, twin.polemass_length = 2.5, 0.75
        action = int(draw.integers(2))
        result = step(state, np.int32(action), np.zeros(0))
        seen, _, terminated, *_ = twin.step(action)
        np.testing.assert_allclose(result.observation, seen, rtol=1e-4, atol=1e-5)
        assert bool(result.terminated) == terminated
        state = result.state
        if terminated:
            state, episodes = restart(state, uniforms(clock)(4)), episodes + 1
            twin.reset()
            twin.state = [float(x) for x in state.inside[:4]]
    assert episodes > 1
    with pytest.raises(ValueError, match="pole_mass must be a positive"):
        CartPole(pole_mass=0.0)


def test_gymnasium_has_the_same_world():
    env = gymnasium.make(CHANGING_ID, **OPTIONS)
    check_env(env.unwrapped)
    task = find(CHANGING_ID)(**OPTIONS)
    assert env.unwrapped.task == task
    env = gymnasium.make(CHANGING_ID, **OPTIONS)
    env.reset(seed=3)
    draws, choose = np.random.default_rng(3), np.random.default_rng(4)
    step, restart, mask = map(jax.jit, (task.step, task.restart, task.action_mask))
    state = task.reset(np.zeros(0))
    for _ in range(100):
        action = choose.choice(np.flatnonzero(mask(state)))
        uniform = draws.random(1, dtype=np.float32)
        result = step(state, np.int32(action), uniform)
        observation, reward, *ends, info = env.step(action)
        np.testing.assert_array_equal(observation, result.observation)
        assert reward == pytest.approx(float(result.reward), rel=1e-6)
        assert ends == [bool(result.terminated), bool(result.truncated)]
        np.testing.assert_array_equal(info["action_mask"], mask(result.state))
        state = result.state
        if any(ends):
            env.reset()
            state = restart(state, np.zeros(0))
    assert int(env.unwrapped.state.clock) == 100
    env.reset(seed=3)
    assert int(env.unwrapped.state.clock) == 100  # a seed does not turn back the time


def test_drifts_are_stairs():
    drift = {"at": 100, "over": 50, "pieces": 5, "reward_mean": -2.0}
    world = changing(changes=[drift, {"at": 200, "goal": (9, 0)}])
    means = [world.at(step).reward_mean for step in range(260)]
    assert means[:100] == [-1.0] * 100
    np.testing.assert_allclose(means[100:150], np.repeat([-1.2, -1.4, -1.6, -1.8, -2.0], 10))
    assert means[150:] == [-2.0] * 110
    assert world.at(200).goal_position == (9, 0)


@pytest.mark.parametrize("backend", ["compiled", "host"])
def test_evaluations_are_in_the_present_world(backend):
    options = {**OPTIONS, "changes": [{"at": 60, "reward_mean": -5.0, "reward_sd": 0.0}]}
    agent = vt.DQN(CHANGING_ID, env_options=options, backend=backend, **SMALL)
    before = agent.learn(40).play(2)
    assert (before.returns / before.lengths > -2).all()
    after = agent.learn(40).play(2)
    np.testing.assert_allclose(after.returns / after.lengths, -5.0, rtol=1e-6)


def test_a_saved_training_goes_on_in_its_world(tmp_path):
    agent = vt.DQN(CHANGING_ID, env_options=OPTIONS, environments=2, **SMALL).learn(100)
    assert agent.trainer.present_env.goal_position == (2, 0)  # after 50 steps of each
    agent.save(tmp_path / "agent.vt")
    twin = vt.load(tmp_path / "agent.vt")
    for one in (agent, twin):
        one.learn(100)
        assert one.trainer.present_env.reward_mean == -3.0
    seen = [0.5, 0.5]
    np.testing.assert_array_equal(agent.posterior(seen).latest, twin.posterior(seen).latest)


def test_the_truth_is_that_of_the_present_world():
    agent = vt.DQN(CHANGING_ID, env_options=OPTIONS, **SMALL)
    truth = exact_finder(agent)
    for steps, goal in ((20, (2, 2)), (40, (2, 0))):
        agent.learn(steps)
        found, grid = truth(0), agent.trainer.present_env
        assert grid.goal_position == goal
        chosen, _ = agent.predict(found.observations, action_mask=np.isfinite(found.values))
        policy = np.zeros((9, 4))
        policy[found.states, chosen] = 1.0
        exact = action_values(grid, policy, 0.9)
        np.testing.assert_allclose(found.values, exact[found.states])
        assert grid.index(goal) not in found.states


@pytest.mark.parametrize(
    ("worlds", "changes", "why"),
    [
        ((CartPole(), CartPole()), (), "one world more"),
        ((CartPole(), CartPole()), (0,), "at least 1"),
        ((CartPole(),) * 3, (20, 20), "must rise"),
        ((CartPole(), IndoorEscape()), (10,), "same observations"),
        ((DeepSea(size=3), DeepSea(size=4)), (10,), "same observations"),
    ],
)
def test_worlds_that_do_not_follow_each_other_are_refused(worlds, changes, why):
    with pytest.raises(ValueError, match=why):
        ChangingWorld(worlds, changes)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"of": "LunarLander-v3"}, "id of an environment in JAX"),
        ({"of": CHANGING_ID}, "id of an environment in JAX"),
        ({"changes": [{"goal": (1, 1)}]}, "at which step"),
        ({"changes": [{"at": 10}]}, "changes nothing"),
        ({"changes": [{"at": 10, "over": 5, "reward_mean": -2.0}]}, "cannot have 10 pieces"),
        ({"changes": [{"at": 10, "over": 50, "goal": (1, 1)}]}, "Only numbers drift"),
    ],
)
def test_changes_that_mean_nothing_are_refused(given, why):
    with pytest.raises(ValueError, match=why):
        changing(**given)
