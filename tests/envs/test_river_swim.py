"""RiverSwim against a plain account of it, and its values by plain iteration."""

from __future__ import annotations

import numpy as np
import pytest

from tests.envs.played import play, row, uniforms
from valuetrack.envs import RiverSwim, optimal_values, table_values, values_to_go


def plain_step(variant, size, place, action, uniform):
    """Return the next place and the reward."""
    top = size - 1
    if action == 0:
        small = {"strehl": 5 / 10_000, "osband": 5 / 1_000}[variant]
        return max(place - 1, 0), small if place == 0 else 0.0
    if variant == "strehl":
        back, stay = {0: (0.0, 0.7), top: (0.7, 0.3)}.get(place, (0.1, 0.6))
    else:
        back, stay = {0: (0.0, 0.4), top: (0.4, 0.6)}.get(place, (0.05, 0.6))
    after = place - (uniform < back) + (uniform >= back + stay)
    pays = place == top and (variant == "osband" or after == top)
    return after, 1.0 if pays else 0.0


@pytest.mark.parametrize(("variant", "horizon"), [("strehl", 30), ("osband", None)])
def test_episodes_are_those_of_the_plain_rules(variant, horizon):
    size, copies = 4, 150
    env = RiverSwim(size=size, variant=variant, horizon=horizon)
    first, actions, starts, noise, results = play(env, uniforms(0), 40, 1, copies, go=0.85)
    seen = set()
    for copy in range(copies):
        place = 0
        if variant == "strehl":
            place = 1 if starts[copy, 0] < 0.5 else 2
        assert first.place[copy] == place
        for step in range(40):
            before = place
            place, reward = plain_step(
                variant, size, place, actions[step, copy], noise[step, copy, 0]
            )
            ours = row(results, step, copy)
            assert ours.state.place == place
            assert ours.reward == np.float32(reward)
            assert not ours.terminated
            assert bool(ours.truncated) == (horizon is not None and step + 1 >= horizon)
            assert ours.observation.tolist() == [x == place for x in range(size)]
            seen.add((before, int(actions[step, copy]), place))
    # All that can come of an action has come: 4 to the left, 2 + 2 * 3 + 2 to the right.
    assert len(seen) == 14


def swept(variant, size, discount, backup, sweeps):
    """Sweep the Bellman equation, the chances taken from a fine grid of uniforms."""
    grid = (np.arange(2_000) + 0.5) / 2_000
    moves = {
        (place, action): [plain_step(variant, size, place, action, u) for u in grid]
        for place in range(size)
        for action in range(2)
    }
    next_places = np.array([[[m[0] for m in moves[s, a]] for a in range(2)] for s in range(size)])
    rewards = np.array([[[m[1] for m in moves[s, a]] for a in range(2)] for s in range(size)])
    q = np.zeros((size, 2))
    for _ in range(sweeps):
        q = (rewards + discount * backup(q)[next_places]).mean(axis=2)
    return q


@pytest.mark.parametrize("variant", ["strehl", "osband"])
def test_values_are_those_of_plain_iteration(variant):
    env, discount = RiverSwim(variant=variant), 0.9
    best = swept(variant, 6, discount, lambda q: q.max(axis=1), 250)
    np.testing.assert_allclose(optimal_values(env.table, discount), best, atol=1e-9)
    mixed = swept(variant, 6, discount, lambda q: q @ [0.2, 0.8], 250)
    policy = np.tile([0.2, 0.8], (6, 1))
    np.testing.assert_allclose(table_values(env.table, policy, discount), mixed, atol=1e-9)


def test_the_best_return_of_an_episode():
    env = RiverSwim(variant="osband", horizon=20)
    best = swept("osband", 6, 1.0, lambda q: q.max(axis=1), 20)
    assert env.optimal_return() == pytest.approx(best[0].max())
    strehl = RiverSwim(horizon=15)
    best = swept("strehl", 6, 1.0, lambda q: q.max(axis=1), 15)
    assert strehl.optimal_return() == pytest.approx(best[1:3].max(axis=1).mean())
    assert values_to_go(strehl.table, 15)[0, 5, 1] == pytest.approx(0.3)
    with pytest.raises(ValueError, match="give a horizon"):
        RiverSwim(horizon=None).optimal_return()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "thames"}, "variant must be 'strehl' or 'osband', but is 'thames'"),
        ({"size": 2}, "size must be at least 3"),
        ({"horizon": 0}, "horizon must be at least 1"),
    ],
)
def test_mistakes_are_said_in_a_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        RiverSwim(**options)
