"""As the step falls, the exact law of each sampler tends to the posterior, or to a known other one.

Nothing is simulated here: the laws are solutions of linear equations, and that the samplers have
these laws is what ``test_stationary_law.py`` shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.samplers.support import exact_law, longest_step
from valuetrack.checks import linear_gaussian as lg
from valuetrack.samplers.sghmc import restart_temperature

HALVINGS = 8
MODELS = {
    f"N={N:g}": lg.example(8, 3, correlation=0.5, prior_sd=0.5, pseudo_population=N, seed=16)
    for N in (8.0, 32.0, 1000.0)
}
EXACT = [
    ("sgld", {"inner_iterations": 1}),
    ("sgld", {"inner_iterations": 5, "inner_power": 0.9}),
    ("sghmc", {"momentum": "carried", "friction": 0.1, "inner_iterations": 5}),
    ("sghmc", {"momentum": "carried", "friction": 0.5, "inner_iterations": 1}),
    ("lktd_prototype", {}),
    ("lktd", {"latent": "conditional", "alpha": 0.5}),
    ("lktd", {"latent": "conditional", "alpha": 0.9, "inner_iterations": 1}),
    ("lktd", {"latent": "conditional_tempered", "alpha": 0.9}),
    ("lktd", {"latent": "conditional_tempered", "alpha": 0.5, "inner_power": 0.9}),
]


def ids(value: Any) -> str:
    return ",".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else value


def distances_to(
    target: lg.Gaussian, algorithm: str, model: lg.LinearGaussian, options: dict[str, Any]
) -> np.ndarray:
    """Return W2 to the target at the longest useful step, half of it, a quarter, ..."""
    steps = longest_step(model, 0.4) * 0.5 ** np.arange(HALVINGS + 1)
    return np.array(
        [lg.wasserstein2(exact_law(algorithm, model, eps, **options), target) for eps in steps]
    )


def size_of(law: lg.Gaussian) -> float:
    return float(np.sqrt(np.trace(law.covariance)))


def assert_first_order(distances: np.ndarray, scale: float) -> None:
    assert np.all(np.diff(distances) < 0), "the distance does not fall at every halving"
    np.testing.assert_allclose(distances[-4:-1] / distances[-3:], 2, rtol=0.15)
    assert distances[-1] < 0.025 * scale


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize(("algorithm", "options"), EXACT, ids=ids)
def test_limit_is_the_posterior(
    algorithm: str, options: dict[str, Any], model: lg.LinearGaussian
) -> None:
    target = lg.posterior(model)
    assert_first_order(distances_to(target, algorithm, model, options), size_of(target))


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize(
    "options",
    [
        {"momentum": "restarted", "friction": 0.1, "inner_iterations": 5},
        {"momentum": "restarted", "friction": 0.5, "inner_iterations": 3},
        {"momentum": "restarted", "friction": 0.3, "inner_iterations": 1},
        {"momentum": "none", "friction": 0.1, "inner_iterations": 5},
        {"momentum": "none", "friction": 0.3, "inner_iterations": 1},
    ],
    ids=ids,
)
def test_sghmc_without_its_momentum_is_too_cold(
    options: dict[str, Any], model: lg.LinearGaussian
) -> None:
    friction, options = options["friction"], {**options, "inner_power": 0.0}
    temperature = friction
    if options["momentum"] == "restarted":
        temperature = restart_temperature(friction, options["inner_iterations"])
    cold = lg.posterior(model, temperature=temperature)
    assert_first_order(distances_to(cold, "sghmc", model, options), size_of(cold))

    # The posterior itself stays as far away as the temperature says.
    posterior = lg.posterior(model)
    gap = (1 - np.sqrt(temperature)) * size_of(posterior)
    assert distances_to(posterior, "sghmc", model, options)[-1] == pytest.approx(gap, rel=0.05)


def test_restart_temperature() -> None:
    assert restart_temperature(0.1, 5) == pytest.approx(0.3085, abs=1e-4)
    assert restart_temperature(0.4, 1) == pytest.approx(0.4)  # one iteration knows no momentum
    assert restart_temperature(1.0, 7) == pytest.approx(1.0)  # and full friction forgets it
    assert restart_temperature(0.1, 10_000) == pytest.approx(1.0, abs=0.01)
    rising = [restart_temperature(0.1, K) for K in (1, 2, 5, 20, 100)]
    assert np.all(np.diff(rising) > 0)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("alpha", [0.5, 0.9])
@pytest.mark.parametrize("K", [1, 5])
def test_restarted_lktd_has_another_limit(model: lg.LinearGaussian, alpha: float, K: int) -> None:
    options = {"latent": "restart", "alpha": alpha, "inner_iterations": K}
    limit = lg.posterior(model, variance=alpha * model.observation_sd**2)
    distances = distances_to(limit, "lktd", model, options)
    assert_first_order(distances, size_of(limit))

    posterior = lg.posterior(model)
    bias = lg.wasserstein2(limit, posterior)
    assert distances_to(posterior, "lktd", model, options)[-1] == pytest.approx(bias, rel=0.1)


@pytest.mark.parametrize(("algorithm", "options"), EXACT, ids=ids)
def test_covariance_scales_as_the_pseudo_population_predicts(
    algorithm: str, options: dict[str, Any]
) -> None:
    """With a nearly flat prior the posterior's covariance is sigma^2 n/N (H'H)^-1."""
    populations = np.array([8.0, 32.0, 128.0, 512.0])
    scaled, ratios = [], []
    for N in populations:
        model = lg.example(8, 3, correlation=0.5, prior_sd=1e3, pseudo_population=N, seed=16)
        # The conditional form's noise does not shrink with N: finer steps make it negligible.
        step_size = longest_step(model, 1e-4 / N if "conditional" in options.values() else 1e-4)
        covariance = exact_law(algorithm, model, step_size, **options).covariance
        scaled.append(N * covariance)
        ratios.append(covariance / lg.posterior(model).covariance)
    fisher = np.linalg.inv(model.H.T @ model.H) * model.observation_sd**2 * len(model.r)
    for matrix in scaled:
        np.testing.assert_allclose(matrix, fisher, rtol=2e-3)
    np.testing.assert_allclose(ratios, 1, rtol=2e-3)


@pytest.mark.parametrize("N", [8.0, 40.0, 400.0])
@pytest.mark.parametrize(("algorithm", "options"), EXACT, ids=ids)
def test_both_moments_match_the_posterior_for_every_pseudo_population(
    algorithm: str, options: dict[str, Any], N: float
) -> None:
    model = lg.example(8, 3, correlation=0.5, prior_sd=0.5, pseudo_population=N, seed=16)
    target = lg.posterior(model)
    law = exact_law(algorithm, model, longest_step(model, 1e-6), **options)
    np.testing.assert_allclose(law.mean, target.mean, rtol=1e-3)
    np.testing.assert_allclose(law.covariance, target.covariance, rtol=1e-3)
