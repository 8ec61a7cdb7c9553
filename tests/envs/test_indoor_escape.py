from __future__ import annotations

import dataclasses
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from valuetrack.envs import (
    EscapeState,
    IndoorEscape,
    observations,
    optimal_policy_probabilities,
    optimal_q,
)

pytestmark = pytest.mark.usefixtures("optimised")  # parity is to hold for what users run
MOVES = [(1, 0), (0, 1), (-1, 0), (0, -1)]
MAZE = ((1, 0), (1, 1), (3, 1), (3, 2), (3, 3), (0, 3))
GRIDS = [
    IndoorEscape(),
    IndoorEscape(width=5, height=4, walls=MAZE, horizon=40),
    IndoorEscape(width=5, height=4, walls=MAZE, masked=False),
    IndoorEscape(width=6, height=3, start=(5, 2), goal=(2, 1), masked=False, horizon=30),
    IndoorEscape(width=1, height=7, start=(0, 6), goal=(0, 0), reward_mean=-2.0),
]


def walk(env: IndoorEscape, cell: tuple[int, int], action: int) -> tuple[int, int]:
    """Plain-Python dynamics, written without a look at the tables."""
    if cell == env.goal_position:
        return cell
    x, y = cell[0] + MOVES[action][0], cell[1] + MOVES[action][1]
    free = 0 <= x < env.width and 0 <= y < env.height and (x, y) not in env.walls
    return (x, y) if free else cell


def legal_actions(env: IndoorEscape, cell: tuple[int, int]) -> list[bool]:
    if cell == env.goal_position:
        return [False] * 4
    return [not env.masked or walk(env, cell, action) != cell for action in range(4)]


def reachable_cells(env: IndoorEscape) -> list[tuple[int, int]]:
    seen, queue = {env.start}, deque([env.start])
    while queue:
        cell = queue.popleft()
        for there in (walk(env, cell, action) for action in range(4)):
            if there not in seen:
                seen.add(there)
                queue.append(there)
    return sorted(seen)


def steps_to_goal(env: IndoorEscape, cell: tuple[int, int]) -> int:
    frontier, steps = {cell}, 0
    while env.goal_position not in frontier:
        frontier = {walk(env, here, action) for here in frontier for action in range(4)}
        steps += 1
    return steps


def at(env: IndoorEscape, cell: tuple[int, int], steps: int = 0) -> EscapeState:
    return EscapeState(jnp.int32(env.index(cell)), jnp.int32(steps))


@pytest.mark.parametrize("env", GRIDS)
def test_walks_agree_with_plain_python(env):
    rng = np.random.default_rng(3)
    step = jax.jit(env.step)
    for _ in range(3):
        state, cell = env.reset(jnp.zeros(0)), env.start
        for count in range(1, 121):
            assert env.action_mask(state).tolist() == legal_actions(env, cell)
            action = int(rng.integers(4))
            result = step(state, jnp.int32(action), jnp.array([0.5]))
            cell = walk(env, cell, action)
            assert int(result.state.cell) == cell[1] * env.width + cell[0]
            assert int(result.state.steps) == count
            centre = ((cell[0] + 0.5) / env.width, (cell[1] + 0.5) / env.height)
            np.testing.assert_array_equal(result.observation, np.array(centre, np.float32))
            assert bool(result.terminated) == (cell == env.goal_position)
            over = count >= env.horizon and cell != env.goal_position
            assert bool(result.truncated) == over
            state = result.state


@pytest.mark.parametrize("env", GRIDS)
def test_the_mask_is_right_in_every_cell_that_can_be_visited(env):
    legal = optimal_q(env).legal
    cells = reachable_cells(env)
    for cell in cells:
        assert env.action_mask(at(env, cell)).tolist() == legal_actions(env, cell)
        assert legal[env.index(cell)].tolist() == legal_actions(env, cell)
    elsewhere = np.setdiff1d(np.arange(len(legal)), [env.index(cell) for cell in cells])
    assert not legal[elsewhere].any()


def test_default_grid():
    env = IndoorEscape()
    cells = [at(env, (x, y)) for x, y in [(0, 0), (9, 0), (0, 9), (4, 5)]]
    expected = [[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1], [1, 1, 1, 1]]
    assert [env.action_mask(cell).astype(int).tolist() for cell in cells] == expected
    assert env.goal_position == (9, 9)
    grid = 0.05 + 0.1 * np.arange(10)
    x, y = np.meshgrid(grid, grid)
    np.testing.assert_allclose(
        observations(env), np.stack([x.ravel(), y.ravel()], -1), atol=1e-7, rtol=0
    )


def test_types():
    env = IndoorEscape()
    result = env.step(env.reset(jnp.zeros(0)), jnp.int32(0), jnp.array([0.3]))
    assert [leaf.dtype for leaf in result.state] == [jnp.int32, jnp.int32]
    assert result.observation.dtype == result.reward.dtype == jnp.float32
    assert result.terminated.dtype == result.truncated.dtype == jnp.bool_
    assert result.observation.shape == env.observation_shape == (2,)
    assert result.reward.shape == result.terminated.shape == result.truncated.shape == ()
    assert observations(env).dtype == np.float32
    assert optimal_q(env).values.dtype == np.float64


def test_a_goal_reached_with_the_last_step_terminates():
    env = IndoorEscape(width=3, height=1, horizon=2)
    east, west = jnp.int32(0), jnp.int32(2)
    half = jnp.array([0.5])
    first = env.step(env.reset(jnp.zeros(0)), east, half)
    assert (bool(first.terminated), bool(first.truncated)) == (False, False)
    reached = env.step(first.state, east, half)
    assert (bool(reached.terminated), bool(reached.truncated)) == (True, False)
    missed = env.step(first.state, west, half)
    assert (bool(missed.terminated), bool(missed.truncated)) == (False, True)


def test_rewards_are_normal():
    env = IndoorEscape(reward_mean=-2.0, reward_sd=0.3)
    uniforms = jax.random.uniform(jax.random.key(0), (50_000, env.step_uniforms))
    state = env.reset(jnp.zeros(0))
    rewards = np.asarray(jax.vmap(lambda u: env.step(state, jnp.int32(1), u).reward)(uniforms))
    assert abs(rewards.mean() + 2.0) < 4 * 0.3 / np.sqrt(rewards.size)
    assert abs(rewards.std() - 0.3) < 4 * 0.3 / np.sqrt(2 * rewards.size)
    assert stats.kstest(rewards, stats.norm(-2.0, 0.3).cdf).pvalue > 1e-3


def test_rewards_at_the_ends_of_the_unit_interval_are_finite():
    env = IndoorEscape()
    state = env.reset(jnp.zeros(0))
    ends = [float(env.step(state, jnp.int32(0), jnp.array([u])).reward) for u in (0.0, 1.0)]
    assert -1.6 < ends[0] < -1.5
    assert -0.5 < ends[1] < -0.4


def test_the_step_into_the_goal_pays_and_without_spread_so_do_all_alike():
    env = IndoorEscape(width=2, height=1, reward_sd=0.0)
    result = env.step(env.reset(jnp.zeros(0)), jnp.int32(0), jnp.array([0.9]))
    assert bool(result.terminated)
    assert float(result.reward) == -1.0


def test_a_mapped_scan_equals_single_steps():
    env = IndoorEscape(width=5, height=4, walls=MAZE)
    actions = jax.random.randint(jax.random.key(1), (30, 4), 0, 4)
    uniforms = jax.random.uniform(jax.random.key(2), (30, 4, 1))

    def body(states, xs):
        result = jax.vmap(env.step)(states, *xs)
        return result.state, result

    starts = jax.vmap(env.reset)(jnp.zeros((4, 0)))
    _, results = jax.jit(lambda s: jax.lax.scan(body, s, (actions, uniforms)))(starts)
    assert len(set(np.asarray(results.state.cell[-1]).tolist())) > 1
    for copy in range(4):
        state = env.reset(jnp.zeros(0))
        for t in range(30):
            single = env.step(state, actions[t, copy], uniforms[t, copy])
            jax.tree.map(
                lambda one, many, t=t, copy=copy: np.testing.assert_allclose(
                    one, many[t, copy], rtol=1e-6
                ),
                single,
                results,
            )
            state = single.state


def test_equal_options_compile_once():
    traces = []

    def mask(env, state):
        traces.append(env)
        return env.action_mask(state)

    compiled = jax.jit(mask, static_argnums=0)
    first = IndoorEscape(walls=((2, 2), (1, 1)))
    second = IndoorEscape(walls=[[1, 1], (2, np.int64(2)), (1, 1)])
    assert first == second
    for env in (first, second):
        compiled(env, at(env, (0, 0)))
    assert len(traces) == 1
    compiled(IndoorEscape(), at(first, (0, 0)))
    assert len(traces) == 2


def test_a_default_goal_follows_the_size():
    assert dataclasses.replace(IndoorEscape(), width=4).goal_position == (3, 9)


def test_values_of_two_by_two_by_hand():
    env = IndoorEscape(width=2, height=2)
    eps, gamma = 0.2, 0.7
    # From (1, 0), N ends the episode and W, taken with probability eps / 2, leads to the start.
    beside = (-1 - gamma * eps / 2) / (1 - gamma**2 * eps / 2)
    start = -1 + gamma * beside
    nan = np.nan
    expected = [
        [-1 + gamma * beside, -1 + gamma * beside, nan, nan],
        [nan, -1, -1 + gamma * start, nan],
        [-1, nan, nan, -1 + gamma * start],
        [nan, nan, nan, nan],
    ]
    for ties in ("uniform", "reference"):
        np.testing.assert_allclose(optimal_q(env, eps, gamma, ties).values, expected, rtol=1e-13)


def test_values_of_a_corridor_without_masks_by_hand():
    env = IndoorEscape(width=3, height=1, masked=False, reward_mean=-2.0)
    eps, gamma = 0.4, 0.9
    # N and S bump in both cells, W bumps in the first; each random action has eps / 4 = 0.1.
    # V0 = -2 + 0.9 (0.7 V1 + 0.3 V0),  V1 = -2 + 0.9 (0.2 V1 + 0.1 V0).
    v0, v1 = np.linalg.solve([[1 - 0.27, -0.63], [-0.09, 1 - 0.18]], [-2.0, -2.0])
    expected = -2 + gamma * np.array([[v1, v0, v0, v0], [0.0, v1, v0, v1]])
    np.testing.assert_allclose(optimal_q(env, eps, gamma).values[:2], expected, rtol=1e-13)
    assert np.isnan(optimal_q(env).values[2]).all()


@pytest.mark.parametrize("env", GRIDS)
@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_without_exploration_the_values_count_the_steps(env, discount):
    q = optimal_q(env, epsilon=0.0, discount=discount)
    assert (np.isnan(q.values) == ~q.legal).all()
    for cell in reachable_cells(env):
        for action in np.flatnonzero(legal_actions(env, cell)):
            steps = 1 + steps_to_goal(env, walk(env, cell, action))
            expected = env.reward_mean * sum(discount**t for t in range(steps))
            assert q.values[env.index(cell), action] == pytest.approx(expected, rel=1e-12)


def simulate(env, epsilon, discount, cell, action, rollouts, rng):
    """Discounted returns of the epsilon-greedy shortest path, by simulation in plain numpy."""
    cells = reachable_cells(env)
    number = {c: i for i, c in enumerate(cells)}
    there = np.array([[number[walk(env, c, a)] for a in range(4)] for c in cells])
    legal = np.array([legal_actions(env, c) for c in cells])
    distance = np.array([steps_to_goal(env, c) for c in cells])
    position = np.full(rollouts, there[number[cell], action])
    returns = rng.normal(env.reward_mean, env.reward_sd, rollouts)
    for t in range(1, 250):
        alive = distance[position] > 0
        # A random score picks evenly: among the legal actions, or among those one step closer.
        score = rng.random((rollouts, 4))
        random = rng.random(rollouts) < epsilon
        closer = distance[there[position]] == distance[position, None] - 1
        allowed = np.where(random[:, None], legal[position], closer & legal[position])
        chosen = np.where(allowed, score, -1.0).argmax(axis=1)
        returns += alive * discount**t * rng.normal(env.reward_mean, env.reward_sd, rollouts)
        position = np.where(alive, there[position, chosen], position)
    return returns


@pytest.mark.parametrize("env", GRIDS)
def test_values_agree_with_simulation(env):
    epsilon, discount, rollouts = 0.3, 0.9, 4000
    q = optimal_q(env, epsilon, discount)
    rng = np.random.default_rng(5)
    cells = reachable_cells(env)
    for cell in [env.start, cells[len(cells) // 2], cells[-2]]:
        for action in np.flatnonzero(legal_actions(env, cell)):
            returns = simulate(env, epsilon, discount, cell, action, rollouts, rng)
            error = returns.mean() - q.values[env.index(cell), action]
            assert abs(error) < 4 * returns.std() / np.sqrt(rollouts)


def test_tie_rules():
    env = IndoorEscape()
    uniform = optimal_policy_probabilities(env)
    reference = optimal_policy_probabilities(env, ties="reference")
    for cell, action in {(2, 5): 0, (5, 2): 1, (4, 4): 0}.items():
        assert uniform[env.index(cell)].tolist() == [0.5, 0.5, 0, 0]
        assert reference[env.index(cell)].tolist() == np.eye(4)[action].tolist()
    for policy in (uniform, reference):
        assert policy[env.index((9, 3))].tolist() == [0, 1, 0, 0]
        assert policy[env.index((9, 9))].tolist() == [0, 0, 0, 0]
        np.testing.assert_allclose(policy[:-1].sum(axis=1), 1.0)
    other = IndoorEscape(start=(9, 9), goal=(0, 0))
    np.testing.assert_array_equal(
        optimal_policy_probabilities(other), optimal_policy_probabilities(other, "reference")
    )


def test_tie_rules_hardly_matter_on_the_default_grid():
    env = IndoorEscape()
    gap = optimal_q(env).values - optimal_q(env, ties="reference").values
    assert 1e-4 < np.nanmax(np.abs(gap)) < 7e-3
    assert np.nanmean(gap**2) < 1e-5


def test_values_know_nothing_of_the_horizon():
    long, short = optimal_q(IndoorEscape()), optimal_q(IndoorEscape(horizon=1))
    np.testing.assert_array_equal(long.values, short.values)


def test_enclosed_cells_have_no_values():
    env = IndoorEscape(width=4, height=3, walls=((0, 1), (1, 2)), masked=False)
    q = optimal_q(env, discount=1.0)
    assert not q.legal[env.index((0, 2))].any()
    assert np.isfinite(q.values[q.legal]).all()
    behind = IndoorEscape(width=3, height=1, goal=(1, 0))
    assert not optimal_q(behind).legal[2].any()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"width": 0}, ValueError, "width must be at least 1"),
        ({"height": 2.5}, TypeError, "height must be an integer"),
        ({"horizon": 0}, ValueError, "horizon must be at least 1"),
        ({"walls": ((10, 0),)}, ValueError, r"wall \(10, 0\) lies outside the 10 x 10 grid"),
        ({"walls": ((1, -1),)}, ValueError, r"wall \(1, -1\) lies outside"),
        ({"walls": (3, 4)}, TypeError, "each cell of walls must be an .x, y. pair"),
        ({"walls": 3}, TypeError, "walls must be a sequence"),
        ({"walls": ((0, 0),)}, ValueError, r"start \(0, 0\) is a wall"),
        ({"walls": ((9, 9),)}, ValueError, r"goal \(9, 9\) is a wall"),
        ({"walls": ((0, 1), (1, 0))}, ValueError, "cannot be reached"),
        ({"start": (0, 10)}, ValueError, r"start \(0, 10\) lies outside"),
        ({"start": None}, TypeError, "start must be an .x, y. pair"),
        ({"goal": (1, 2, 3)}, TypeError, "goal must be an .x, y. pair"),
        ({"goal": (-1, 0)}, ValueError, r"goal \(-1, 0\) lies outside"),
        ({"goal": (0, 0)}, ValueError, "start and goal are both"),
        ({"width": 1, "height": 1}, ValueError, "start and goal are both"),
        ({"reward_sd": -0.1}, ValueError, "reward_sd must not be negative"),
        ({"reward_sd": "wide"}, TypeError, "reward_sd must be a number"),
        ({"reward_mean": 0.0}, ValueError, "reward_mean must be negative"),
        ({"reward_mean": float("nan")}, ValueError, "reward_mean must be finite"),
        ({"masked": 1}, TypeError, "masked must be True or False"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        IndoorEscape(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": -0.1}, "epsilon must lie in"),
        ({"discount": 1.1}, "discount must lie in"),
        ({"discount": float("nan")}, "discount must lie in"),
        ({"ties": "east"}, "ties must be one of"),
    ],
)
def test_bad_value_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        optimal_q(IndoorEscape(), **options)
