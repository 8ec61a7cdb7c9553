"""LKTD's scalar gain is the dense Kalman gain, and its scan is the paper's double loop."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers.support import build, x64
from valuetrack import networks, priors, samplers
from valuetrack.checks import linear_gaussian as lg
from valuetrack.measurement import Measurement
from valuetrack.samplers.base import gaussian_like
from valuetrack.samplers.lktd import analysis

MODEL = lg.example(6, 4, correlation=0.5, prior_sd=0.5, pseudo_population=30, seed=134)
PRECISIONS = [("float32", 2e-6), ("float64", 1e-12)]


def precision(dtype: str) -> Any:
    return x64() if dtype == "float64" else jax.default_matmul_precision("float32")


def dense_analysis(
    phi: np.ndarray, r: np.ndarray, noise: np.ndarray, eps: float, variance: float
) -> np.ndarray:
    """phi + K (r - H phi - v) with K = B H' (H B H' + R)^-1, every matrix written out."""
    n, dimension = len(r), len(phi)
    H = np.hstack([np.zeros((n, dimension - n)), np.eye(n)])
    B, R = eps * np.eye(dimension), variance * np.eye(n)
    K = B @ H.T @ np.linalg.inv(H @ B @ H.T + R)
    return phi + K @ (r - H @ phi - noise)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("eps", [1e-4, 0.1, 10.0])
def test_analysis_equals_the_dense_formula(dtype: str, tolerance: float, eps: float) -> None:
    rng = np.random.default_rng(0)
    theta, xi, r, v = (rng.normal(size=size).astype(dtype) for size in (3, 5, 5, 5))
    dense = dense_analysis(np.concatenate([theta, xi]).astype(float), r, v, eps, 0.3)
    with precision(dtype):
        result = analysis(jnp.asarray(xi), jnp.asarray(r), jnp.asarray(v), eps, 0.3)
    assert result.dtype == dtype
    np.testing.assert_allclose(result, dense[3:], rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(dense[:3], theta)  # the gain on theta is zero


def dense_lktd(
    theta: np.ndarray, noises: list[Any], eps: float, alpha: float, weight: float
) -> np.ndarray:
    """Run Algorithm 1 with matrices of size p + n."""
    H, r, ratio = MODEL.H, MODEL.r, MODEL.ratio
    variance = MODEL.observation_sd**2
    n, p = H.shape
    tau = weight / (alpha * variance)
    # The gradient of n/N log pi(theta) - 1/2 tau |xi - H theta|^2 (N/n times n/N on theta).
    pull = np.block(
        [
            [ratio / MODEL.prior_sd**2 * np.eye(p) + tau * H.T @ H, -tau * H.T],
            [-ratio * tau * H, ratio * tau * np.eye(n)],
        ]
    )
    phi = np.concatenate([theta, r])
    for w_theta, w_xi, v in noises:
        w = np.concatenate([w_theta, w_xi])
        phi = phi - eps / 2 * pull @ phi + np.sqrt(ratio * eps) * w
        R = 2 * (1 - alpha) * variance
        phi = dense_analysis(phi, r, np.sqrt(ratio * R) * v, eps, R)
    return phi[:p]


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize(("K", "weight"), [(1, 1.0), (2, 2.0), (5, 1.0)])
def test_update_equals_the_dense_matrices(
    dtype: str, tolerance: float, K: int, weight: float
) -> None:
    eps, alpha = 0.01, 0.7
    options = {
        "alpha": alpha,
        "inner_iterations": K,
        "likelihood_weight": weight,
        "inner_power": 0.0,
    }
    with precision(dtype):
        theta = jnp.asarray([0.3, -0.2, 0.8, 0.1], dtype)
        data = (jnp.asarray(MODEL.H, dtype), jnp.asarray(MODEL.r, dtype))
        sampler = build("lktd", MODEL, eps, **options)
        key = jax.random.key(5)
        state, _ = jax.jit(sampler.step)(key, sampler.init(theta), data)
        like = (theta, data[1], data[1])
        noises = [gaussian_like(k, like) for k in jax.random.split(key, K)]
        noises = jax.tree.map(lambda x: np.asarray(x, np.float64), noises)
    assert state.params.dtype == dtype
    expected = dense_lktd(np.asarray(theta, np.float64), noises, eps, alpha, weight)
    np.testing.assert_allclose(state.params, expected, rtol=5 * tolerance, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-5), ("float64", 1e-11)])
def test_prototype_equals_the_dense_formula(dtype: str, tolerance: float) -> None:
    eps, H, r, ratio = 0.05, MODEL.H, MODEL.r, MODEL.ratio
    with precision(dtype):
        theta = jnp.asarray([0.3, -0.2, 0.8, 0.1], dtype)
        data = (jnp.asarray(H, dtype), jnp.asarray(r, dtype))
        sampler = build("lktd_prototype", MODEL, eps)
        key = jax.random.key(6)
        state, _ = jax.jit(sampler.step)(key, sampler.init(theta), data)
        w, v = (np.asarray(x, np.float64) for x in gaussian_like(key, (theta, data[1])))
    R = 2 * MODEL.observation_sd**2 * np.eye(len(r))
    B = eps * np.eye(4)
    K = B @ H.T @ np.linalg.inv(H @ B @ H.T + R)
    start = np.asarray(theta, np.float64)
    forecast = start - eps / 2 * ratio * start / MODEL.prior_sd**2 + np.sqrt(ratio * eps) * w
    expected = forecast + K @ (r - H @ forecast - np.sqrt(ratio * R[0, 0]) * v)
    np.testing.assert_allclose(state.params, expected, rtol=tolerance, atol=tolerance)


def backward(params: Any, x: np.ndarray, cotangent: np.ndarray) -> tuple[np.ndarray, Any]:
    """Return h and (grad h) cotangent of a network with one tanh layer, by hand."""
    (layer,), head = params["body"], params["head"]
    hidden = np.tanh(x @ layer["w"] + layer["b"])
    h = (hidden @ head["w"] + head["b"])[:, 0]
    to_hidden = np.outer(cotangent, head["w"][:, 0]) * (1 - hidden**2)
    gradient = {
        "body": [{"w": x.T @ to_hidden, "b": to_hidden.sum(axis=0)}],
        "head": {"w": hidden.T @ cotangent[:, None], "b": cotangent.sum(keepdims=True)},
    }
    return h, gradient


@pytest.mark.parametrize("latent", ["restart", "conditional", "conditional_tempered"])
@pytest.mark.parametrize("inner_power", [0.0, 0.9])
def test_update_of_a_network_equals_a_loop_in_numpy(latent: Any, inner_power: float) -> None:
    K, alpha, sd, prior_sd, N, eps0, weight = 4, 0.8, 0.3, 0.6, 50.0, 0.02, 2.0
    network = networks.mlp(2, 1, hidden=(4,), activation="tanh")
    measurement = Measurement(
        predict=lambda params, data: network.apply(params, data[0])[:, 0],
        observe=lambda params, data: data[1],
    )
    rng = np.random.default_rng(3)
    x, r = rng.normal(size=(7, 2)), rng.normal(size=7)
    key = jax.random.key(8)
    with x64():
        start = jax.tree.map(lambda p: p.astype("float64"), network.init(jax.random.key(1)))
        sampler = samplers.lktd(
            measurement, priors.gaussian(prior_sd), step_size=eps0, pseudo_population=N,
            observation_sd=sd, alpha=alpha, inner_iterations=K, inner_power=inner_power,
            likelihood_weight=weight, latent=latent,
        )  # fmt: skip
        data = (jnp.asarray(x), jnp.asarray(r))
        state, info = jax.jit(sampler.step)(key, sampler.init(start), data)
        noises = [gaussian_like(k, (start, data[1], data[1])) for k in jax.random.split(key, K)]
    theta, noises = jax.tree.map(np.asarray, (start, noises))

    ratio, tau, R = 7 / N, weight / (alpha * sd**2), 2 * (1 - alpha) * sd**2
    xi = r.copy()
    first_h = backward(theta, x, r)[0]
    for k, (w, w_xi, v) in enumerate(noises, start=1):
        eps = eps0 / k**inner_power
        h = backward(theta, x, r)[0]
        if latent != "restart":
            share = ratio if latent == "conditional_tempered" else 1.0
            spread = np.sqrt(share * alpha * (1 - alpha) * sd**2 / weight)
            xi = alpha * r + (1 - alpha) * h + spread * w_xi
        _, likelihood = backward(theta, x, tau * (xi - h))
        if latent == "restart":
            xi = xi - eps / 2 * ratio * tau * (xi - h) + np.sqrt(eps * ratio) * w_xi
            xi = xi + eps / (eps + R) * (r - xi - np.sqrt(ratio * R) * v)
        theta = jax.tree.map(
            lambda p, g, noise, eps=eps: (
                p + eps / 2 * (g - ratio * p / prior_sd**2) + np.sqrt(eps * ratio) * noise
            ),
            theta, likelihood, w,
        )  # fmt: skip

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13), state.params, theta
    )
    np.testing.assert_allclose(info.mean_squared_residual, np.mean((r - first_h) ** 2), rtol=1e-11)
