"""Intervals against the truth: how it is found, and how they are scored."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

import valuetrack as vt
from valuetrack.api.calibration import Calibrations, Lookup
from valuetrack.envs.cartpole import CartPoleState
from valuetrack.envs.indoor_escape import IndoorEscape, optimal_q
from valuetrack.experiments.measure import intervals
from valuetrack.experiments.measure.forecasts import (
    Forecast,
    forecasts_of,
    of_intervals,
    of_samples,
)
from valuetrack.experiments.measure.rollouts import HostRollouts, JaxRollouts, evenly, horizon
from valuetrack.experiments.measure.truths import RolloutSizes, Truth, truth_finder, visits
from valuetrack.experiments.spec import load
from valuetrack.posterior import Interval
from valuetrack.scores import crps_normal
from valuetrack.values.sandwich import Values

SMALL = {"hidden": (8,), "batch_size": 8, "replay_capacity": 200, "learning_starts": 20}
SIZES = RolloutSizes(states=8, replayed_states=4, rollouts=2, tail=0.01)
GRID = {"width": 4, "height": 3, "horizon": 20}


# The truth.


@pytest.fixture(scope="module")
def on_grid():
    env, options = IndoorEscape(**GRID), dict(SMALL, seed=1, discount=0.9, samples=12, thinning=1)
    return {
        "dqn": vt.DQN(env, **options).learn(300),
        "lktd": vt.LKTD(env, form="sarsa", **options).learn(300),
    }


def test_sarsa_on_the_grid_is_compared_with_the_papers_values(on_grid):
    agent = on_grid["lktd"]
    truth = truth_finder(agent, SIZES, "optimal")(0)
    epsilon = agent.options.exploration_final
    exact = optimal_q(agent.env.in_jax, epsilon=epsilon, discount=0.9, ties="reference")
    np.testing.assert_array_equal(truth.states, np.flatnonzero(exact.legal.any(axis=1)))
    np.testing.assert_array_equal(truth.values, exact.values[truth.states])


@pytest.mark.parametrize("name", ["dqn", "lktd"])
def test_an_agents_own_values_satisfy_the_bellman_equation_of_its_policy(on_grid, name):
    agent = on_grid[name]
    env = agent.env.in_jax
    truth = truth_finder(agent, SIZES, "own")(0)
    legal = np.isfinite(truth.values)
    greedy, _ = agent.predict(truth.observations, action_mask=legal)
    now = float(agent.trainer.settings.exploration(agent.num_timesteps))
    epsilon = 0.0 if name == "dqn" else now
    q = np.where(legal, truth.values, 0.0)
    best = q[np.arange(len(q)), greedy]
    state_values = np.zeros(env.width * env.height)
    state_values[truth.states] = (1 - epsilon) * best + epsilon * q.sum(1) / legal.sum(1)
    for place, action in zip(*np.nonzero(legal), strict=True):
        y, x = divmod(int(truth.states[place]), env.width)
        there = (y + (0, 1, 0, -1)[action]) * env.width + x + (1, 0, -1, 0)[action]
        assert q[place, action] == pytest.approx(env.reward_mean + 0.9 * state_values[there])


def test_visits_are_counted_in_the_replay_memory(on_grid):
    agent = on_grid["dqn"]
    truth = truth_finder(agent, SIZES, "own")(0)
    found = visits(agent, 0, truth)
    memory = agent.trainer.memory(0)
    assert found.sum() == len(memory.reward) == 200
    start = np.isclose(memory.observation, truth.observations[0]).all(axis=1)
    for action in range(4):
        assert found[0, action] == np.sum(start & (memory.action == action))
    assert found[0].sum() > 0
    assert (visits(agent, 0, truth._replace(finite=False)) == -1).all()


def played(state, action, agent, steps):
    """Return the discounted return of a rollout in Gymnasium's CartPole, in double precision."""
    env = gymnasium.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    env.state = np.asarray(state, np.float64)
    total = 0.0
    for step in range(steps):
        seen, reward, over, _, _ = env.step(action)
        total += agent.options.discount**step * reward
        if over:
            break
        action, _ = agent.predict(seen.astype(np.float32))
    return total


def test_rollouts_in_jax_are_those_of_gymnasium():
    agent = vt.DQN("CartPole-v1", seed=2, discount=0.9, hidden=(8,))
    found = JaxRollouts(agent, 8, 5, 0.01)(0)
    assert found.values.shape == (8, 2)
    assert not found.se.any()  # nothing is random, so one rollout is exact
    steps = horizon(0.9, 0.01)
    assert 0.9**steps <= 0.01 < 0.9 ** (steps - 1)
    for seen, values in zip(found.observations, found.values, strict=True):
        for action in (0, 1):
            assert values[action] == pytest.approx(played(seen, action, agent, steps), abs=1e-4)
    # Also from where an episode is nearly over.
    state = CartPoleState(*map(jnp.float32, (0.0, 0.0, 0.19, 2.0)), jnp.int32(499))
    assert played(state[:-1], 0, agent, steps) < played(found.observations[0], 0, agent, steps)


def test_rollouts_on_the_host_replay_the_way_to_a_state():
    agent = vt.DQN("CartPole-v1", seed=2, discount=0.9, hidden=(8,), backend="host")
    rollouts = HostRollouts(agent, 10_000, 2, 0.01)
    state = agent.trainer.member(0).learner
    way = rollouts.play(state, 7)[1]
    assert way.seed == 8
    step = len(way.actions) // 2
    values, se = rollouts.values(state, way, step, (0,))
    np.testing.assert_allclose(se, 0.0, atol=1e-12)
    for action in (0, 1):
        exact = played(way.observations[step], action, agent, rollouts.steps)
        assert values[action] == pytest.approx(exact, abs=1e-3)


def test_rollouts_of_what_is_random_have_noise_of_their_own():
    pytest.importorskip("Box2D")
    agent = vt.DQN("LunarLander-v3", seed=0, discount=0.5, hidden=(8,))
    rollouts = HostRollouts(agent, 2, 2, 0.1)
    once, again = rollouts(0), rollouts(0)
    np.testing.assert_array_equal(once.values, again.values)
    assert once.observations.shape == (2, 8)
    assert once.se[0, 2] > 0  # the main engine scatters
    assert np.isfinite(once.values).all()


def test_rollouts_need_a_greedy_policy_and_a_discount():
    agent = vt.LKTD("CartPole-v1", form="sarsa", **SMALL)
    with pytest.raises(ValueError, match="'sarsa' does not learn"):
        truth_finder(agent, SIZES, "own")
    with pytest.raises(ValueError, match="between 0 and 1"):
        horizon(1.0, 0.1)
    assert evenly(3, 10).tolist() == [0, 1, 2]
    assert evenly(100, 3).tolist() == [0, 50, 99]


# The scores.


def test_groups_are_scored_apart():
    values = np.array([[0.0, 10.0], [1.0, np.nan]])
    truth = Truth(np.array([3, 7]), np.zeros((2, 1)), values, np.zeros((2, 2)), finite=True)
    centre = np.array([[0.5, 10.0], [4.0, 0.0]])
    forecast = Forecast(
        centre,
        lambda level: Interval(centre - 2 * level, centre + 2 * level),
        lambda true: np.abs(true - centre),
    )
    scored = intervals.score(forecast, truth, np.array([[0, 5], [200, 0]]))
    assert scored.state.tolist() == [3, 3, 7]
    assert scored.visits.tolist() == [0, 5, 200]
    table = intervals.group_scores(scored, 2)

    def one(name, action="all", bin_="all"):
        (found,) = table[name][(table["action"] == action) & (table["visits"] == bin_)]
        return found

    assert one("count") == 3
    assert one("coverage_95") == pytest.approx(2 / 3)
    assert one("coverage_95", "0") == 0.5
    assert one("coverage_50", bin_="0") == 1.0
    assert one("coverage_99", bin_="100+") == 0.0
    assert one("width") == pytest.approx(3.8)
    missed = 3.0 - 1.9
    assert one("interval_score", bin_="100+") == pytest.approx(3.8 + 40 * missed)
    assert one("crps") == pytest.approx(3.5 / 3)
    assert one("rmse") == pytest.approx(np.sqrt((0.25 + 9.0) / 3))
    assert one("bias", "1") == 0.0
    assert np.isnan(one("rank"))  # all are equally wide
    assert not ((table["action"] == "1") & (table["visits"] == "0")).any()


def test_every_kind_is_what_the_agent_says(on_grid):
    agent = on_grid["lktd"]
    truth = truth_finder(agent, SIZES, "optimal")(0)
    estimate = agent.posterior(truth.observations)
    said = forecasts_of(agent, truth.observations, 0)
    assert list(said) == ["value", "credible", "prediction"]
    for kind, forecast in said.items():
        for found, expected in zip(
            forecast.interval(0.8), estimate.interval(0.8, kind), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(said["prediction"].centre, estimate.latest)


def test_a_forecast_of_intervals_scores_like_its_law():
    law = Values(np.array([[0.0, 1.0]]), np.array([[1.0, 2.0]]))
    truth = np.array([[0.5, 3.0]])
    found = of_intervals(law.mean, law.interval).crps(truth)
    np.testing.assert_allclose(found, crps_normal(truth, *law[:2]), rtol=0.03)
    samples = np.arange(11.0)[:, None, None]
    assert of_samples(samples).interval(0.8).low == pytest.approx(1.0)


def measured(agent):
    """Return the tables that the measure makes of an agent."""
    row = load("honest-values").row("grid-dqn")
    return intervals.IntervalsMeasure(intervals.IntervalsOptions(), row, agent).tables()


def test_an_agent_that_can_be_calibrated_is_scored_after_it(on_grid, monkeypatch):
    agent, factor, plain = on_grid["dqn"], [1.0], type(on_grid["dqn"]).posterior

    def posterior(observation, *, member=0):
        estimate = plain(agent, observation, member=member)
        solved = estimate.solve()
        wider = Values(solved.mean, factor[0] * solved.sd)
        return dataclasses.replace(estimate, solve=lambda: wider, calibration=Lookup())

    monkeypatch.setattr(agent, "posterior", posterior)
    monkeypatch.setattr(agent, "calibrate", lambda: factor.append(factor.pop() * 2))
    monkeypatch.setattr(agent, "calibration", Calibrations((object(),)))
    table = measured(agent)["intervals"]
    every = (table["action"] == "all") & (table["visits"] == "all")
    widths = dict(zip(table["kind"][every].tolist(), table["width"][every], strict=True))
    assert list(widths) == ["value", "calibrated", "credible", "prediction"]
    assert widths["calibrated"] == pytest.approx(2 * widths["value"], rel=1e-5)


def test_a_seed_that_diverged_has_no_scores(on_grid, monkeypatch):
    agent = on_grid["dqn"]
    assert len(measured(agent)["intervals"]["seed"])
    monkeypatch.setattr(type(agent.trainer), "diverged", np.array([7]))
    assert measured(agent) == {"intervals": {}, "states": {}, "returns": {}}


def test_an_agent_that_cannot_be_calibrated_is_not(on_grid, monkeypatch):
    def refuse():
        raise ValueError("Its episodes are cut off.")

    monkeypatch.setattr(on_grid["dqn"], "calibrate", refuse, raising=False)
    assert "calibrated" not in measured(on_grid["dqn"])["intervals"]["kind"]


def test_quantiles_that_an_agent_learns_are_scored(on_grid, monkeypatch):
    agent, plain = on_grid["dqn"], type(on_grid["dqn"]).posterior

    class WithQuantiles:
        def __init__(self, estimate):
            self._estimate = estimate
            spread = np.array([-0.3, 0.0, 0.3])
            self.quantiles = SimpleNamespace(values=estimate.latest[..., None] + spread)

        def __getattr__(self, name):
            return getattr(self._estimate, name)

    monkeypatch.setattr(
        agent, "posterior", lambda seen, *, member=0: WithQuantiles(plain(agent, seen))
    )
    truth = truth_finder(agent, SIZES, "own")(0)
    found = forecasts_of(agent, truth.observations, 0)["quantiles"]
    low, high = found.interval(2 / 3)  # from the first to the last
    np.testing.assert_allclose(high - low, 0.6, rtol=1e-5)
    low, high = found.interval(0.95)  # and no further
    np.testing.assert_allclose(high - low, 0.6, rtol=1e-5)
