from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from valuetrack.checks import linear_gaussian as lg

MODEL = lg.example(8, 3, correlation=0.5, prior_sd=0.7, pseudo_population=40, seed=16)


def random_covariance(seed: int, p: int = 3) -> lg.Matrix:
    root = np.random.default_rng(seed).normal(size=(p, p))
    return root @ root.T + 0.1 * np.eye(p)


def log_density(model: lg.LinearGaussian, theta: lg.Matrix) -> float:
    residual = model.r - model.H @ theta
    likelihood = -0.5 * residual @ residual / model.observation_sd**2
    return float(likelihood / model.ratio - 0.5 * theta @ theta / model.prior_sd**2)


def test_posterior_is_the_normal_law_of_the_log_density() -> None:
    law = lg.posterior(MODEL)
    mode = optimize.minimize(lambda theta: -log_density(MODEL, theta), np.zeros(3), tol=1e-10).x
    np.testing.assert_allclose(law.mean, mode, atol=1e-6)

    precision = np.linalg.inv(law.covariance)
    rng = np.random.default_rng(0)
    for theta in rng.normal(size=(5, 3)):
        away = theta - law.mean
        drop = log_density(MODEL, theta) - log_density(MODEL, law.mean)
        np.testing.assert_allclose(drop, -0.5 * away @ precision @ away, rtol=1e-9)


def test_posterior_counts_every_observation_N_over_n_times() -> None:
    model = MODEL._replace(pseudo_population=3.0 * len(MODEL.r))
    tripled = model._replace(
        H=np.tile(model.H, (3, 1)), r=np.tile(model.r, 3), pseudo_population=3.0 * len(model.r)
    )
    for a, b in zip(lg.posterior(model), lg.posterior(tripled), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_posterior_variance_and_temperature() -> None:
    changed = MODEL._replace(observation_sd=np.sqrt(0.03))
    np.testing.assert_allclose(
        lg.posterior(MODEL, variance=0.03).covariance, lg.posterior(changed).covariance
    )
    cold = lg.posterior(MODEL, temperature=0.3)
    np.testing.assert_allclose(cold.covariance, 0.3 * lg.posterior(MODEL).covariance)
    np.testing.assert_array_equal(cold.mean, lg.posterior(MODEL).mean)


def test_wasserstein_distance_of_known_cases() -> None:
    S = random_covariance(0)
    here = lg.Gaussian(np.zeros(3), S)
    assert lg.wasserstein2(here, here) == pytest.approx(0, abs=1e-6)
    shifted = lg.Gaussian(np.array([3.0, 0.0, 4.0]), S)
    assert lg.wasserstein2(here, shifted) == pytest.approx(5)
    # Commuting covariances: the distance of their roots.
    scaled = lg.Gaussian(np.zeros(3), 4 * S)
    assert lg.wasserstein2(here, scaled) == pytest.approx(np.sqrt(np.trace(S)))
    a, b = np.array([1.0, 4.0, 9.0]), np.array([4.0, 1.0, 0.25])
    gap = np.linalg.norm(np.sqrt(a) - np.sqrt(b))
    diagonal = [lg.Gaussian(np.zeros(3), np.diag(v)) for v in (a, b)]
    assert lg.wasserstein2(*diagonal) == pytest.approx(gap)


def test_wasserstein_distance_is_a_distance() -> None:
    laws = [lg.Gaussian(np.full(3, float(i)), random_covariance(i)) for i in range(3)]
    d = np.array([[lg.wasserstein2(a, b) for a in laws] for b in laws])
    np.testing.assert_allclose(d, d.T, atol=1e-6)
    assert d[0, 2] <= d[0, 1] + d[1, 2]
    # It is turned and moved with the space.
    turn = np.linalg.qr(np.random.default_rng(9).normal(size=(3, 3)))[0]
    moved = [lg.Gaussian(turn @ m + 1, turn @ S @ turn.T) for m, S in laws[:2]]
    assert lg.wasserstein2(*moved) == pytest.approx(d[0, 1])


UPDATES = {
    "sgld": lg.sgld_update(MODEL, step_sizes=[0.02, 0.01]),
    "sghmc carried": lg.sghmc_update(MODEL, step_sizes=[0.01], friction=0.3, momentum="carried"),
    "sghmc restarted": lg.sghmc_update(
        MODEL, step_sizes=[0.01] * 3, friction=0.3, momentum="restarted"
    ),
    "sghmc none": lg.sghmc_update(MODEL, step_sizes=[0.01], friction=0.3, momentum="none"),
    "lktd restart": lg.lktd_update(MODEL, step_sizes=[0.02] * 5, alpha=0.8, latent="restart"),
    "lktd conditional": lg.lktd_update(MODEL, step_sizes=[0.02], alpha=0.8, latent="conditional"),
    "prototype": lg.prototype_update(MODEL, step_size=0.05),
}


@pytest.mark.parametrize("name", UPDATES)
def test_stationary_law_is_where_iterating_the_map_leads(name: str) -> None:
    update = UPDATES[name]
    mean, covariance = np.zeros(len(update.b)), np.zeros_like(update.Q)
    for _ in range(lg.mixing_updates(update, tolerance=1e-14)):
        mean = update.A @ mean + update.b
        covariance = update.A @ covariance @ update.A.T + update.Q
    law = lg.stationary(update)
    np.testing.assert_allclose(mean, law.mean, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(covariance, law.covariance, rtol=1e-9, atol=1e-11)


def test_maps_compose_like_functions_of_samples() -> None:
    rng = np.random.default_rng(1)
    first, second = (
        lg.AffineMap(rng.normal(size=(3, 3)), rng.normal(size=3), random_covariance(seed))
        for seed in (1, 2)
    )
    both = first.then(second)
    x = rng.normal(size=3)
    np.testing.assert_allclose(
        both.A @ x + both.b, second.A @ (first.A @ x + first.b) + second.b, rtol=1e-12
    )
    np.testing.assert_allclose(both.Q, second.A @ first.Q @ second.A.T + second.Q)
    kept = both.project(2)
    np.testing.assert_array_equal(kept.Q, both.Q[:2, :2])


def test_a_chain_that_diverges_has_no_law() -> None:
    with pytest.raises(ValueError, match="diverges"):
        lg.stationary(lg.sgld_update(MODEL, step_sizes=[1.0]))


def test_mixing_updates() -> None:
    slow = lg.AffineMap(np.diag([0.9, 0.1]), np.zeros(2), np.eye(2))
    assert lg.mixing_updates(slow, tolerance=1e-3) == np.ceil(np.log(1e-3) / np.log(0.9))


@pytest.mark.parametrize("eps", [1e-3, 0.05, 1.0, 20.0])
def test_prototype_is_a_preconditioned_sgld(eps: float) -> None:
    """Lemma 1: theta' = theta + eps/2 M n/N grad log pi(theta | z) + N(0, n/N eps M)."""
    H, r, ratio = MODEL.H, MODEL.r, MODEL.ratio
    eye = np.eye(3)
    R = 2 * MODEL.observation_sd**2 * np.eye(len(r))
    K = eps * H.T @ np.linalg.inv(eps * H @ H.T + R)
    M = eye - K @ H
    update = lg.prototype_update(MODEL, step_size=eps)

    # Joseph's form of the posterior covariance collapses: the noise is that of the preconditioner.
    np.testing.assert_allclose(update.Q, ratio * eps * M, rtol=1e-9, atol=1e-12)

    pull = ratio / MODEL.prior_sd**2 * eye + H.T @ H / MODEL.observation_sd**2
    push = H.T @ r / MODEL.observation_sd**2
    np.testing.assert_allclose(update.A, eye - eps / 2 * M @ pull, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(update.b, eps / 2 * M @ push, rtol=1e-9, atol=1e-12)


def variance_felt(alpha: float, ratio: float, steps: list[float], weight: float = 1.0) -> float:
    return lg.lktd_effective_variance(
        step_sizes=steps, alpha=alpha, variance=0.25, ratio=ratio, weight=weight
    )


@pytest.mark.parametrize("alpha", [0.5, 0.9])
@pytest.mark.parametrize("ratio", [1.0, 0.25, 0.01])
def test_effective_variance_limits(alpha: float, ratio: float) -> None:
    few = variance_felt(alpha, ratio, [1e-7] * 5)
    assert few == pytest.approx(alpha * 0.25, rel=1e-4)

    relax = 2 * (1 - alpha) * 0.25
    many = variance_felt(alpha, ratio, [relax / 1000] * 1_000_000)
    limit = 0.25 * (alpha + ratio * (1 - alpha))
    assert many == pytest.approx(limit, rel=2e-3)
    assert (abs(many / 0.25 - 1) < 2e-3) == (ratio == 1.0)

    between = variance_felt(alpha, ratio, [relax] * 5)
    assert few < between < limit


def test_effective_variance_of_one_iteration_is_alpha_times_the_whole() -> None:
    assert variance_felt(0.7, 0.5, [0.3]) == pytest.approx(0.7 * 0.25)
    assert variance_felt(0.7, 0.5, [0.3], weight=2.0) == pytest.approx(0.7 * 0.25 / 2)


def test_effective_variance_grows_with_the_number_of_iterations() -> None:
    felt = [variance_felt(0.6, 1.0, [0.02] * K) for K in (1, 2, 5, 10, 50, 500)]
    assert np.all(np.diff(felt) > 0)
    assert felt[-1] < 0.25


@pytest.mark.parametrize("alpha", [0.5, 0.9])
@pytest.mark.parametrize("K", [1, 5])
def test_restarted_lktd_tends_to_the_posterior_with_alpha_sigma2(alpha: float, K: int) -> None:
    target = lg.posterior(MODEL, variance=alpha * MODEL.observation_sd**2)
    distances = []
    for eps in 1e-3 * 0.5 ** np.arange(8):
        update = lg.lktd_update(MODEL, step_sizes=[eps] * K, alpha=alpha, latent="restart")
        distances.append(lg.wasserstein2(lg.stationary(update), target))
    ratios = np.array(distances[:-1]) / distances[1:]
    np.testing.assert_allclose(ratios[-3:], 2, rtol=0.05)  # first order
    assert distances[-1] < 1e-3 * lg.wasserstein2(target, lg.Gaussian(np.zeros(3), np.eye(3)))
    assert distances[-1] < 0.01 * lg.wasserstein2(target, lg.posterior(MODEL))


@pytest.mark.parametrize("ratio", [1.0, 0.2])
def test_restarted_lktd_with_many_iterations_feels_the_effective_variance(ratio: float) -> None:
    """xi forgets its start while theta hardly moves: K eps >> 2 (1 - alpha) sigma^2."""
    alpha, n = 0.5, len(MODEL.r)
    model = MODEL._replace(H=1e-3 * MODEL.H, prior_sd=2e2, pseudo_population=n / ratio)
    variance = model.observation_sd**2
    relax = 2 * (1 - alpha) * variance
    steps = [relax / 50] * 5000  # K eps is 100 times the time xi takes to forget
    law = lg.stationary(lg.lktd_update(model, step_sizes=steps, alpha=alpha, latent="restart"))
    felt = lg.lktd_effective_variance(
        step_sizes=steps, alpha=alpha, variance=variance, ratio=model.ratio
    )
    assert felt == pytest.approx(variance * (alpha + ratio * (1 - alpha)), rel=0.02)

    distances = {
        name: lg.wasserstein2(law, lg.posterior(model, variance=v))
        for name, v in {"felt": felt, "alpha": alpha * variance, "whole": variance}.items()
    }
    assert distances["felt"] < 0.15 * distances["alpha"]
    if ratio == 1.0:
        assert distances["whole"] < 0.15 * distances["alpha"]
    else:
        assert distances["felt"] < 0.15 * distances["whole"]
