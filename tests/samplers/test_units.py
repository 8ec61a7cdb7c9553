"""The units of a sampler: preconditioned laws, learning rates, an estimated sigma, a growing N."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers.support import exact_update, law_of_theta, longest_step, x64
from valuetrack import measurement, networks, priors, samplers
from valuetrack.checks import linear_gaussian as lg
from valuetrack.checks.moments import moment_test, run_chains
from valuetrack.types import Transition

MODEL = lg.example(8, 3, correlation=0.5, prior_sd=0.4, pseudo_population=32, seed=16)
DIAGONAL = np.array([1.0, 0.3, 0.6])
CHAINS = 2048
"""Enough to notice noise with a wrong power of the preconditioner: the second test."""
ACCEPT, REJECT = 1e-4, 1e-6
RATE = 1e-3

CASES: list[tuple[str, float, dict[str, Any]]] = [
    ("sgld", 0.7, {"inner_iterations": 1}),
    ("sgld", 0.5, {"inner_iterations": 3}),
    ("sghmc", 0.4, {"momentum": "carried", "friction": 0.5, "inner_iterations": 2}),
    ("sghmc", 0.4, {"momentum": "restarted", "friction": 0.3}),
    ("sghmc", 0.3, {"momentum": "none", "friction": 0.3}),
    ("lktd", 0.5, {"latent": "restart", "alpha": 0.5, "inner_iterations": 3}),
    ("lktd", 0.5, {"latent": "conditional", "alpha": 0.5, "inner_iterations": 3}),
]


def build(algorithm: str, model: lg.LinearGaussian = MODEL, **options: Any) -> samplers.Sampler:
    given = {
        "pseudo_population": model.pseudo_population,
        "observation_sd": model.observation_sd,
        **options,
    }
    make = getattr(samplers, algorithm)
    return make(lg.measurement(), priors.gaussian(model.prior_sd), **given)


def p_value(algorithm: str, step: float, options: dict[str, Any], law: lg.AffineMap) -> float:
    updates = lg.mixing_updates(law, tolerance=1e-5) + 5
    assert updates < 300
    with x64():
        given = samplers.fixed(jnp.asarray(DIAGONAL))
        sampler = build(algorithm, step_size=step, preconditioner=given, **options)
        drawn = run_chains(sampler, MODEL, chains=CHAINS, updates=updates, seed=3)
    return moment_test(drawn, law_of_theta(law, 3)).p_value


@pytest.mark.parametrize(("algorithm", "fraction", "options"), CASES)
def test_the_law_under_a_given_preconditioner_is_exact(algorithm, fraction, options) -> None:
    step = longest_step(MODEL, fraction)
    right = exact_update(algorithm, MODEL, step, diagonal=DIAGONAL, **options)
    assert p_value(algorithm, step, options, right) > ACCEPT


def test_noise_with_the_wrong_power_of_the_preconditioner_is_rejected() -> None:
    step = longest_step(MODEL, 0.7)
    right = exact_update("sgld", MODEL, step, diagonal=DIAGONAL, inner_iterations=1)
    for power in (0, 2):
        wrong = right._replace(Q=step * MODEL.ratio * np.diag(DIAGONAL**power))
        assert p_value("sgld", step, {"inner_iterations": 1}, wrong) < REJECT


def test_preconditioned_small_steps_sample_the_posterior() -> None:
    step = longest_step(MODEL, 0.01)
    update = exact_update("sgld", MODEL, step, diagonal=DIAGONAL, inner_iterations=1)
    law, posterior = law_of_theta(update, 3), lg.posterior(MODEL)
    np.testing.assert_allclose(law.mean, posterior.mean, rtol=1e-6)
    np.testing.assert_allclose(law.covariance, posterior.covariance, rtol=0.02, atol=1e-4)


def test_rmsprop_near_the_posterior() -> None:
    """With a long memory its diagonal hardly moves, and the law is that of a given one."""
    with x64():
        rmsprop = samplers.rmsprop(decay=0.999, floor=1.0)
        sampler = build("sgld", learning_rate=0.02, preconditioner=rmsprop, inner_iterations=1)
        drawn = run_chains(sampler, MODEL, chains=CHAINS, updates=1_500, seed=5)
    posterior = lg.posterior(MODEL)
    sd = np.sqrt(np.diag(posterior.covariance))
    np.testing.assert_allclose(drawn.mean(axis=0), posterior.mean, atol=0.1 * sd.min())
    np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=0.1)


@pytest.mark.parametrize("algorithm", ["lktd", "sgld", "sghmc"])
def test_a_learning_rate_is_a_step_on_the_mean_gradient(algorithm: str) -> None:
    rate, n = 0.01, len(MODEL.r)
    step = 2 * rate * MODEL.observation_sd**2 / n
    one, other = build(algorithm, learning_rate=rate), build(algorithm, step_size=step)
    data = (jnp.asarray(MODEL.H), jnp.asarray(MODEL.r))
    after = [
        jax.jit(s.step)(jax.random.key(0), s.init(jnp.zeros(3)), data)[0].params
        for s in (one, other)
    ]
    np.testing.assert_allclose(*after, rtol=1e-5)


@pytest.mark.parametrize("algorithm", ["lktd", "sgld", "sghmc"])
def test_rmsprop_takes_the_unit_of_the_inputs_out_of_the_step(algorithm) -> None:
    """Inputs times c, parameters divided by c: the same predictions, whatever c is."""

    def predictions(c: float) -> np.ndarray:
        model = MODEL._replace(H=c * MODEL.H, prior_sd=MODEL.prior_sd / c)
        sampler = build(
            algorithm,
            model,
            learning_rate=0.02 / c,
            preconditioner=samplers.rmsprop(),
            inner_iterations=1,
        )
        data = (jnp.asarray(model.H, jnp.float32), jnp.asarray(model.r, jnp.float32))
        state, step = sampler.init(jnp.zeros(3)), jax.jit(sampler.step)
        for key in jax.random.split(jax.random.key(1), 30):
            state, _ = step(key, state, data)
        return np.asarray(data[0] @ state.params)

    expected = predictions(1.0)
    for scale in (2.0**10, 2.0**-10):
        np.testing.assert_allclose(predictions(scale), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("algorithm", ["lktd", "sgld", "sghmc"])
def test_the_estimate_of_sigma_is_that_of_the_residuals(algorithm: str) -> None:
    rng = np.random.default_rng(0)
    truth, sd = np.array([0.5, -1.0, 0.3]), 0.2
    sampler = build(algorithm, learning_rate=0.02, observation_sd="estimated")
    keys = jax.random.split(jax.random.key(2), 3_000)
    H = rng.normal(size=(3_000, 50, 3))
    r = H @ truth + sd * rng.normal(size=(3_000, 50))

    @jax.jit
    def run(H: Any, r: Any) -> Any:
        start = sampler.init(jnp.zeros(3))
        each = (keys, H, r)
        return jax.lax.scan(lambda s, t: (sampler.step(t[0], s, t[1:])[0], None), start, each)[0]

    total, count = run(jnp.asarray(H), jnp.asarray(r)).units.residuals
    assert np.sqrt(total / count) == pytest.approx(sd, rel=0.1)


def test_a_pseudo_population_that_grows() -> None:
    """N is asked for by the number of updates made; a large N makes little noise."""
    data = (jnp.asarray(MODEL.H), jnp.asarray(MODEL.r))

    def spread(population: Any, updates: int) -> float:
        sampler = build("sgld", step_size=1e-3, pseudo_population=population, inner_iterations=1)
        state = sampler.init(jnp.zeros(3))._replace(updates=jnp.int32(updates))
        keys = jax.random.split(jax.random.key(0), 500)
        moved = jax.jit(jax.vmap(lambda key: sampler.step(key, state, data)[0].params))(keys)
        return float(np.std(np.asarray(moved), axis=0).mean())

    def growing(updates: Any) -> Any:
        return 32.0 * (1 + updates)

    assert spread(growing, 0) == pytest.approx(spread(32.0, 0))
    assert spread(growing, 99) == pytest.approx(spread(3200.0, 0), rel=1e-3)


def test_parameters_without_gradient_keep_bounded_noise() -> None:
    """An input that is always zero: noise moves its parameter no further than the rate."""
    H = np.concatenate([MODEL.H, np.zeros((len(MODEL.H), 1))], axis=1)
    data = (jnp.asarray(H, jnp.float32), jnp.asarray(MODEL.r, jnp.float32))
    for floor in (1e-8, 1.0):
        sampler = build(
            "sgld", learning_rate=RATE, preconditioner=samplers.rmsprop(floor=floor),
            inner_iterations=1,
        )  # fmt: skip
        step, state = jax.jit(sampler.step), sampler.init(jnp.zeros(4))
        path = []
        for key in jax.random.split(jax.random.key(0), 200):
            state, _ = step(key, state, data)
            path.append(np.asarray(state.params))
        moves = np.diff(np.array(path), axis=0).std(axis=0)
        assert 0 < moves[3] < 1.2 * RATE
        assert moves[:3].max() > 0.5 * RATE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either a step_size or a learning_rate"),
        ({"step_size": 1e-3, "learning_rate": 1e-3}, "either a step_size or a learning_rate"),
        ({"learning_rate": -1.0}, "learning_rate must be a positive number"),
        ({"step_size": 1e-3, "observation_sd": "guessed"}, "a number or 'estimated'"),
        ({"step_size": 1e-3, "pseudo_population": 0}, "pseudo_population must be"),
    ],
)
def test_units_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    for algorithm in ("lktd", "sgld", "sghmc"):
        with pytest.raises(ValueError, match=message):
            build(algorithm, **options)


def test_preconditioners_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="decay must lie"):
        samplers.rmsprop(decay=1.0)
    with pytest.raises(ValueError, match="floor must be"):
        samplers.rmsprop(floor=0.0)


@functools.cache
def scaled_step(algorithm: str, **options: Any) -> Any:
    """Return the start of a network with a last layer, and an update that is compiled once."""
    network = networks.mlp(3, 2, (8,), init="he")
    sampler = getattr(samplers, algorithm)(
        measurement.sarsa(network.apply),
        priors.he(),
        learning_rate=1e-2,
        pseudo_population=1_000.0,
        observation_sd="estimated",
        preconditioner=samplers.rmsprop(),
        inner_iterations=1,
        **options,
    )
    return sampler.init(network.init(jax.random.key(0))), jax.jit(sampler.step)


@functools.cache
def scaled_chain(algorithm: str, scale: float, **options: Any) -> dict[str, np.ndarray]:
    """Learn from rewards times ``scale``; return the parameters."""
    (state, step), rng = scaled_step(algorithm, **options), np.random.default_rng(1)
    for key in jax.random.split(jax.random.key(2), 60):
        seen, after = rng.normal(size=(2, 16, 3)).astype(np.float32)
        batch = Transition(
            observation=jnp.asarray(seen),
            action=jnp.asarray(rng.integers(0, 2, 16)),
            reward=jnp.asarray(scale * rng.normal(size=16) + scale, jnp.float32),
            discount=jnp.full(16, 0.9),
            next_observation=jnp.asarray(after),
            next_action=jnp.asarray(rng.integers(0, 2, 16)),
            next_mask=jnp.ones((16, 2), bool),
        )
        state, _ = step(key, state, batch)
    return jax.tree.map(np.asarray, state.params)


@pytest.mark.parametrize("scale", [2.0**10, 2.0**-10])
@pytest.mark.parametrize("algorithm", ["lktd", "sgld", "sghmc"])
def test_the_unit_of_the_rewards_is_that_of_the_last_layer_alone(algorithm, scale) -> None:
    one = scaled_chain(algorithm, 1.0, value_scale="estimated")
    other = scaled_chain(algorithm, scale, value_scale="estimated")
    bodies = jax.tree.leaves(one["body"]), jax.tree.leaves(other["body"])
    for mine, theirs in zip(*bodies, strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=2e-2, atol=2e-3)
    for name in ("w", "b"):
        head, scaled = one["head"][name], other["head"][name] / scale
        np.testing.assert_allclose(scaled, head, rtol=2e-2, atol=2e-3 * np.abs(head).max())


def test_without_a_scale_the_unit_matters() -> None:
    one, other = (scaled_chain("sgld", scale)["head"]["w"] for scale in (1.0, 2.0**10))
    assert not np.allclose(other / 2.0**10, one, rtol=0.2, atol=0.05)


def test_a_last_layer_in_units_of_the_values_begins_with_the_first_reward() -> None:
    """Until then nothing is known of them, and the scale is 1."""
    network = networks.mlp(3, 2, (8,))
    sampler = samplers.sgld(
        measurement.sarsa(network.apply), priors.he(), learning_rate=1e-8,
        pseudo_population=1e6, observation_sd="estimated", value_scale="estimated",
        inner_iterations=1,
    )  # fmt: skip
    state = sampler.init(network.init(jax.random.key(0)))
    first = np.asarray(state.params["head"]["w"])
    nothing = Transition(
        observation=jnp.ones((4, 3)), action=jnp.zeros(4, int), reward=jnp.zeros(4),
        discount=jnp.full(4, 0.6), next_observation=jnp.ones((4, 3)),
        next_action=jnp.zeros(4, int), next_mask=jnp.ones((4, 2), bool),
    )  # fmt: skip
    state, _ = sampler.step(jax.random.key(1), state, nothing)
    np.testing.assert_allclose(state.params["head"]["w"], first, atol=1e-4)
    paid = nothing._replace(reward=jnp.full(4, 8.0))
    state, _ = sampler.step(jax.random.key(2), state, paid)
    forgotten = 1 - 1 / 1_000
    scale = np.sqrt(4 * 64 / (1 - 0.36) / (4 + 4 * forgotten))
    np.testing.assert_allclose(state.params["head"]["w"], scale * first, rtol=1e-3, atol=1e-3)
