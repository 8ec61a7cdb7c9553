"""The options that LKTD, SGLD and SGHMC share reach their network, prior and sampler."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import valuetrack as vt
from tests.probes import Bandit
from valuetrack import posterior, priors, schedules
from valuetrack.agents.dqn import DQN, DQNOptions
from valuetrack.agents.lktd import LKTD, LKTDOptions
from valuetrack.agents.sghmc import SGHMC, SGHMCOptions
from valuetrack.agents.sgld import SGLD, SGLDOptions
from valuetrack.api.options import as_rate
from valuetrack.learner import Task
from valuetrack.types import Transition

TASK = Task((3,), False, 2)
KINDS = {"lktd": (LKTD, LKTDOptions), "sgld": (SGLD, SGLDOptions), "sghmc": (SGHMC, SGHMCOptions)}
SAMPLERS = pytest.mark.parametrize(("kind", "options_type"), KINDS.values(), ids=KINDS)
SCHEDULES = {
    "polynomial": (
        {"schedule": "polynomial", "initial": 1e-4, "power": 0.5, "offset": 3.0},
        schedules.polynomial(1e-4, 0.5, offset=3.0),
    ),
    "cyclical": (
        {"schedule": "cyclical", "initial": 1e-4, "cycle_length": 4},
        schedules.cyclical(1e-4, 4),
    ),
    "linear": (
        {"schedule": "linear", "initial": 1e-4, "final": 1e-5, "updates": 6},
        schedules.linear(1e-4, 1e-5, 6),
    ),
}
BY_NAME = pytest.mark.parametrize(("given", "schedule"), SCHEDULES.values(), ids=SCHEDULES)


def transitions(n=6, discount=0.9):
    rng = np.random.default_rng(0)
    fields = {
        "observation": rng.normal(size=(n, 3)).astype(np.float32),
        "action": rng.integers(0, 2, n),
        "reward": rng.normal(size=n).astype(np.float32),
        "discount": np.full(n, discount, np.float32),
        "next_observation": rng.normal(size=(n, 3)).astype(np.float32),
        "next_action": rng.integers(0, 2, n),
        "next_mask": np.ones((n, 2), bool),
    }
    return Transition(**{name: jnp.asarray(value) for name, value in fields.items()})


def flat(params):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


# -- the first parameters ---------------------------------------------------------------------


def first_parameters(seed=0, **options):
    learner = LKTD.build(TASK, LKTDOptions(hidden=(400,), **options))
    return learner.init(jax.random.key(seed)).sampler.params


def test_first_parameters_may_be_a_draw_from_the_prior():
    drawn = first_parameters(init="prior", prior_sd=0.4)
    assert stats.kstest(flat(drawn), stats.norm(0, 0.4).cdf).pvalue > 1e-3
    assert all((np.asarray(layer["b"]) != 0).all() for layer in (*drawn["body"], drawn["head"]))
    assert (flat(drawn) != flat(first_parameters(1, init="prior", prior_sd=0.4))).all()


def test_a_draw_from_a_mixture_has_both_parts():
    mixture = {"prior_sd": 1.0, "prior_narrow_sd": 1e-3, "prior_wide_weight": 0.3}
    drawn = np.abs(flat(first_parameters(init="prior", **mixture)))
    assert np.mean(drawn > 5e-3) == pytest.approx(0.3, abs=0.05)


def test_the_network_is_the_same_whatever_it_begins_with():
    shapes = [jax.tree.map(jnp.shape, first_parameters(init=i)) for i in ("prior", "he", "normal")]
    assert shapes[0] == shapes[1] == shapes[2]


@pytest.mark.parametrize(
    ("init", "law"),
    [("pytorch", stats.uniform(-(3**-0.5), 2 * 3**-0.5)), ("normal", stats.norm(0, 0.7))],
    ids=["pytorch", "normal"],
)
def test_first_parameters_by_name(init, law):
    layer = first_parameters(init=init, init_sd=0.7)["body"][0]
    for part in ("w", "b"):
        assert stats.kstest(np.ravel(layer[part]), law.cdf).pvalue > 1e-3


# -- step sizes -------------------------------------------------------------------------------


@BY_NAME
def test_schedules_by_name_are_those_of_the_library(given, schedule):
    built = as_rate(LKTDOptions(step_size=given).step_size)
    counts = np.arange(12)
    expected = [float(schedule(count)) for count in counts]
    assert len(set(expected)) > 3
    np.testing.assert_array_equal([float(built(count)) for count in counts], expected)


@pytest.mark.parametrize(
    ("name", "by"),
    [("sgld", "polynomial"), ("sgld", "cyclical"), ("lktd", "linear"), ("sghmc", "polynomial")],
)
def test_schedules_reach_the_sampler(name, by):
    (kind, options_type), (given, schedule) = KINDS[name], SCHEDULES[by]
    learner = kind.build(TASK, options_type(hidden=(4,), step_size=given))
    state, sizes = learner.init(jax.random.key(0)), []
    update = jax.jit(learner.update)
    for t in range(6):
        state, info = update(jax.random.key(t), state, transitions())
        sizes.append(float(info.step_size))
    np.testing.assert_allclose(sizes, [float(schedule(t)) for t in range(6)], rtol=1e-6)


def test_a_learning_rate_may_be_a_schedule():
    given, schedule = SCHEDULES["linear"]
    learner = DQN.build(TASK, DQNOptions(hidden=(4,), learning_rate=given))
    state, update = learner.init(jax.random.key(0)), jax.jit(learner.update)
    for t in range(3):
        state, info = update(jax.random.key(t), state, transitions())
        assert float(info.step_size) == pytest.approx(float(schedule(t)), rel=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"schedule": "exponential", "initial": 1e-4},
        {"schedule": "polynomial", "initial": 1e-4},
        {"schedule": "cyclical", "initial": 1e-4, "cycle_length": 0},
        {"schedule": "linear", "initial": -1.0, "updates": 5},
        {"schedule": "linear", "initial": 1e-4, "updates": 5, "power": 2},
    ],
    ids=str,
)
def test_a_schedule_that_cannot_be_is_refused_in_a_sentence(wrong):
    with pytest.raises(ValueError, match="LKTD's step_size is wrong") as error:
        vt.LKTD(Bandit(), step_size=wrong)
    assert "\n" not in str(error.value)


# -- the prior --------------------------------------------------------------------------------


@SAMPLERS
def test_the_phase_in_of_the_prior_reaches_the_sampler(kind, options_type):
    """With the wide part alone, a mixture is the plain Gaussian; later it is not."""
    common = {"hidden": (4,), "prior_sd": 1.0, "init": "normal", "pseudo_population": 6.0}
    common |= {"step_size": 5e-5, "inner_iterations": 5, "observation_sd": 1.0}
    narrow = {"prior_narrow_sd": 0.01, "prior_wide_weight": 0.5}
    given = {"plain": {}, "slow": {**narrow, "prior_phase_in": 10**6}, "now": narrow}
    after = {}
    for name, more in given.items():
        learner = kind.build(TASK, options_type(**common, **more))
        state = jax.jit(learner.init)(jax.random.key(0))
        state, _ = jax.jit(learner.update)(jax.random.key(1), state, transitions())
        after[name] = flat(state.sampler.params)
    np.testing.assert_allclose(after["slow"], after["plain"], rtol=1e-4, atol=1e-6)
    assert np.abs(after["now"] - after["plain"]).max() > 1e-3


def test_the_prior_is_that_of_the_options():
    options = LKTDOptions(
        prior_sd=0.5, prior_narrow_sd=0.05, prior_wide_weight=0.3, prior_phase_in=100
    )
    params = {"w": jnp.linspace(-1, 1, 9)}
    expected = priors.gaussian_mixture(0.5, 0.05, 0.3, 100)
    for count in (0, 50, 200):
        ours, theirs = (p.gradient(params, count) for p in (options.prior(), expected))
        np.testing.assert_array_equal(ours["w"], theirs["w"])


# -- double Q-learning ------------------------------------------------------------------------


@SAMPLERS
def test_double_lets_the_network_choose_and_the_target_say_what_it_is_worth(kind, options_type):
    """Online and target network prefer different actions, so that only one choice is right."""
    n, reward = 4, 0.25
    batch = transitions(n)._replace(reward=jnp.full(n, reward))
    residuals = {}
    for double in (False, True):
        options = options_type(hidden=(), init="normal", double=double, inner_iterations=1)
        learner = kind.build(TASK, options)
        state = jax.jit(learner.init)(jax.random.key(0))
        online, target = state.sampler.params, jax.tree.map(lambda p: -p, state.sampler.params)
        q, best, worth = (
            np.asarray(x @ p["head"]["w"] + p["head"]["b"])
            for x, p in (
                (batch.observation, online),
                (batch.next_observation, online),
                (batch.next_observation, target),
            )
        )
        chosen = (best if double else worth).argmax(axis=1)
        y = reward + 0.9 * worth[np.arange(n), chosen]
        expected = np.mean((y - q[np.arange(n), np.asarray(batch.action)]) ** 2)
        changed = state._replace(target=target)
        _, info = jax.jit(learner.update)(jax.random.key(1), changed, batch)
        residuals[double] = float(info.mean_squared_residual)
        assert residuals[double] == pytest.approx(expected, rel=1e-4)
    assert residuals[False] != pytest.approx(residuals[True], rel=1e-3)


# -- the pool ---------------------------------------------------------------------------------


SMALL = {
    "hidden": (8,),
    "batch_size": 8,
    "learning_starts": 8,
    "replay_capacity": 80,
    "samples": 5,
    "thinning": 1,
}


def test_pool_weights_are_step_sizes_and_the_mean_is_weighted():
    rate = {"schedule": "cyclical", "initial": 1e-3, "cycle_length": 4}
    agent = vt.SGLD(Bandit(), step_size=rate, **SMALL).learn(60)
    updates = agent.trainer.clock.updates
    found = agent.posterior([1.0])
    schedule = schedules.cyclical(1e-3, 4)
    weights = np.array([float(schedule(t)) for t in range(updates - 5, updates)])
    np.testing.assert_allclose(found.weights, weights, rtol=1e-5)
    expected = weights @ found.samples / weights.sum()
    np.testing.assert_allclose(found.mean, expected, rtol=1e-5)
    assert np.abs(found.mean - found.samples.mean(axis=0)).max() > 1e-5


def test_heads_share_the_weight_of_their_update():
    agent = vt.BootDQN(Bandit(), heads=3, **SMALL).learn(60)
    found = agent.posterior([1.0])
    assert found.samples.shape == (15, 2)
    assert found.weights.shape == (15,)
    np.testing.assert_allclose(found.mean, found.samples.mean(axis=0), rtol=1e-5)


def test_steps_of_zero_still_have_a_mean():
    """A learning rate that has fallen to zero gives samples that weigh nothing."""
    rate = {"schedule": "linear", "initial": 1e-3, "updates": 4}
    agent = vt.DQN(Bandit(), learning_rate=rate, **SMALL).learn(60)
    found = agent.posterior([1.0])
    assert not found.weights.any()
    np.testing.assert_allclose(found.mean, found.latest, rtol=1e-5)
    pool = posterior.from_samples(jnp.arange(3.0), jnp.zeros(3))
    np.testing.assert_allclose(jax.jit(posterior.weighted_mean)(pool), 1.0)
