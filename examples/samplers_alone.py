"""Use a sampler without reinforcement learning: Bayesian regression with LKTD."""

import jax
import jax.numpy as jnp

from valuetrack import networks, posterior, priors, samplers
from valuetrack.measurement import Measurement

x = jnp.linspace(-1, 1, 64)[:, None]
truth = jnp.sin(3 * x[:, 0])
outputs = truth + 0.1 * jax.random.normal(jax.random.key(0), truth.shape)

network = networks.mlp(1, 1, hidden=(16,), activation="tanh")
measurement = Measurement(
    predict=lambda theta, data: network.apply(theta, data[0])[:, 0],  # h(x; theta)
    observe=lambda theta, data: data[1],
)
sampler = samplers.lktd(
    measurement, priors.gaussian(1.0), step_size=1e-5, pseudo_population=64,
    observation_sd=0.1, latent="conditional_tempered",
)  # fmt: skip


def update(carry, key):
    state, pool = carry
    state, info = sampler.step(key, state, (x, outputs))
    pool = posterior.add(pool, measurement.predict(state.params, (x, outputs)), info.step_size)
    return (state, pool), info.finite


start = sampler.init(network.init(jax.random.key(1))), posterior.init(truth, size=2_000)
keys = jax.random.split(jax.random.key(2), 10_000)
(state, pool), finite = jax.lax.scan(update, start, keys)

low, high = posterior.credible_interval(pool, level=0.95)
print(f"finite: {finite.all()}, mean width {jnp.mean(high - low):.2f}")
