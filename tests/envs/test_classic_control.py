from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from valuetrack.envs import (
    CHANGING_ID,
    DEEP_SEA_ID,
    ESCAPE_ID,
    IN_JAX,
    N_CHAIN_ID,
    RIVER_SWIM_ID,
    Acrobot,
    AcrobotState,
    CartPole,
    CartPoleState,
    DeepSea,
    IndoorEscape,
    MountainCar,
    MountainCarState,
    NChain,
    RiverSwim,
    changing,
)

pytestmark = pytest.mark.usefixtures("optimised")  # parity is to hold for what users run
NOTHING = jnp.zeros(0)  # the uniforms of a step


@partial(jax.jit, static_argnums=0)
def step(env: Any, state: Any, action: Any) -> Any:
    return env.step(state, action, NOTHING)


@partial(jax.jit, static_argnums=0)
def resets(env: Any, uniforms: Any) -> Any:
    return jax.vmap(env.reset)(uniforms)


class Case(NamedTuple):
    """One environment and what a test must know of it besides."""

    id: str
    build: Any
    state: Any
    # A box of motions (states without their step count) that holds more than episodes visit.
    box: tuple[float, ...]
    centre: tuple[float, ...]
    resets: list[tuple[float, float]]
    # Pairs of motions between which an episode's end lies, and how far both are moved together.
    borders: list[tuple[tuple[float, ...], tuple[float, ...]]]
    spread: tuple[float, ...]
    # An action that makes episodes end otherwise than random ones do, from the observation.
    good_action: Callable[[Any], Any]
    angles: tuple[int, ...] = ()  # coordinates for which pi and -pi are the same
    # A step's rounding, in episodes and all over the box.
    step_tolerance: float = 1e-6
    box_tolerance: float = 1e-6
    # An upright pole doubles an error about every nine steps, and the acrobot is chaotic: that long
    # episodes of float32 and float64 stay this close, and no longer.
    free_steps: int = 100
    free_tolerance: float = 1e-3


CASES = [
    Case(
        id="CartPole-v1",
        build=CartPole,
        state=CartPoleState,
        box=(3.0, 3.0, 0.3, 3.0),
        centre=(0.0, 0.0, 0.0, 0.0),
        resets=[(-0.05, 0.05)] * 4,
        borders=[
            ((0.0, 0.0, 0.0, 0.0), outside)
            for side in (-1.0, 1.0)
            for outside in ((3.0 * side, 0.0, 0.0, 0.0), (0.0, 0.0, 0.3 * side, 0.0))
        ],
        spread=(0.0, 2.0, 0.0, 2.0),
        good_action=lambda s: jnp.int32(s @ jnp.array([0.02, 0.05, 1.0, 0.3]) > 0),
    ),
    Case(
        id="MountainCar-v0",
        build=MountainCar,
        state=MountainCarState,
        box=(0.9, 0.07),
        centre=(-0.3, 0.0),
        resets=[(-0.6, -0.4), (0.0, 0.0)],
        # Too far to the left, and on the hill but rolling back.
        borders=[((0.3, 0.03), (0.55, 0.03)), ((0.57, -0.01), (0.57, 0.01))],
        spread=(0.02, 0.0),
        good_action=lambda s: jnp.where(s[1] >= 0, 2, 0),
        step_tolerance=2e-7,
        box_tolerance=2e-7,
        free_steps=200,
        free_tolerance=2e-5,
    ),
    Case(
        id="Acrobot-v1",
        build=Acrobot,
        state=AcrobotState,
        box=(np.pi, np.pi, 4 * np.pi, 9 * np.pi),
        centre=(0.0, 0.0, 0.0, 0.0),
        resets=[(-0.1, 0.1)] * 4,
        borders=[((0.0, 0.0, 0.0, 0.0), (side, 0.0, 0.0, 0.0)) for side in (-3.0, 3.0)],
        spread=(0.0, 0.3, 1.0, 1.0),
        good_action=lambda s: jnp.where(s[5] > 0, 2, 0),
        angles=(0, 1),
        step_tolerance=1e-5,
        box_tolerance=1e-2,  # in the corners the accelerations are in the hundreds
    ),
]

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


def twin_of(case: Case) -> Any:
    """Return Gymnasium's environment without its wrappers, ready to be put into any state."""
    twin = gymnasium.make(case.id, disable_env_checker=True).unwrapped
    twin.reset(seed=0)
    return twin


def put(twin: Any, motion: Any) -> None:
    twin.unwrapped.state = np.asarray(motion, np.float64)
    twin.unwrapped.steps_beyond_terminated = None  # CartPole's memory of an episode that is over


def step_from(twin: Any, motion: Any, action: int) -> tuple[Any, ...]:
    """Return motion, observation, reward and terminated of Gymnasium's step."""
    put(twin, motion)
    observation, reward, terminated, _, _ = twin.step(int(action))
    return np.array(twin.state), observation, reward, terminated


def state_of(case: Case, motion: Any, steps: int = 0) -> Any:
    """Return our state; a batch of motions makes a batch of states."""
    motion = np.asarray(motion, np.float32)
    return case.state(*motion.T, np.full(motion.shape[:-1], steps, np.int32))


def motion_of(state: Any) -> np.ndarray:
    return np.stack([np.asarray(leaf) for leaf in state[:-1]], axis=-1)


def assert_close(case: Case, ours: np.ndarray, theirs: Any, tolerance: float) -> None:
    gap = np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)
    for angle in case.angles:
        assert np.abs(ours[..., angle]).max() <= np.pi + 1e-6
        gap[..., angle] = (gap[..., angle] + np.pi) % (2 * np.pi) - np.pi
    np.testing.assert_allclose(gap, 0.0, atol=tolerance, rtol=0)


def steps_of_both(case: Case, motions: np.ndarray, actions: np.ndarray) -> tuple[Any, ...]:
    """Return our batch of steps and Gymnasium's, from the same states."""
    twin = twin_of(case)
    theirs = [step_from(twin, *pair) for pair in zip(motions, actions, strict=True)]
    many_steps = jax.jit(jax.vmap(partial(step, case.build())))
    ours = many_steps(state_of(case, motions), actions)
    return ours, [np.array(column) for column in zip(*theirs, strict=True)]


@each_case
def test_steps_agree_all_over_the_state_space(case):
    rng = np.random.default_rng(0)
    motions = case.centre + rng.uniform(-1, 1, (3000, len(case.box))) * case.box
    motions = motions.astype(np.float32)
    actions = rng.integers(case.build.num_actions, size=len(motions), dtype=np.int32)
    ours, (motion, observation, reward, terminated) = steps_of_both(case, motions, actions)
    assert_close(case, motion_of(ours.state), motion, case.box_tolerance)
    np.testing.assert_allclose(ours.observation, observation, atol=case.box_tolerance, rtol=0)
    np.testing.assert_array_equal(ours.reward, reward)
    np.testing.assert_array_equal(ours.terminated, terminated)
    assert 0.02 < terminated.mean() < 0.5
    assert not np.asarray(ours.truncated).any()
    np.testing.assert_array_equal(ours.state.steps, 1)


class Episodes(NamedTuple):
    """Our episodes; leading axes (copy, time), the steps after an episode's end included."""

    starts: np.ndarray
    actions: np.ndarray
    results: Any
    lengths: np.ndarray


@cache
def episodes_of(name: str) -> Episodes:
    """Play with random actions, with good ones, and with mixtures of the two."""
    case = next(case for case in CASES if case.id == name)
    env = case.build()
    skills = np.array([0.0] * 4 + [0.6, 0.8, 1.0, 1.0])
    rng = np.random.default_rng(1)
    skilled = rng.random((env.horizon, len(skills))) < skills
    randoms = rng.integers(env.num_actions, size=skilled.shape, dtype=np.int32)

    def body(states, xs):
        skilled, random = xs
        good = jax.vmap(lambda state: case.good_action(env.observe(state)))(states)
        action = jnp.where(skilled, good, random)
        result = jax.vmap(partial(step, env))(states, action)
        return result.state, (action, result)

    starts = resets(env, rng.random((len(skills), env.reset_uniforms), dtype=np.float32))
    _, (actions, results) = jax.jit(partial(jax.lax.scan, body))(starts, (skilled, randoms))
    results = jax.tree.map(lambda leaf: np.asarray(leaf).swapaxes(0, 1), results)
    lengths = 1 + (results.terminated | results.truncated).argmax(axis=1)
    return Episodes(motion_of(starts), np.asarray(actions).T, results, lengths)


@each_case
@pytest.mark.parametrize("restart", [True, False], ids=["restarted", "free"])
def test_episodes_agree(case, restart):
    """Gymnasium's is put into our state before every step, or runs free after the first."""
    starts, actions, results, lengths = episodes_of(case.id)
    assert lengths.sum() > 1000
    last = np.arange(len(lengths)), lengths - 1
    assert 0 < results.terminated[last].sum() < len(lengths)
    tolerance = case.step_tolerance if restart else case.free_tolerance
    twin = gymnasium.make(case.id, disable_env_checker=True)
    for copy, length in enumerate(lengths if restart else np.minimum(lengths, case.free_steps)):
        ours = jax.tree.map(lambda leaf, i=copy, n=length: leaf[i, :n], results)
        motions, theirs = motion_of(ours.state), []
        twin.reset(seed=0)
        put(twin, starts[copy])
        for t in range(length):
            if restart and t > 0:
                put(twin, motions[t - 1])
            observation, *rest, _ = twin.step(int(actions[copy, t]))
            theirs.append((np.array(twin.unwrapped.state), observation, *rest))
        motion, observation, reward, terminated, truncated = map(
            np.array, zip(*theirs, strict=True)
        )
        assert_close(case, motions, motion, tolerance)
        np.testing.assert_allclose(ours.observation, observation, atol=tolerance, rtol=0)
        np.testing.assert_array_equal(ours.reward, reward)
        np.testing.assert_array_equal(ours.terminated, terminated)
        np.testing.assert_array_equal(ours.truncated, truncated & ~terminated)
        np.testing.assert_array_equal(ours.state.steps, 1 + np.arange(length))


@each_case
def test_steps_at_the_border_of_termination_agree(case):
    rng = np.random.default_rng(2)
    twin = twin_of(case)
    motions, actions = [], []
    for inside, outside in case.borders * 6:
        shift = rng.uniform(-1, 1, len(case.spread)) * case.spread
        action = int(rng.integers(case.build.num_actions))
        low, high = np.array(inside) + shift, np.array(outside) + shift
        gap = high - low
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (low, middle) if step_from(twin, middle, action)[3] else (middle, high)
        motions += [low - 2e-5 * gap, high + 2e-5 * gap]
        actions += [action, action]
    ours, (*_, terminated) = steps_of_both(
        case, np.array(motions, np.float32), np.array(actions, np.int32)
    )
    # The border is where the bisection says it is.
    np.testing.assert_array_equal(terminated, [False, True] * (len(motions) // 2))
    np.testing.assert_array_equal(ours.terminated, terminated)


@each_case
@pytest.mark.parametrize("horizon", [None, 3])
def test_truncation_is_that_of_the_time_limit(case, horizon):
    limit = gymnasium.spec(case.id).max_episode_steps if horizon is None else horizon
    env = case.build() if horizon is None else case.build(horizon=horizon)
    assert env.horizon == limit
    twin = gymnasium.make(case.id, max_episode_steps=limit, disable_env_checker=True)
    twin.reset(seed=0)
    start = [sum(bounds) / 2 for bounds in case.resets]
    steps = 0
    for count in range(1, limit + 1):
        put(twin, start)  # held at the start, so that nothing but time can end the episode
        _, _, terminated, truncated, _ = twin.step(0)
        ours = step(env, state_of(case, start, steps), np.int32(0))
        steps = int(ours.state.steps)
        assert (bool(ours.terminated), bool(ours.truncated)) == (terminated, truncated)
        assert truncated == (count == limit)


@each_case
def test_the_last_step_may_terminate_and_then_does_not_truncate(case):
    outside = case.borders[0][1]
    env = case.build(horizon=3)
    last = step(env, state_of(case, outside, 2), np.int32(1))
    assert (bool(last.terminated), bool(last.truncated)) == (True, False)
    inside = step(env, state_of(case, case.borders[0][0], 2), np.int32(1))
    assert (bool(inside.terminated), bool(inside.truncated)) == (False, True)


@each_case
def test_resets_are_distributed_alike(case):
    env, twin = case.build(), twin_of(case)
    theirs = []
    for _ in range(3000):
        twin.reset()
        theirs.append(np.array(twin.state, np.float64))
    rng = np.random.default_rng(3)
    states = resets(env, rng.random((20_000, env.reset_uniforms), dtype=np.float32))
    assert not np.asarray(states.steps).any()
    ours = motion_of(states)
    moving = [i for i, (low, high) in enumerate(case.resets) if low < high]
    assert len(moving) == env.reset_uniforms
    for i, (low, high) in enumerate(case.resets):
        for sample in (ours[:, i], np.array(theirs)[:, i]):
            # Both fill the range: a draw misses an end's hundredth with probability 0.99^3000.
            assert low - 1e-7 <= sample.min() <= low + 0.01 * (high - low)
            assert high - 0.01 * (high - low) <= sample.max() <= high + 1e-7
            assert abs(sample.mean() - (low + high) / 2) <= 4 * (high - low) / 12**0.5 / 3000**0.5
            assert sample.std() == pytest.approx((high - low) / 12**0.5, rel=0.05)
    for i in moving:
        assert stats.ks_2samp(ours[:, i], np.array(theirs)[:, i]).pvalue > 1e-3
    correlation = np.atleast_2d(np.corrcoef(ours[:, moving], rowvar=False))
    np.testing.assert_allclose(correlation, np.eye(len(moving)), atol=0.04)


@each_case
def test_a_reset_maps_the_unit_interval_onto_the_range(case):
    env = case.build()
    ends = np.repeat([[0.0], [1.0]], env.reset_uniforms, axis=1)
    np.testing.assert_allclose(motion_of(resets(env, ends)), np.transpose(case.resets), atol=1e-7)


@each_case
def test_types(case):
    env = case.build()
    state = env.reset(np.full(env.reset_uniforms, 0.3, np.float64))
    result = env.step(state, jnp.int32(0), NOTHING)
    assert type(state) is type(result.state) is case.state
    for leaves in (state, result.state):
        assert [leaf.dtype for leaf in leaves] == [jnp.float32] * len(case.box) + [jnp.int32]
        assert all(leaf.shape == () for leaf in leaves)
    assert result.observation.dtype == result.reward.dtype == jnp.float32
    assert result.terminated.dtype == result.truncated.dtype == jnp.bool_
    assert result.observation.shape == env.observation_shape
    assert result.reward.shape == result.terminated.shape == result.truncated.shape == ()
    np.testing.assert_array_equal(result.observation, env.observe(result.state))
    mask = env.action_mask(state)
    assert mask.tolist() == [True] * env.num_actions
    assert mask.dtype == jnp.bool_
    twin = twin_of(case)
    assert env.num_actions == twin.action_space.n
    assert env.observation_shape == twin.observation_space.shape
    assert env.step_uniforms == 0


@each_case
def test_a_mapped_scan_equals_single_steps(case):
    env = case.build()
    rng = np.random.default_rng(4)
    actions = rng.integers(env.num_actions, size=(10, 3), dtype=np.int32)
    uniforms = rng.random((3, env.reset_uniforms), dtype=np.float32)

    def body(states, action):
        result = jax.vmap(partial(step, env))(states, action)
        return result.state, result

    @jax.jit
    def play(uniforms):
        return jax.lax.scan(body, resets(env, uniforms), actions)[1]

    results = jax.device_get(play(uniforms))
    assert len(np.unique(results.observation[-1], axis=0)) == 3
    for copy in range(3):
        state = env.reset(uniforms[copy])
        for t in range(10):
            single = step(env, state, actions[t, copy])
            mapped = jax.tree.map(lambda leaf, t=t, copy=copy: leaf[t, copy], results)
            jax.tree.map(partial(np.testing.assert_allclose, atol=2e-5), single, mapped)
            state = single.state


@each_case
def test_an_environment_is_a_constant(case):
    env = case.build()
    assert hash(env) == hash(case.build())
    assert env == case.build() != case.build(horizon=7)
    with pytest.raises(dataclasses.FrozenInstanceError):
        env.horizon = 3
    # An equal environment finds the compiled step again; another one does not.
    start = state_of(case, [sum(bounds) / 2 for bounds in case.resets])
    assert bool(step(case.build(horizon=1), start, np.int32(1)).truncated)
    assert not bool(step(case.build(horizon=3), start, np.int32(1)).truncated)
    compiled = step._cache_size()
    step(case.build(horizon=3), start, np.int32(1))
    assert step._cache_size() == compiled
    with pytest.raises(ValueError, match="horizon must be at least 1, but is 0"):
        case.build(horizon=0)
    with pytest.raises(TypeError):
        case.build(horizon=2.5)


def test_the_wall_stops_the_car():
    env = MountainCar()
    state = MountainCarState(jnp.float32(-1.19), jnp.float32(-0.05), jnp.int32(0))
    after = env.step(state, jnp.int32(0), NOTHING).state
    assert (float(after.position), float(after.velocity)) == (np.float32(-1.2), 0.0)
    away = env.step(after, jnp.int32(2), NOTHING).state
    assert float(away.velocity) > 0.0


def test_ids_lead_to_the_environments():
    builders = {case.id: case.build for case in CASES}
    grids = {ESCAPE_ID: IndoorEscape}
    hard = {DEEP_SEA_ID: DeepSea, N_CHAIN_ID: NChain, RIVER_SWIM_ID: RiverSwim}
    worlds = {CHANGING_ID: changing}
    assert {**builders, **grids, **hard, **worlds} == IN_JAX
    for name, build in IN_JAX.items():
        env, twin = build(), gymnasium.make(name, disable_env_checker=True)
        assert env.num_actions == twin.action_space.n
        assert env.observation_shape == twin.observation_space.shape
