"""A memory that forgets: ages, both rings, and a world that turns round."""

from __future__ import annotations

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import valuetrack as vt
from tests.test_replay import assert_whole, fill, make_memory
from valuetrack.agents.sampling import SamplerOptions
from valuetrack.replay import DeviceRing, HostRing, newest_rows, remembered
from valuetrack.replay.forgetting import drawn_ages

HALF_LIFE, SIZE = 3.0, 8


def test_ages_have_the_law_they_should():
    uniforms = (np.arange(100_000) + 0.5) / 100_000
    counts = np.bincount(drawn_ages(np, uniforms, SIZE, HALF_LIFE), minlength=SIZE)
    weights = 0.5 ** (np.arange(SIZE) / HALF_LIFE)
    np.testing.assert_allclose(counts, 100_000 * weights / weights.sum(), atol=1.01)
    on_device = jax.jit(lambda u: drawn_ages(jnp, u, SIZE, HALF_LIFE))(uniforms[::100])
    np.testing.assert_array_equal(on_device, drawn_ages(np, uniforms[::100], SIZE, HALF_LIFE))
    endless = drawn_ages(np, uniforms, 10**7, 1e9)
    assert (np.bincount(endless * 10 // 10**7) > 9_900).all()  # as good as evenly


@pytest.mark.parametrize("count", [5, 12])
def test_both_rings_draw_by_age(count):
    host = HostRing(make_memory().layout, 1, 10, half_life=HALF_LIFE)
    fill(host, [0], count)
    device = DeviceRing(host.layout, capacity=10, block=1, half_life=HALF_LIFE)
    rows = jax.tree.map(lambda leaf: leaf[0], device.restore(host.arrays(), 1, count))
    uniforms = np.linspace(0.01, 0.98, 50)
    drawn = host.draw(uniforms[None])
    assert_whole(drawn)
    ages = drawn_ages(np, uniforms, min(count, 10), HALF_LIFE)
    np.testing.assert_array_equal(drawn.reward[0], count - 1 - ages)
    same = device.draw(rows, jnp.asarray(uniforms), count)
    np.testing.assert_array_equal(same.reward, drawn.reward[0])


def test_the_newest_rows_come_in_the_order_of_time():
    memory = make_memory(seeds=1)
    fill(memory, [0], 7)
    assert memory.rows.reward[0][newest_rows(7, 5, 3)].tolist() == [4, 5, 6]
    assert newest_rows(3, 5, 4) == slice(3)


def test_the_population_is_what_the_memory_speaks_of():
    options = SamplerOptions(replay_half_life=100.0, learning_starts=4)
    assert float(options.population()(10**6)) == remembered(100.0) == 145
    assert float(options.population()(9)) == 40.0  # as many as have been seen


class TurnsRound(gymnasium.Env):
    """Episodes of one step, which pay 1 for the first thousand and -1 from then on."""

    observation_space, action_space = spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(2)

    def __init__(self):
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.ones(1, np.float32), 1.0 if self.steps <= 1_000 else -1.0, True, False, {}


def test_a_world_that_has_changed_is_learned_again():
    options = {"hidden": (8,), "learning_rate": 1e-2, "replay_capacity": 2_000, "seed": 0}
    options |= {"exploration_initial": 1.0, "exploration_final": 1.0, "steps_per_update": 1}
    even, forgets = (
        vt.LKTD(TurnsRound, replay_half_life=half_life, samples=20, thinning=1, **options)
        .learn(2_200)
        .posterior([1.0])
        for half_life in (None, 200.0)
    )
    # Of the 2,000 transitions in the even memory, 800 pay 1: a mean of -0.2.
    np.testing.assert_allclose(even.mean, -0.2, atol=0.15)
    np.testing.assert_allclose(forgets.mean, -1.0, atol=0.15)
    (low, high), (_, above) = forgets.interval(0.95), even.interval(0.95)
    assert (low <= -0.999).all()
    assert (high >= -1.001).all()
    assert (high < -0.9).all()
    assert (above > -0.3).all()


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match="replay_half_life is for"):
        vt.DQN("CartPole-v1", replay_half_life=100.0, prioritised=0.6)
    with pytest.raises(ValueError, match="replay_half_life is for"):
        vt.LKTD("CartPole-v1", replay_half_life=100.0, replay_capacity=None)
