from __future__ import annotations

import importlib
import sys
from unittest.mock import MagicMock

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.error import DependencyNotInstalled, InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env

import valuetrack.envs
from valuetrack.envs import ESCAPE_ID, IndoorEscape
from valuetrack.envs.gym.indoor_escape import IndoorEscapeEnv, draw, write

OPTIONS = {"width": 4, "height": 3, "walls": ((1, 1),)}


@pytest.mark.parametrize("options", [{}, {**OPTIONS, "masked": False}, {"horizon": 2}])
def test_gymnasium_finds_nothing_to_complain_about(options, monkeypatch):
    # The checker opens every render mode; a stand-in lets it open the window as well.
    monkeypatch.setitem(sys.modules, "pygame", MagicMock())
    check_env(gymnasium.make(ESCAPE_ID, **options).unwrapped)


def test_a_reload_does_not_warn():
    importlib.reload(valuetrack.envs)
    assert ESCAPE_ID in gymnasium.registry


def run(env, seed, steps=60):
    observation, info = env.reset(seed=seed)
    rng = np.random.default_rng(0)
    rows = [(*observation, *info["action_mask"])]
    for _ in range(steps):
        action = rng.choice(np.flatnonzero(info["action_mask"]))
        observation, reward, terminated, truncated, info = env.step(action)
        rows.append((*observation, reward, terminated, truncated, *info["action_mask"]))
        if terminated or truncated:
            observation, info = env.reset()
    return rows


def test_the_seed_decides_everything():
    env = gymnasium.make(ESCAPE_ID, **OPTIONS)
    first = run(env, seed=7)
    assert run(env, seed=7) == first == run(gymnasium.make(ESCAPE_ID, **OPTIONS), seed=7)
    assert run(env, seed=8) != first


@pytest.mark.parametrize("masked", [True, False])
def test_episodes_are_those_of_the_pure_functions(masked):
    env = gymnasium.make(ESCAPE_ID, **OPTIONS, masked=masked, horizon=25)
    pure = IndoorEscape(**OPTIONS, masked=masked, horizon=25)
    step, mask = jax.jit(pure.step), jax.jit(pure.action_mask)
    uniforms, actions = np.random.default_rng(11), np.random.default_rng(12)
    env.reset(seed=11)
    endings = set()
    for _ in range(12):
        state = pure.reset(jnp.zeros(0))
        observation, info = env.reset()
        np.testing.assert_array_equal(observation, pure.observe(state))
        np.testing.assert_array_equal(info["action_mask"], mask(state))
        over = False
        while not over:
            action = actions.integers(4)
            result = step(state, np.int32(action), uniforms.random(1, dtype=np.float32))
            observation, reward, terminated, truncated, info = env.step(action)
            np.testing.assert_array_equal(observation, result.observation)
            assert reward == pytest.approx(float(result.reward), rel=1e-6)
            assert (terminated, truncated) == (bool(result.terminated), bool(result.truncated))
            np.testing.assert_array_equal(info["action_mask"], mask(result.state))
            state, over = result.state, terminated or truncated
        endings.add("terminated" if terminated else "truncated")
    assert endings == {"terminated", "truncated"}


def test_the_types_are_plain_python_and_numpy():
    env = gymnasium.make(ESCAPE_ID)
    _, info = env.reset(seed=0)
    observation, reward, terminated, truncated, after = env.step(np.int64(1))
    assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
    assert type(observation) is np.ndarray
    assert observation.dtype == np.float32
    observation[:] = 0.0  # the caller may write into what it is given
    for mask in (info["action_mask"], after["action_mask"]):
        assert (mask.dtype, mask.shape) == (np.int8, (4,))


def test_masked_samples_are_legal():
    env = gymnasium.make(ESCAPE_ID)
    _, info = env.reset(seed=0)
    env.action_space.seed(0)
    assert {int(env.action_space.sample(info["action_mask"])) for _ in range(50)} == {0, 1}


def test_vector_environments():
    envs = gymnasium.make_vec(ESCAPE_ID, num_envs=3, vectorization_mode="sync", horizon=5)
    _, infos = envs.reset(seed=0)
    assert infos["action_mask"].shape == (3, 4)
    cuts = [bool(envs.step(np.array([0, 1, 2]))[3].all()) for _ in range(12)]
    # Five steps, then one that resets, then five more.
    assert [t for t, cut in enumerate(cuts) if cut] == [4, 10]
    envs.close()


@pytest.mark.parametrize("action", [1.0, np.float32(1), "E", None, np.array([0, 1])])
def test_an_action_that_is_no_integer_is_refused(action):
    env = IndoorEscapeEnv()
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match="must be an integer"):
        env.step(action)


@pytest.mark.parametrize("action", [-1, 4, np.int64(9)])
def test_an_action_out_of_range_is_refused(action):
    env = IndoorEscapeEnv()
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match="must lie between 0 and 3"):
        env.step(action)


def test_a_refused_action_leaves_no_trace():
    env, other = IndoorEscapeEnv(), IndoorEscapeEnv()
    for each in (env, other):
        each.reset(seed=0)
    with pytest.raises(InvalidAction):
        env.step(4)
    assert env.step(0)[1] == other.step(0)[1]


def test_stepping_needs_an_episode():
    env = IndoorEscapeEnv(horizon=1, render_mode="ansi")
    with pytest.raises(ResetNeeded, match="No episode has begun"):
        env.step(0)
    with pytest.raises(ResetNeeded, match="No episode has begun"):
        env.render()
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(ResetNeeded, match="has ended"):
        env.step(0)
    env.reset()
    env.step(0)


def test_options_reach_the_grid():
    env = gymnasium.make(ESCAPE_ID, width=7, goal=(3, 3), reward_mean=-0.5, masked=False)
    assert env.unwrapped.grid == IndoorEscape(width=7, goal=(3, 3), reward_mean=-0.5, masked=False)
    with pytest.raises(TypeError, match="depth"):
        IndoorEscapeEnv(depth=3)
    with pytest.raises(ValueError, match="render_mode must be None or one of"):
        IndoorEscapeEnv(render_mode="hologram")


def test_text_has_north_up():
    env = gymnasium.make(ESCAPE_ID, **OPTIONS, render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == ". . . G\n. # . .\nA . . .\n"
    env.step(0)
    assert env.render() == ". . . G\n. # . .\nS A . .\n"
    assert write(IndoorEscape(**OPTIONS), (3, 2)) == ". . . A\n. # . .\nS . . .\n"


def middle(frame, x, y, width=4, height=3):
    rows, columns, _ = frame.shape
    row = int((height - y - 0.5) / height * rows)
    return tuple(int(c) for c in frame[row, int((x + 0.5) / width * columns)])


def test_image_shows_every_kind_of_cell():
    env = gymnasium.make(ESCAPE_ID, **OPTIONS, render_mode="rgb_array")
    env.reset(seed=0)
    frame = env.render()
    assert frame.dtype == np.uint8
    assert frame.shape[0] * 4 == pytest.approx(frame.shape[1] * 3, abs=8)
    agent, wall, floor = middle(frame, 0, 0), middle(frame, 1, 1), middle(frame, 2, 0)
    assert len({agent, wall, floor}) == 3
    assert middle(frame, 0, 2) == middle(frame, 3, 0) == floor
    env.step(1)
    after = env.render()
    assert middle(after, 0, 1) == agent
    changed = np.argwhere((frame != after).any(axis=-1))
    # Only the first column's lower two cells have changed.
    assert changed[:, 1].max() < frame.shape[1] / 4
    assert changed[:, 0].min() > frame.shape[0] / 3
    start = middle(after, 0, 0)
    assert start not in (agent, wall, floor)
    corner = frame[3:6, -6:-3].reshape(-1, 3)
    assert not (corner == floor).all(axis=1).any()


@pytest.mark.parametrize(("width", "height"), [(1, 2), (3, 50), (300, 2)])
def test_image_of_any_size(width, height):
    grid = IndoorEscape(width=width, height=height)
    frame = draw(grid, grid.goal_position)
    assert frame.shape[0] / height == pytest.approx(frame.shape[1] / width, rel=0.6)
    assert max(frame.shape) <= max(530, 8 * max(width, height) + 1)


def test_the_window_needs_pygame(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(DependencyNotInstalled, match="needs pygame; install it"):
        IndoorEscapeEnv(render_mode="human")


def test_the_window_shows_what_the_image_holds(monkeypatch):
    pygame = MagicMock()
    monkeypatch.setitem(sys.modules, "pygame", pygame)
    env = IndoorEscapeEnv(**OPTIONS, render_mode="human")
    env.reset(seed=0)
    env.step(0)
    assert env.render() is None
    frame = draw(env.grid, (1, 0))
    (shown,) = pygame.surfarray.make_surface.call_args.args
    np.testing.assert_array_equal(shown, frame.swapaxes(0, 1))
    pygame.display.set_mode.assert_called_once_with(shown.shape[:2])
    env.close()
    env.close()
    pygame.display.quit.assert_called_once_with()
