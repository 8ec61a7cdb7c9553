"""Samplers from log-densities have the law that the discrete Lyapunov equation predicts."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers.support import law_of_theta, x64
from valuetrack import samplers
from valuetrack.checks import linear_gaussian as lg
from valuetrack.checks.moments import moment_test, run_chains

MODEL = lg.example(8, 3, correlation=0.5, prior_sd=0.4, pseudo_population=32, seed=16)
STEP = 0.5 * float(np.linalg.eigvalsh(lg.posterior(MODEL).covariance)[0])
"""Half of what takes the fastest direction to its end at once: far from the limit."""
ACCEPT, REJECT = 1e-4, 1e-6


def made(**options):
    def loglikelihood(theta, datum):
        inputs, observed = datum
        return -0.5 * ((observed - inputs @ theta) / MODEL.observation_sd) ** 2

    def logprior(theta):
        return -0.5 * jnp.sum((theta / MODEL.prior_sd) ** 2)

    size = int(MODEL.pseudo_population)
    return samplers.from_log_posterior(
        logprior, loglikelihood, size, **{"step_size": STEP, **options}
    )


def p_value(sampler, update):
    updates = lg.mixing_updates(update, tolerance=1e-5) + 5
    with x64():
        samples = run_chains(sampler, MODEL, chains=2048, updates=updates, seed=5)
    return moment_test(samples, law_of_theta(update, 3)).p_value


@pytest.mark.parametrize("temperature", [1.0, 0.25])
@pytest.mark.parametrize(("method", "friction"), [("sgld", 1.0), ("sghmc", 0.3)])
def test_chains_have_the_exact_law(method, friction, temperature):
    sampler = made(method=method, friction=friction, temperature=temperature)
    law = {"step_size": STEP, "friction": friction}
    exact = lg.log_posterior_update(MODEL, temperature=temperature, **law)
    assert p_value(sampler, exact) > ACCEPT
    if temperature == 1.0:  # the test would notice
        assert p_value(sampler, lg.log_posterior_update(MODEL, temperature=1.2, **law)) < REJECT


@pytest.mark.parametrize("friction", [1.0, 0.3])
def test_the_limit_of_small_steps_is_the_tempered_posterior(friction):
    update = lg.log_posterior_update(
        MODEL, step_size=1e-3 * STEP, friction=friction, temperature=0.25
    )
    law, limit = law_of_theta(update, 3), lg.posterior(MODEL, temperature=0.25)
    assert lg.wasserstein2(law, limit) < 1e-3


def test_sgld_is_the_papers_with_its_step_in_other_units():
    theirs = lg.sgld_update(MODEL, step_sizes=[2 * STEP / MODEL.ratio])
    ours = lg.log_posterior_update(MODEL, step_size=STEP, temperature=1.0)
    assert lg.stationary(theirs).covariance == pytest.approx(law_of_theta(ours, 3).covariance)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"method": "hmc"}, "method"),
        ({"temperature": -1.0}, "temperature must not be negative"),
        ({"friction": 0.0}, r"friction must lie in \(0, 1\]"),
    ],
)
def test_wrong_options_are_refused(options, problem):
    with pytest.raises(ValueError, match=problem):
        made(**options)
