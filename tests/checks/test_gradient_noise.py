"""The closed form of LKTD's gradient noise."""

from __future__ import annotations

import numpy as np
import pytest

from valuetrack.checks import gradient_noise as exact
from valuetrack.checks.linear_gaussian import lktd_effective_variance

STEPS = [0.02, 0.01, 0.005]
MODEL = {"alpha": 0.7, "variance": 0.25, "ratio": 0.4, "weight": 2.0}


def test_the_share_is_that_of_the_effective_variance():
    felt = lktd_effective_variance(step_sizes=STEPS, **MODEL)
    pull = exact.latent_pull(STEPS, **MODEL)
    assert pull.share == pytest.approx(MODEL["alpha"] * MODEL["variance"] / (felt * 2.0))


@pytest.mark.parametrize("latent", ["restart", "conditional", "conditional_tempered"])
def test_share_and_variance_are_those_of_simulated_latents(latent):
    rng = np.random.default_rng(0)
    alpha, variance, ratio, weight = MODEL.values()
    precision, analysis = weight / (alpha * variance), 2 * (1 - alpha) * variance
    delta, draws = 1.5, 200_000
    above, total = np.full(draws, delta), np.zeros(draws)  # xi - h, and its weighted sum
    for eps in STEPS:
        if latent != "restart":
            heat = ratio if latent == "conditional_tempered" else 1.0
            sd = np.sqrt(heat * alpha * (1 - alpha) * variance / weight)
            above = alpha * delta + sd * rng.normal(size=draws)
        total += eps * above
        above = above - eps / 2 * ratio * precision * above
        above += np.sqrt(eps * ratio) * rng.normal(size=draws)
        gain = eps / (eps + analysis)
        above += gain * (delta - above - np.sqrt(ratio * analysis) * rng.normal(size=draws))
    total /= sum(STEPS)
    pull = exact.latent_pull(STEPS, **MODEL, latent=latent)
    assert total.mean() == pytest.approx(pull.share * delta, abs=5 * total.std() / draws**0.5)
    assert total.var() == pytest.approx(pull.variance, rel=5 * (2 / draws) ** 0.5)


def test_batches_of_a_small_data_set():
    rng = np.random.default_rng(1)
    gradients, residuals = rng.normal(size=(7, 3)), rng.normal(size=7)
    found = exact.batches(gradients, residuals)
    scatter = np.cov((gradients * residuals[:, None]).T, bias=True).trace()
    assert found.scatter == pytest.approx(scatter)
    assert found.gradient_square == pytest.approx(np.mean(np.sum(gradients**2, axis=1)))


@pytest.mark.parametrize("latent", ["restart", "conditional", "conditional_tempered"])
def test_no_alpha_is_less_noisy_than_sgld_at_equal_drift(latent):
    data = exact.Batches(gradient_square=2.0, scatter=0.5)
    for alpha in np.linspace(0.05, 0.95, 19):
        model = {**MODEL, "alpha": float(alpha)}
        pull = exact.latent_pull(STEPS, **model, latent=latent)
        noise = exact.noise_ratio(data, pull, float(alpha))
        assert noise.same_drift > 1
        assert noise.same_step == pytest.approx(noise.same_drift * noise.drift**2)
        assert noise.drift == pytest.approx(1) if latent != "restart" else noise.drift > 1


def test_one_restarted_iteration_is_sgld_with_a_smaller_variance():
    data = exact.Batches(gradient_square=2.0, scatter=0.5)
    noise = exact.noise_ratio(data, exact.latent_pull([0.01], **MODEL), 0.7)
    assert noise == pytest.approx((1 / 0.49, 1.0, 1 / 0.7))
