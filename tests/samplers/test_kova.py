"""KOVA on a linear model is the exact Kalman filter; on a network, the extended one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from tests.samplers.support import x64
from valuetrack import networks, samplers
from valuetrack.checks import linear_gaussian as lg
from valuetrack.measurement import Measurement

BATCHES, BATCH, P = 6, 5, 4


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(4)
    truth = rng.normal(size=P)
    inputs = [rng.normal(size=(BATCH, P)) for _ in range(BATCHES)]
    return [(H, H @ truth + 0.3 * rng.normal(size=BATCH)) for H in inputs]


def kalman_step(
    mean: np.ndarray,
    covariance: np.ndarray,
    J: np.ndarray,
    innovation: np.ndarray,
    *,
    observation_variance: float,
    learning_rate: float = 1.0,
    process_variance: float = 0.0,
    forgetting: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Write Algorithm S1 out, with an explicit inverse."""
    predicted = covariance / (1 - forgetting) + process_variance * np.eye(len(mean))
    S = J @ predicted @ J.T + observation_variance * np.eye(len(innovation))
    K = predicted @ J.T @ np.linalg.inv(S)
    return mean + learning_rate * K @ innovation, predicted - learning_rate * K @ S @ K.T


OPTIONS: list[dict[str, Any]] = [
    {"observation_variance": 0.09},
    {"observation_variance": 0.09, "process_variance": 0.02},
    {"observation_variance": 5.0, "forgetting": 0.05},
    {"observation_variance": 0.5, "process_variance": 0.01, "forgetting": 1e-4},
    {"observation_variance": 0.5, "learning_rate": 0.3, "forgetting": 0.01},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-4), ("float64", 1e-11)])
def test_linear_model_is_the_kalman_filter(
    options: dict[str, Any], dtype: str, tolerance: float
) -> None:
    mean, covariance = np.full(P, 0.5), 2.0 * np.eye(P)
    with x64() if dtype == "float64" else jax.default_matmul_precision("float32"):
        filter_ = samplers.kova(lg.measurement(), initial_variance=2.0, **options)
        state = filter_.init(jnp.asarray(mean, dtype))
        for H, r in batches():
            data = (jnp.asarray(H, dtype), jnp.asarray(r, dtype))
            state, info = jax.jit(filter_.step)(jax.random.key(0), state, data)
            mean, covariance = kalman_step(mean, covariance, H, r - H @ mean, **options)
            assert state.params.dtype == state.covariance.dtype == dtype
            np.testing.assert_allclose(state.params, mean, rtol=tolerance, atol=tolerance)
            np.testing.assert_allclose(state.covariance, covariance, rtol=tolerance, atol=tolerance)
            np.testing.assert_array_equal(state.covariance, state.covariance.T)
            assert info.finite


def test_filter_ends_at_the_posterior_of_all_batches() -> None:
    """Without state noise the order of the data is no matter: the end is ridge regression."""
    H = np.concatenate([H for H, _ in batches()])
    r = np.concatenate([r for _, r in batches()])
    model = lg.LinearGaussian(H, r, 0.3, np.sqrt(2.0), pseudo_population=len(r))
    with x64():
        filter_ = samplers.kova(lg.measurement(), observation_variance=0.3**2, initial_variance=2.0)
        state, step = filter_.init(jnp.zeros(P)), jax.jit(filter_.step)
        for batch in batches():
            state, _ = step(jax.random.key(0), state, jax.tree.map(jnp.asarray, batch))
    np.testing.assert_allclose(state.params, lg.posterior(model).mean, rtol=1e-10)
    np.testing.assert_allclose(state.covariance, lg.posterior(model).covariance, rtol=1e-9)


def test_network_is_the_extended_kalman_filter() -> None:
    network = networks.mlp(2, 1, hidden=(5,), activation="tanh")
    measurement = Measurement(
        predict=lambda params, data: network.apply(params, data[0])[:, 0],
        observe=lambda params, data: data[1],
    )
    options = {"observation_variance": 0.4, "process_variance": 1e-3, "learning_rate": 0.7}
    rng = np.random.default_rng(5)
    with x64():
        start = jax.tree.map(lambda p: p.astype("float64"), network.init(jax.random.key(2)))
        mean, unravel = ravel_pytree(start)
        mean, covariance = np.asarray(mean), np.eye(mean.size)
        filter_ = samplers.kova(measurement, **options)
        state, step = filter_.init(start), jax.jit(filter_.step)
        for _ in range(3):
            x, r = rng.normal(size=(6, 2)), rng.normal(size=6)

            def h(flat: np.ndarray, x: np.ndarray = x) -> np.ndarray:
                params = jax.tree.map(np.asarray, unravel(jnp.asarray(flat)))
                hidden = np.tanh(x @ params["body"][0]["w"] + params["body"][0]["b"])
                return (hidden @ params["head"]["w"] + params["head"]["b"])[:, 0]

            shifts = 1e-5 * np.eye(mean.size)
            J = np.stack([(h(mean + d) - h(mean - d)) / 2e-5 for d in shifts], axis=1)
            mean, covariance = kalman_step(mean, covariance, J, r - h(mean), **options)
            data = (jnp.asarray(x), jnp.asarray(r))
            state, _ = step(jax.random.key(0), state, data)
        np.testing.assert_allclose(ravel_pytree(state.params)[0], mean, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(state.covariance, covariance, rtol=1e-6, atol=1e-8)


def test_reference_setting_keeps_a_valid_covariance() -> None:
    filter_ = samplers.kova(lg.measurement(), observation_variance=BATCH, forgetting=1e-4)
    state, step = filter_.init(jnp.zeros(P)), jax.jit(filter_.step)
    for _ in range(20):
        for batch in batches():
            state, _ = step(jax.random.key(0), state, jax.tree.map(jnp.asarray, batch))
    assert np.linalg.eigvalsh(np.asarray(state.covariance, np.float64))[0] > 0
