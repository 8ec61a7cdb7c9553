"""Every sampler, built the same way, and something to sample: the contract tests' menagerie."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from valuetrack import networks, priors, samplers
from valuetrack.measurement import Measurement, mean_squared_error, sarsa
from valuetrack.samplers import Sampler
from valuetrack.types import Transition

Factory = Callable[..., Sampler]
STEP = 1e-3


def posterior_sampler(name: str, **fixed: Any) -> Factory:
    def factory(measurement: Measurement, **options: Any) -> Sampler:
        options = {"step_size": STEP, "pseudo_population": 100, "observation_sd": 0.5, **options}
        return getattr(samplers, name)(measurement, priors.gaussian(1.0), **{**fixed, **options})

    return factory


def from_densities(method: str) -> Factory:
    def factory(measurement: Measurement, **options: Any) -> Sampler:
        def loglikelihood(theta: Any, datum: Any) -> Any:
            batch = jax.tree.map(lambda leaf: leaf[None], datum)
            error = measurement.observe(theta, batch) - measurement.predict(theta, batch)
            return -jnp.sum(error**2)  # whose mean is the mean square that Info tells

        def logprior(theta: Any) -> Any:
            return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(theta))

        options = {"step_size": STEP, **options}
        return samplers.from_log_posterior(logprior, loglikelihood, 100, method=method, **options)

    return factory


def kalman_filter(name: str, **fixed: Any) -> Factory:
    def factory(measurement: Measurement, **options: Any) -> Sampler:
        options = {"observation_variance": 1.0, **fixed, **options}
        return getattr(samplers, name)(measurement, **options)

    return factory


def optimiser(measurement: Measurement, **options: Any) -> Sampler:
    return samplers.adam(mean_squared_error(measurement), **{"learning_rate": STEP, **options})


STOCHASTIC: dict[str, Factory] = {
    **{
        f"lktd {latent}": posterior_sampler("lktd", latent=latent)
        for latent in ("restart", "conditional", "conditional_tempered")
    },
    "lktd_prototype": posterior_sampler("lktd_prototype"),
    "sgld": posterior_sampler("sgld"),
    **{
        f"sghmc {momentum}": posterior_sampler("sghmc", momentum=momentum)
        for momentum in ("carried", "restarted", "none")
    },
    **{f"from_log_posterior {method}": from_densities(method) for method in ("sgld", "sghmc")},
}
FACTORIES: dict[str, Factory] = {
    **STOCHASTIC,
    "kova plain": kalman_filter("kova"),
    "kova forgetting": kalman_filter("kova", forgetting=1e-4),
    "ktd plain": kalman_filter("ktd"),
    "ktd noise": kalman_filter("ktd", process_variance=1e-3, forgetting=1e-4),
    "akq": kalman_filter("akq", process_variance=1e-3, forgetting=1e-4),
    "adam": optimiser,
}
every_sampler = pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
ONE_OF_EACH = (
    "lktd restart",
    "lktd conditional",
    "lktd_prototype",
    "sgld",
    "sghmc carried",
    "kova forgetting",
    "ktd noise",
    "akq",
    "adam",
)
one_of_each = pytest.mark.parametrize(
    "factory", [FACTORIES[name] for name in ONE_OF_EACH], ids=ONE_OF_EACH
)
"""For what does not depend on how one of them treats its noise or its momentum."""
every_stochastic = pytest.mark.parametrize("factory", STOCHASTIC.values(), ids=STOCHASTIC)

NETWORK = networks.mlp(2, 3, hidden=(4,), activation="tanh")
ON_NETWORK = sarsa(NETWORK.apply, gradient="full")
KEY = jax.random.key(0)


def transitions(n: int = 6, seed: int = 0) -> Transition:
    rng = np.random.default_rng(seed)
    return Transition(
        observation=jnp.asarray(rng.normal(size=(n, 2)), jnp.float32),
        action=jnp.asarray(rng.integers(3, size=n)),
        reward=jnp.asarray(rng.normal(size=n), jnp.float32),
        discount=jnp.full(n, 0.9, jnp.float32),
        next_observation=jnp.asarray(rng.normal(size=(n, 2)), jnp.float32),
        next_action=jnp.asarray(rng.integers(3, size=n)),
        next_mask=jnp.ones((n, 3), bool),
    )


@functools.cache
def many_transitions(count: int) -> Transition:
    """Return batches from different seeds, one after the other."""
    batches = [transitions(seed=seed) for seed in range(count)]
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *batches)


def network_params() -> Any:
    return NETWORK.init(jax.random.key(1))


def nested_params(dtype: Any = jnp.float32) -> Any:
    return {
        "list": [jnp.ones((2, 3), dtype), (jnp.full(4, 0.5, dtype),)],
        "scalar": jnp.asarray(0.3, dtype),
        "none": None,
    }


def predict_nested(params: Any, data: Any) -> Any:
    matrix, (vector,) = params["list"]
    return jnp.sin(data[0] @ matrix.sum(axis=0)) + vector.sum() * data[0][:, 0] + params["scalar"]


ON_NESTED = Measurement(predict_nested, lambda params, data: data[1])


def nested_data(dtype: Any = jnp.float32) -> Any:
    rng = np.random.default_rng(2)
    return jnp.asarray(rng.normal(size=(5, 3)), dtype), jnp.asarray(rng.normal(size=5), dtype)


@functools.cache
def on_network(factory: Factory) -> Sampler:
    """Build the sampler once, with its step compiled once, for all tests that change nothing."""
    sampler = factory(ON_NETWORK)
    return sampler._replace(step=jax.jit(sampler.step))
