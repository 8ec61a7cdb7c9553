"""KTD on a linear model is the exact Kalman filter; on a curved one, the unscented transform."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from tests.samplers.support import exact_filter, linear_batches, mutant, x64
from tests.samplers.zoo import KEY, NETWORK, many_transitions, network_params, transitions
from valuetrack import samplers
from valuetrack.checks import linear_gaussian as lg
from valuetrack.measurement import Measurement, max_sarsa, sarsa
from valuetrack.samplers.ktd import evolve, lower_root, unscented

N, P = 5, 4
START = 0.5
OPTIONS: list[dict[str, Any]] = [
    {"observation_variance": 0.09},
    {"observation_variance": 0.09, "process_variance": 0.02},
    {"observation_variance": 5.0, "forgetting": 0.05},
    {"observation_variance": 0.5, "process_variance": 0.01, "forgetting": 1e-3},
]
SHAPES = [(1.0, 2.0, 0.0), (0.1, 2.0, 0.0), (1.0, 0.0, 3.0), (0.5, 0.0, 0.0), (0.01, 2.0, 1.0)]
"""alpha, beta, kappa: the usual ones, Julier's, and with and without a weight in the centre."""


def distance_to_exact(
    build: Callable[..., Any], updates: int = 60, dtype: str = "float64", **options: Any
) -> float:
    """Return how far mean and covariance ever are from the exact ones, over many updates."""
    shape = {name: options.pop(name) for name in ("alpha", "beta", "kappa") if name in options}
    data = linear_batches(updates, N, P)
    exact = exact_filter(data, np.full(P, START), 2.0 * np.eye(P), **options)
    worst = 0.0
    filter_ = build(lg.measurement(), initial_variance=2.0, **options, **shape)
    state, step = filter_.init(jnp.full(P, START, dtype)), jax.jit(filter_.step)
    for (H, r), (mean, covariance) in zip(data, exact, strict=True):
        state, info = step(KEY, state, (jnp.asarray(H, dtype), jnp.asarray(r, dtype)))
        assert info.finite
        assert state.params.dtype == state.factor.dtype == dtype
        factor = np.asarray(state.factor, np.float64)
        found = (np.asarray(state.params), factor @ factor.T)
        for ours, theirs in zip(found, (mean, covariance), strict=True):
            worst = max(worst, np.abs(ours - theirs).max() / np.abs(theirs).max())
    return worst


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_linear_model_is_the_kalman_filter(options: dict[str, Any]) -> None:
    with x64():
        assert distance_to_exact(samplers.ktd, **options) < 1e-11
    assert distance_to_exact(samplers.ktd, dtype="float32", **options) < 1e-4


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sigma_points_do_not_matter_on_a_linear_model(shape: tuple[float, ...]) -> None:
    alpha, beta, kappa = shape
    with x64():
        distance = distance_to_exact(
            samplers.ktd, updates=10, alpha=alpha, beta=beta, kappa=kappa, **OPTIONS[3]
        )
    assert distance < 1e-9


MUTATIONS = [
    ("factor / math.sqrt(1 - forgetting)", "factor / (1 - forgetting)"),
    ("math.sqrt(process_variance) *", "math.sqrt(2 * process_variance) *"),
    ("math.sqrt(initial_variance) *", "initial_variance *"),
    ("math.sqrt(observation_variance) *", "math.sqrt(2 * observation_variance) *"),
    ("(above - below) / (2 * spread)", "(above - below) / spread"),
    ("predict(mean - spread * column)", "predict(mean)"),
    ("factor.T, batch_size", "factor, batch_size"),
    ("observed - seen.mean,", "observed,"),
    ("mean = mean + moved @", "mean = mean + 2 * moved @"),
    ("factor - moved @", "factor - 0.5 * moved @"),
    ("S + T, seen", "S, seen"),
    ("lower_root(factor.T, noise)", "lower_root(factor, noise)"),
]


@pytest.mark.parametrize(("old", "new"), MUTATIONS, ids=[new for _, new in MUTATIONS])
def test_a_wrong_factor_is_noticed(old: str, new: str) -> None:
    with x64():
        wrong = mutant(samplers.ktd, old, new)
        assert distance_to_exact(wrong, updates=10, **OPTIONS[3]) > 1e-3


def curved(theta: Any, data: Any) -> Any:
    """A measurement with curvature and correlations between its parts."""
    return jnp.sin(data[0] @ theta) + 0.3 * (data[0] @ theta) ** 2 + theta[0] * theta[1]


CURVED = Measurement(curved, lambda theta, data: data[1])


def textbook_step(
    mean: np.ndarray, factor: np.ndarray, H: np.ndarray, r: np.ndarray, *,
    observation_variance: float, alpha: float, beta: float, kappa: float,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Write the filter out with all 2p + 1 points and their weights, in NumPy."""
    p = len(mean)
    scale = alpha**2 * (p + kappa) - p  # lambda
    steps = math.sqrt(p + scale) * factor.T
    points = np.concatenate([mean[None], mean + steps, mean - steps])
    mean_weights = np.full(2 * p + 1, 1 / (2 * (p + scale)))
    mean_weights[0] = scale / (p + scale)
    weights = mean_weights.copy()
    weights[0] += 1 - alpha**2 + beta
    images = np.array([
        np.sin(H @ x) + 0.3 * (H @ x) ** 2 + x[0] * x[1] for x in points
    ])  # fmt: skip
    predicted = mean_weights @ images
    P_rr = (images - predicted).T @ np.diag(weights) @ (images - predicted)
    P_rr += observation_variance * np.eye(len(r))
    P_xr = (points - mean).T @ np.diag(weights) @ (images - predicted)
    K = P_xr @ np.linalg.inv(P_rr)
    return mean + K @ (r - predicted), factor @ factor.T - K @ P_rr @ K.T


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_curved_model_is_the_textbook_filter(shape: tuple[float, ...]) -> None:
    alpha, beta, kappa = shape
    options = {"alpha": alpha, "beta": beta, "kappa": kappa, "observation_variance": 0.4}
    with x64():
        filter_ = samplers.ktd(CURVED, initial_variance=0.3, **options)
        state, step = filter_.init(jnp.linspace(-0.5, 0.5, P)), jax.jit(filter_.step)
        for H, r in linear_batches(4, N, P):
            mean, covariance = textbook_step(
                np.asarray(state.params), np.asarray(state.factor), H, r, **options
            )
            state, _ = step(KEY, state, (jnp.asarray(H), jnp.asarray(r)))
            np.testing.assert_allclose(state.params, mean, rtol=1e-7, atol=1e-8)
            np.testing.assert_allclose(
                state.factor @ state.factor.T, covariance, rtol=1e-7, atol=1e-8
            )


CURVED_MUTATIONS = [
    ("predicted centre", "centre + shift, slopes", "centre, slopes"),
    ("twice the curvature", "(below - centre)) / 2", "(below - centre))"),
    ("no beta", "(beta - alpha**2)", "(-(alpha**2))"),
    ("no alpha", "(beta - alpha**2)", "beta"),
    ("no kappa", "math.sqrt(p + kappa)", "math.sqrt(p)"),
    ("transposed", "S = lower_root(T.T, seen.slopes)", "S = lower_root(T, seen.slopes)"),
    ("no bends", "T = lower_root(noise, seen.bends)", "T = noise"),
]


@pytest.mark.parametrize(("old", "new"), [m[1:] for m in CURVED_MUTATIONS],
                         ids=[m[0] for m in CURVED_MUTATIONS])  # fmt: skip
def test_a_wrong_transform_is_noticed(old: str, new: str) -> None:
    options = {"alpha": 0.8, "beta": 2.0, "kappa": 1.5, "observation_variance": 0.4}
    H, r = linear_batches(1, N, P)[0]
    start = np.linspace(-0.5, 0.5, P)
    mean, covariance = textbook_step(start, math.sqrt(0.3) * np.eye(P), H, r, **options)
    apart = {}
    with x64():
        for name, build in (("ours", samplers.ktd), ("wrong", mutant(samplers.ktd, old, new))):
            filter_ = build(CURVED, initial_variance=0.3, **options)
            data = (jnp.asarray(H), jnp.asarray(r))
            state, _ = jax.jit(filter_.step)(KEY, filter_.init(jnp.asarray(start)), data)
            found = np.asarray(state.factor @ state.factor.T)
            apart[name] = np.abs(state.params - mean).max() + np.abs(found - covariance).max()
    assert apart["ours"] < 1e-9
    assert apart["wrong"] > 1e-3


def test_second_moments_of_a_quadratic_are_exact() -> None:
    """With alpha = 1, beta = 0 and kappa = 2, the square of a normal number has its variance."""
    with x64():
        seen = unscented(lambda x: x**2, jnp.array([0.7]), jnp.array([[0.5]]),
                         alpha=1.0, beta=0.0, kappa=2.0)  # fmt: skip
        variance = seen.slopes.T @ seen.slopes + seen.bends.T @ seen.bends
    np.testing.assert_allclose(seen.mean, 0.7**2 + 0.5**2, rtol=1e-12)
    np.testing.assert_allclose(variance, 4 * 0.7**2 * 0.5**2 + 2 * 0.5**4, rtol=1e-12)


def test_more_parameters_than_points_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sigma points pass in groups; the last may be smaller."""
    data = (jnp.ones((3, P)), jnp.arange(3.0))
    whole = samplers.ktd(CURVED, observation_variance=1.0)
    expected, _ = whole.step(KEY, whole.init(jnp.full(P, 0.2)), data)
    monkeypatch.setattr(inspect.getmodule(samplers.ktd), "SIGMA_POINTS_AT_ONCE", 3)
    found, _ = whole.step(KEY, whole.init(jnp.full(P, 0.2)), data)
    np.testing.assert_allclose(found.params, expected.params, rtol=1e-5)
    np.testing.assert_allclose(found.factor, expected.factor, rtol=1e-4, atol=1e-6)


def test_triangles_have_a_positive_diagonal() -> None:
    rng = np.random.default_rng(0)
    blocks = [rng.normal(size=(3, 3)), rng.normal(size=(6, 3))]
    root = np.asarray(lower_root(*map(jnp.asarray, blocks)))
    np.testing.assert_allclose(root @ root.T, sum(b.T @ b for b in blocks), rtol=1e-4)
    assert (np.diag(root) > 0).all()
    assert not np.triu(root, 1).any()
    noisy = np.asarray(evolve(jnp.asarray(blocks[0]), process_variance=0.5, forgetting=0.2))
    expected = blocks[0] @ blocks[0].T / 0.8 + 0.5 * np.eye(3)
    np.testing.assert_allclose(noisy @ noisy.T, expected, rtol=1e-4, atol=1e-5)


def test_a_tiny_observation_variance_is_no_danger() -> None:
    """Where the covariance form ends in NaN: prior variances 1e10 times the observation's."""
    filter_ = samplers.ktd(lg.measurement(), observation_variance=1e-6, initial_variance=1e4)
    state, step = filter_.init(jnp.zeros(P)), jax.jit(filter_.step)
    for H, r in linear_batches(200, 12, P):
        state, info = step(KEY, state, (jnp.asarray(H), jnp.asarray(r)))
        assert info.finite
    variances = np.sum(np.asarray(state.factor, np.float64) ** 2, axis=1)
    assert (variances > 0).all()
    assert variances.max() < 1e-6


@pytest.mark.parametrize(
    ("form", "noise"),
    [
        (sarsa, {}),
        (sarsa, {"forgetting": 1e-2}),
        (max_sarsa, {"process_variance": 1e-4}),
    ],
)
def test_networks_stay_finite_over_many_updates(form: Any, noise: dict[str, float]) -> None:
    filter_ = samplers.ktd(form(NETWORK.apply), observation_variance=0.1, **noise)
    stacked = many_transitions(300)

    def body(state: Any, batch: Any) -> Any:
        return filter_.step(KEY, state, batch)

    state, info = jax.jit(lambda: jax.lax.scan(body, filter_.init(network_params()), stacked))()
    assert info.finite.all()
    eigenvalues = np.linalg.svd(np.asarray(state.factor, np.float64), compute_uv=False) ** 2
    assert eigenvalues.min() > 0
    assert eigenvalues.max() < (1.01 if not noise else 100)


def test_the_network_learns_what_it_sees() -> None:
    filter_ = samplers.ktd(sarsa(NETWORK.apply), observation_variance=0.01)
    state, step, batch = filter_.init(network_params()), jax.jit(filter_.step), transitions()
    errors = []
    for _ in range(30):
        state, info = step(KEY, state, batch)
        errors.append(float(info.mean_squared_residual))
    assert errors[-1] < 0.05 * errors[0]


def test_semi_and_full_gradients_are_the_same() -> None:
    """Sigma points see through what a gradient holds constant."""
    ends = []
    for gradient in ("semi", "full"):
        filter_ = samplers.ktd(sarsa(NETWORK.apply, gradient), observation_variance=1.0)
        state, _ = filter_.step(KEY, filter_.init(network_params()), transitions())
        ends.append(ravel_pytree(state.params)[0])
    np.testing.assert_array_equal(*ends)
