"""AKQ is the exact Kalman filter where the covariance is diagonal, and else forgets the rest."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from tests.conftest import as_users_compile
from tests.samplers.support import exact_filter, linear_batches, mutant, x64
from tests.samplers.test_memory import network_parts, shapes_in
from tests.samplers.zoo import KEY, NETWORK, many_transitions, network_params, transitions
from valuetrack import samplers
from valuetrack.checks import linear_gaussian as lg
from valuetrack.measurement import Measurement, max_sarsa, sarsa

N, P, START = 5, 4, 0.5
Batches = list[tuple[np.ndarray, np.ndarray]]
OPTIONS: list[dict[str, Any]] = [
    {"observation_variance": 0.09},
    {"observation_variance": 0.09, "process_variance": 0.02},
    {"observation_variance": 5.0, "forgetting": 0.05},
    {"observation_variance": 0.5, "process_variance": 0.01, "forgetting": 1e-3},
]


def one_hot_batches(updates: int, n: int = 6, p: int = 3) -> Batches:
    """Each row is a multiple of one feature; several rows of a batch may have the same one."""
    rng = np.random.default_rng(1)
    rows = [np.eye(p)[rng.integers(p, size=n)] for _ in range(updates)]
    inputs = [hot * rng.normal(size=(n, 1)) for hot in rows]
    return [(H, H @ np.arange(1.0, p + 1) + 0.3 * rng.normal(size=n)) for H in inputs]


def diagonal_filter(data: Batches, mean: np.ndarray, covariance: np.ndarray, **options: Any) -> Any:
    """The exact filter, whose covariance loses all but its diagonal after each batch."""
    for batch in data:
        ((mean, covariance),) = exact_filter([batch], mean, covariance, **options)
        covariance = np.diag(np.diag(covariance))
        yield mean, covariance


def distance(
    build: Callable[..., Any], data: Batches, reference: Any, dtype: str, **options: Any
) -> float:
    """Return how far mean and variances ever are from the reference's, relatively."""
    p = data[0][0].shape[1]
    expected = reference(data, np.full(p, START), 2.0 * np.eye(p), **options)
    filter_ = build(lg.measurement(), initial_variance=2.0, **options)
    state, step = filter_.init(jnp.full(p, START, dtype)), jax.jit(filter_.step)
    worst = 0.0
    for (H, r), (mean, covariance) in zip(data, expected, strict=True):
        np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-12)
        state, info = step(KEY, state, (jnp.asarray(H, dtype), jnp.asarray(r, dtype)))
        assert info.finite
        assert state.params.dtype == state.variances.dtype == dtype
        for ours, theirs in ((state.params, mean), (state.variances, np.diag(covariance))):
            worst = max(worst, np.abs(np.asarray(ours) - theirs).max() / np.abs(theirs).max())
    return worst


CASES = {
    "one parameter, exact": (linear_batches(60, N, 1), exact_filter),
    "one-hot features, exact": (one_hot_batches(60), exact_filter),
    "correlated, diagonal": (linear_batches(60, N, P), diagonal_filter),
    "one transition, diagonal": (linear_batches(60, 1, P), diagonal_filter),
}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_linear_model(case: str, options: dict[str, Any]) -> None:
    data, reference = CASES[case]
    with x64():
        assert distance(samplers.akq, data, reference, "float64", **options) < 1e-11
    assert distance(samplers.akq, data[:20], reference, "float32", **options) < 1e-4


def test_one_transition_is_the_scalar_formula() -> None:
    """With one transition per update no matrix is needed: v - (v J)^2 / (J v J' + sigma^2)."""
    mean, v = np.full(P, START), np.full(P, 2.0)
    with x64():
        filter_ = samplers.akq(lg.measurement(), observation_variance=0.3, initial_variance=2.0)
        state, step = filter_.init(jnp.asarray(mean)), jax.jit(filter_.step)
        for H, r in linear_batches(20, 1, P):
            state, _ = step(KEY, state, (jnp.asarray(H), jnp.asarray(r)))
            (J,) = H
            S = 0.3 + sum(v * J**2)
            mean, v = mean + v * J / S * (r[0] - J @ mean), v - (v * J) ** 2 / S
        np.testing.assert_allclose(state.params, mean, rtol=1e-11)
        np.testing.assert_allclose(state.variances, v, rtol=1e-11)


def test_forgetting_correlations_matters() -> None:
    """Else the test of the diagonal filter would also accept one with the full covariance."""
    data = linear_batches(60, N, P)
    pairs = zip(
        exact_filter(data, np.zeros(P), np.eye(P), **OPTIONS[0]),
        diagonal_filter(data, np.zeros(P), np.eye(P), **OPTIONS[0]),
        strict=True,
    )
    for exact, diagonal in list(pairs)[5:]:
        assert np.abs(np.diag(exact[1]) / np.diag(diagonal[1]) - 1).max() > 0.1


MUTATIONS = [
    ("state.variances / (1 - forgetting)", "state.variances"),
    ("+ process_variance", "+ 2 * process_variance"),
    ("jnp.full_like(flat, initial_variance)", "jnp.full_like(flat, initial_variance**0.5)"),
    ("math.sqrt(observation_variance) *", "math.sqrt(2 * observation_variance) *"),
    ("W = jacobian * sd", "W = jacobian * variances"),
    ("move = sd *", "move = variances *"),
    ("1 - jnp.sum(U**2", "1 - 0.5 * jnp.sum(U**2"),
    ("1 - jnp.sum(U**2", "1 - jnp.sum(W**2"),
    ("observed - predict(mean)", "observed"),
]


@pytest.mark.parametrize(("old", "new"), MUTATIONS, ids=[new for _, new in MUTATIONS])
def test_a_wrong_factor_is_noticed(old: str, new: str) -> None:
    options = {"observation_variance": 0.5, "process_variance": 0.02, "forgetting": 0.05}
    wrong, data = mutant(samplers.akq, old, new), linear_batches(10, N, P)
    with x64():
        assert distance(wrong, data, diagonal_filter, "float64", **options) > 1e-3


def test_network_is_linearised_at_the_mean() -> None:
    """One update by hand, with the Jacobian by finite differences."""
    with x64():
        start = jax.tree.map(lambda leaf: leaf.astype("float64"), network_params())
        batch = jax.tree.map(
            lambda x: x.astype("float64") if x.dtype == "float32" else x, transitions()
        )
        mean, unravel = ravel_pytree(start)
        h = jax.jit(lambda flat: sarsa(NETWORK.apply).predict(unravel(flat), batch))
        shifts = 1e-5 * np.eye(mean.size)
        J = np.stack([(h(mean + d) - h(mean - d)) / 2e-5 for d in shifts], axis=1)
        filter_ = samplers.akq(
            sarsa(NETWORK.apply, "full"), observation_variance=0.4, initial_variance=0.3
        )
        state, _ = jax.jit(filter_.step)(KEY, filter_.init(start), batch)
        linear = [(J, np.asarray(batch.reward - h(mean) + J @ mean))]
        ((expected, covariance),) = exact_filter(
            linear, np.asarray(mean), 0.3 * np.eye(mean.size), observation_variance=0.4
        )
        np.testing.assert_allclose(ravel_pytree(state.params)[0], expected, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(state.variances, np.diag(covariance), rtol=1e-6)


def test_no_array_is_quadratic_in_p() -> None:
    inputs, batch = 61, 13
    params, measurement, p = network_parts(inputs, (83, 83, 79))
    filter_ = samplers.akq(measurement, observation_variance=1.0, forgetting=1e-3)
    state = jax.eval_shape(filter_.init, params)
    data = (
        jax.ShapeDtypeStruct((batch, inputs), jnp.float32),
        jax.ShapeDtypeStruct((batch,), jnp.float32),
    )
    key = jax.eval_shape(lambda: jax.random.key(0))
    program = jax.jit(filter_.step).lower(key, state, data).compile(as_users_compile())
    largest = max(math.prod(shape) for shape in shapes_in(program.as_text()))
    assert batch * p <= largest <= 2 * batch * p


def test_a_tiny_observation_variance_is_no_danger() -> None:
    """Variances never reach zero, from which only process noise would lift them."""
    filter_ = samplers.akq(lg.measurement(), observation_variance=1e-6, initial_variance=1e4)
    state, step = filter_.init(jnp.zeros(1)), jax.jit(filter_.step)
    for H, r in linear_batches(300, 12, 1):
        state, info = step(KEY, state, (jnp.asarray(H), jnp.asarray(r)))
        assert info.finite
        assert state.variances[0] > 0
    assert state.variances[0] < 1e-6


@pytest.mark.parametrize(
    ("form", "gradient", "noise"),
    [
        (sarsa, "semi", {}),
        (sarsa, "full", {"forgetting": 1e-2}),
        (max_sarsa, "semi", {"process_variance": 1e-4}),
        (max_sarsa, "full", {}),
    ],
)
def test_networks_stay_finite_over_many_updates(
    form: Any, gradient: str, noise: dict[str, float]
) -> None:
    measurement: Measurement = form(NETWORK.apply, gradient)
    filter_ = samplers.akq(measurement, observation_variance=1.0, initial_variance=0.1, **noise)
    stacked = many_transitions(300)

    def body(state: Any, batch: Any) -> Any:
        return filter_.step(KEY, state, batch)

    state, info = jax.jit(lambda: jax.lax.scan(body, filter_.init(network_params()), stacked))()
    assert info.finite.all()
    assert state.variances.min() > 0
    if not noise:
        assert state.variances.max() <= 0.1
