"""The tracker of a given policy's values finds the exact ones, with every kind of policy."""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import valuetrack as vt
from tests.agents.policy_envs import Hall, Lamp, MaskedModel, Model
from tests.probes import Probes
from valuetrack.envs import (
    IndoorEscape,
    action_values,
    observations,
    optimal_policy_probabilities,
    optimal_q,
    state_values,
)

GAMMA = 0.5
SAMPLING = {
    "hidden": (16,),
    "init": "normal",
    "init_sd": 0.3,
    "step_size": 1e-4,
    "pseudo_population": 1e5,
    "observation_sd": 0.1,
    "prior_sd": 3.0,
    "inner_power": 0.0,
    "discount": GAMMA,
    "batch_size": 32,
    "learning_starts": 64,
    "replay_capacity": 400,
    "samples": 100,
    "thinning": 3,
}
ON_POLICY = {
    "replay_capacity": None,
    "environments": 32,
    "steps_per_update": 1,
    "learning_starts": 0,
}


def tracker(env, policy, **changes):
    return vt.ValueTracker(env, policy, **{**SAMPLING, **changes})


# -- environments in JAX with known values --------------------------------------------------------


def mostly_right(observation, mask):
    """Take action 1 three times out of four where it is legal."""
    return jnp.where(mask[1], jnp.array([0.25, 0.75]), jnp.array([1.0, 0.0]))


PROBES = np.eye(4, dtype=np.float32)
PROBE_VALUES = [0.5, GAMMA, 1.0, 1 / (1 - GAMMA)]
"""Of the bandit, the corridor (which breaks a mask or a terminal) and the treadmill, which is cut
off and bootstraps."""


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": "lktd", "gradient": "full"},
        {"sampler": "sgld"},
        {"sampler": "sghmc", "step_size": 2e-5},
        ON_POLICY,
    ],
    ids=["full gradient", "sgld", "sghmc", "on-policy"],
)
def test_the_known_values_of_the_probes(options):
    steps = 60_000 if options is ON_POLICY else 8_000
    found = tracker(Probes(), mostly_right, probabilities=True, **options).learn(steps)
    assert found.backend == "compiled"
    v = found.posterior(PROBES)
    np.testing.assert_allclose(v.mean, PROBE_VALUES, atol=0.2)
    assert v.what == f"posterior samples of {found.options.sampler.upper()}"
    assert v.is_posterior


# -- the indoor escape, whose values are exact ----------------------------------------------------

GRID = IndoorEscape(width=3, height=3, walls=((1, 1),), horizon=8)
LEGAL = optimal_q(GRID).legal
ACTING = LEGAL.any(axis=1)
UNIFORM = LEGAL / np.maximum(LEGAL.sum(axis=1, keepdims=True), 1)
NEARLY_OPTIMAL = 0.8 * optimal_policy_probabilities(GRID) + 0.2 * UNIFORM
IN_GRID = {"discount": 0.8, "environments": 8, "replay_capacity": 4_000, "hidden": (32,)}
TOLERANCE = 0.2


def by_table(table, env=GRID):
    """Return the policy in JAX that looks up the probabilities of the cell it observes."""

    def policy(observation, mask):
        x = jnp.floor(observation[0] * env.width).astype(int)
        y = jnp.floor(observation[1] * env.height).astype(int)
        return jnp.asarray(table)[y * env.width + x]

    return policy


@functools.cache
def in_the_grid(name, **changes):
    table = {"uniform": UNIFORM, "nearly optimal": NEARLY_OPTIMAL}[name]
    made = tracker(GRID, by_table(table), probabilities=True, **{**IN_GRID, **changes})
    return made.learn(50_000), table


@pytest.mark.parametrize("name", ["uniform", "nearly optimal"])
def test_v_is_the_exact_one(name):
    found, table = in_the_grid(name)
    exact = state_values(GRID, table, 0.8)[ACTING]
    v = found.posterior(observations(GRID)[ACTING])
    assert v.samples.shape == (100, ACTING.sum())
    np.testing.assert_allclose(v.mean, exact, atol=TOLERANCE)
    # What would come out with mistakes is further off than the tolerance.
    wrong_discount = state_values(GRID, table, 0.7)[ACTING]
    assert np.abs(wrong_discount - exact).max() > 2 * TOLERANCE
    assert np.abs(GRID.reward_mean / (1 - 0.8) - exact).max() > 2 * TOLERANCE  # no terminals
    no_mask = IndoorEscape(width=3, height=3, walls=((1, 1),), masked=False)
    bumping = state_values(no_mask, np.full((9, 4), 0.25), 0.8)[ACTING]
    assert np.abs(bumping - exact).max() > 2 * TOLERANCE


def test_the_two_policies_are_told_apart():
    exact = [state_values(GRID, table, 0.8)[ACTING] for table in (UNIFORM, NEARLY_OPTIMAL)]
    assert np.abs(exact[0] - exact[1]).max() > 2 * TOLERANCE


def test_q_of_a_policy_is_exact_though_others_act():
    """With half of the actions random, SARSA would find another policy's values if it saw them."""
    found, table = in_the_grid("nearly optimal", of="q", explore=0.5)
    exact = action_values(GRID, table, 0.8)[LEGAL]
    q = found.posterior(observations(GRID))
    assert q.samples.shape == (100, 9, 4)
    np.testing.assert_allclose(q.mean[LEGAL], exact, atol=2 * TOLERANCE)
    off = np.abs(q.mean[LEGAL] - exact).mean()
    behaviour = 0.5 * table + 0.5 * UNIFORM
    assert np.abs(action_values(GRID, behaviour, 0.8)[LEGAL] - exact).mean() > 2 * off


def test_episodes_are_played_by_the_policy():
    found, table = in_the_grid("nearly optimal")
    exact = state_values(GRID, table, 0.8)[0]
    played = found.play(300)
    assert played.start_values == pytest.approx(exact, abs=TOLERANCE)
    # The horizon cuts some episodes off, which then lose less than they would have.
    assert exact - 0.1 < played.discounted_returns.mean() < exact + 0.4
    assert played.returns.shape == (1, 300)


# -- the host -------------------------------------------------------------------------------------

DARK = 1 / (1 - GAMMA**2)
STATES = [{"light": np.zeros(1, np.float32)}, {"light": np.ones(1, np.float32)}]


def test_v_of_a_model_on_the_host():
    model = Model()
    found = tracker(Lamp, model).learn(4_000)
    assert found.backend == "host"
    v = found.posterior(STATES)
    np.testing.assert_allclose(v.mean, [DARK, GAMMA * DARK], atol=0.1)
    observation, deterministic = model.asked[-1]
    assert set(observation) == {"light"}
    assert deterministic is True


def test_q_of_a_function_on_the_host():
    found = tracker(Lamp, lambda observation: 1, of="q", explore=0.4).learn(6_000)
    q = found.posterior(STATES).mean
    exact = [[-1 + GAMMA * GAMMA * DARK, DARK], [-1 + GAMMA * DARK, GAMMA * DARK]]
    np.testing.assert_allclose(q, exact, atol=0.15)


@pytest.mark.parametrize("explore", [0.0, 0.4])
@pytest.mark.parametrize("backend", ["host", "compiled"])
def test_next_actions_are_the_policys_own(backend, explore):
    """Whatever is taken: 1 where it is legal, but for the random ones."""
    compiled = backend == "compiled"
    env = Probes() if compiled else Lamp
    policy = (lambda observation, mask: jnp.eye(2)[mask[1].astype(int)]) if compiled else Model()
    made = tracker(env, policy, probabilities=compiled, of="q", explore=explore, seeds=2)
    saved = made.learn(400).trainer.arrays()
    has_choice = saved["replay.next_mask"][..., 1]
    bootstraps = saved["replay.discount"] > 0
    assert (bootstraps & has_choice).sum() > 50
    np.testing.assert_array_equal(saved["replay.next_action"], has_choice)
    # Of the places seen one-hot, those of the corridor leave no choice.
    corridor = saved["replay.observation"][..., 1:3].any(-1) if compiled else ~has_choice
    share = np.mean(saved["replay.action"][~corridor] == 0)
    assert share == pytest.approx(explore / 2, abs=0.08)


def terminal_is_not_asked(observation, mask):
    assert mask.any(), "a policy is not asked where an episode is over"
    return 3


def test_masks_and_first_actions_on_the_host():
    found = tracker(Hall, MaskedModel()).learn(3_000)
    np.testing.assert_allclose(found.posterior(np.array([0, 1])).mean, [GAMMA, 1.0], atol=0.1)


@pytest.mark.parametrize(
    "policy", [lambda observation: 3, terminal_is_not_asked], ids=["function", "with mask"]
)
def test_functions_choose_what_a_masked_model_chooses(policy):
    """And so its values; without an update nothing is compiled for them."""
    one, other = (
        tracker(Hall, chosen, learning_starts=400).learn(300).trainer.memory(0)
        for chosen in (policy, MaskedModel())
    )
    assert (one.discount == 0).sum() > 100
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
def test_vector_environments(mode):
    envs = SyncVectorEnv([Lamp] * 4, autoreset_mode=mode)

    def policy(observation):
        assert observation["light"].shape == (1,)
        return 1

    found = tracker(envs, policy).learn(8_000)
    v = found.posterior(STATES)
    np.testing.assert_allclose(v.mean, [DARK, GAMMA * DARK], atol=0.1)


def test_probabilities_on_the_host():
    found = tracker(Lamp, lambda o: [0.0, 1.0], probabilities=True).learn(4_000)
    np.testing.assert_allclose(found.posterior(STATES).mean, [DARK, GAMMA * DARK], atol=0.1)
    even_model = tracker(Lamp, lambda o: np.array([0.5, 0.5]), probabilities=True).learn(100)
    assert np.mean(even_model.trainer.arrays()["replay.action"]) == pytest.approx(0.5, abs=0.2)


def test_an_evaluation_on_the_host_is_played_by_the_policy():
    found = tracker(Lamp, lambda observation: 0)
    played = found.play(5)
    assert (played.returns == -3.0).all()
    expected = {round(float(v), 4) for v in found.posterior(STATES).latest}
    assert {round(float(v), 4) for v in np.ravel(played.start_values)} <= expected


# -- our agents as policies -----------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["compiled", "host"])
def test_an_agents_policy_is_what_it_is_now(backend):
    options = {"hidden": (8,), "learning_starts": 20, "learning_rate": 0.1, "seed": 1}
    agent, twin = (vt.DQN("CartPole-v1", **options) for _ in range(2))
    made = tracker("CartPole-v1", agent, backend=backend)
    assert made.backend == backend
    agent.learn(100)  # which changes the agent, but not the policy that was given
    made.learn(200)
    saved = made.trainer.arrays()
    seen = saved["replay.next_observation"].reshape(-1, 4)
    expected, _ = twin.predict(seen)
    np.testing.assert_array_equal(saved["replay.next_action"].ravel(), expected)
    assert (agent.predict(seen)[0] != expected).any()


def test_an_agent_may_explore():
    agent = vt.DQN("CartPole-v1", hidden=(8,), seed=1)  # whose epsilon is still 1
    made = tracker("CartPole-v1", agent, deterministic=False).learn(400)
    taken = made.trainer.arrays()["replay.action"]
    assert np.mean(taken) == pytest.approx(0.5, abs=0.1)


def test_functions_in_an_environment_that_exists_in_jax():
    def in_python(observation):
        return int(observation[2] > 0)

    def traced(observation):
        right = (observation[2] > 0).astype(float)
        return jnp.stack([1 - right, right])

    assert tracker("CartPole-v1", in_python).backend == "host"
    compiled = tracker("CartPole-v1", traced, probabilities=True)
    assert compiled.backend == "compiled"
    on_host = tracker("CartPole-v1", traced, probabilities=True, backend="host").learn(50)
    assert on_host.backend == "host"
    insists = tracker("CartPole-v1", lambda o: (o[2] > 0).astype(int), backend="compiled")
    assert insists.backend == "compiled"
    for made in (compiled, insists):
        saved = made.learn(100).trainer.arrays()
        leans = saved["replay.next_observation"][..., 2].ravel() > 0
        np.testing.assert_array_equal(saved["replay.next_action"].ravel(), leans)
