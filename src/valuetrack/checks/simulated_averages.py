"""Chains of the library's own samplers beside the exact errors of their weighted averages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack import priors, samplers, schedules
from valuetrack.checks import decreasing_steps as exact
from valuetrack.checks import linear_gaussian as lg
from valuetrack.checks.cases import double_precision
from valuetrack.checks.decreasing_steps import BATCH, Counts, Errors, Setting
from valuetrack.checks.linear_gaussian import LinearGaussian, Matrix
from valuetrack.samplers.base import Sampler
from valuetrack.types import Array


class Simulated(NamedTuple):
    """What chains say of the errors, with the names of :class:`~.decreasing_steps.Errors`.

    ``z`` is by how many standard errors the last of each differs from the exact one, where that is
    known.
    """

    checkpoints: Counts
    value_bias: Matrix
    value_mse: Matrix
    square_bias: Matrix
    square_mse: Matrix
    z: dict[str, float]


class _Chain(NamedTuple):
    key: Array
    state: Any
    memory: Array  # rewards, (episodes, cells)
    total: Array
    value: Array
    square: Array


def simulate(
    setting: Setting, *, chains: int, checkpoints: Sequence[int], seed: int, errors: Errors
) -> Simulated:
    """Run chains from the same start, average each with its steps as weights, and compare.

    The samplers are those of :mod:`valuetrack.samplers`, with
    :func:`valuetrack.schedules.polynomial`. Every chain has data and a memory of its own. The last
    of the ``checkpoints`` must be among those of the exact ``errors``.
    """
    model = exact.corridor()
    ends = np.unique(np.asarray(checkpoints, dtype=np.int64))
    with double_precision():
        keys = jax.random.split(jax.random.key(seed), chains)
        value, square = jax.device_get(_run(setting, model, keys, ends))
    square = square - exact.directions(model).variance.mean()
    found = {
        "value_bias": value,
        "value_mse": value**2,
        "square_bias": square,
        "square_mse": square**2,
    }
    at = int(np.flatnonzero(errors.checkpoints == ends[-1])[0])
    expected = {name: float(getattr(errors, name)[at]) for name in found}
    z = {
        name: float((x[:, -1].mean() - expected[name]) / (x[:, -1].std(ddof=1) / np.sqrt(chains)))
        for name, x in found.items()
        if np.isfinite(expected[name])
    }
    return Simulated(ends, **{name: x.mean(axis=0) for name, x in found.items()}, z=z)


def build(setting: Setting, model: LinearGaussian) -> Sampler:
    """Return the sampler of a setting."""
    common: dict[str, Any] = {
        "step_size": schedules.polynomial(exact.INITIAL_STEP, setting.power),
        "pseudo_population": model.pseudo_population,
        "observation_sd": model.observation_sd,
        "inner_power": 0.0,
    }
    measurement, prior = lg.measurement(), priors.gaussian(model.prior_sd)
    if setting.sampler == "sgld":
        return samplers.sgld(measurement, prior, inner_iterations=1, **common)
    count = exact.INNER_ITERATIONS
    return samplers.lktd(measurement, prior, alpha=exact.ALPHA, inner_iterations=count, **common)


def _run(setting: Setting, model: LinearGaussian, keys: Array, ends: Counts) -> Any:
    sampler = build(setting, model)
    inputs, centre = jnp.asarray(model.H), jnp.asarray(lg.posterior(model).mean)
    bounds = np.stack([np.concatenate([[1], ends[:-1] + 1]), ends + 1], axis=1)

    def update(k: Any, chain: _Chain) -> _Chain:
        key, data_key, step_key = jax.random.split(chain.key, 3)
        memory, rewards = _observe(setting, model, data_key, chain.memory, k)
        state, info = sampler.step(step_key, chain.state, (inputs, rewards))
        off, eps = state.params - centre, info.step_size
        return _Chain(
            key, state, memory, chain.total + eps, chain.value + eps * off[0],
            chain.square + eps * jnp.mean(off**2),
        )  # fmt: skip

    def stretch(chain: _Chain, bound: Array) -> tuple[_Chain, tuple[Array, Array]]:
        chain = jax.lax.fori_loop(bound[0], bound[1], update, chain)
        return chain, (chain.value / chain.total, chain.square / chain.total)

    def one_chain(key: Array) -> Any:
        key, memory_key = jax.random.split(key)
        shape = (max(setting.capacity, 1), model.H.shape[1])
        memory = _rewards(model, memory_key, shape)
        begin = sampler.init(jnp.asarray(exact.start(model)))
        zero = jnp.zeros(())
        chain = _Chain(key, begin, memory, zero, zero, zero)
        return jax.lax.scan(stretch, chain, jnp.asarray(bounds))[1]

    return jax.jit(jax.vmap(one_chain))(keys)


def _observe(
    setting: Setting, model: LinearGaussian, key: Array, memory: Array, k: Any
) -> tuple[Array, Array]:
    """Return the memory after update k's episode came in, and the rewards of the batch."""
    new_key, draw_key = jax.random.split(key)
    cells = model.H.shape[1]
    if setting.memory == "fresh":
        return memory, _rewards(model, new_key, (BATCH * cells,))
    filled: Any = setting.capacity
    if setting.memory == "ring":
        memory = memory.at[(k - 1) % setting.capacity].set(_rewards(model, new_key, (cells,)))
        filled = jnp.minimum(k, setting.capacity)
    drawn = jax.random.randint(draw_key, (BATCH,), 0, filled)
    return memory, memory[drawn].ravel()


def _rewards(model: LinearGaussian, key: Array, shape: tuple[int, ...]) -> Array:
    return -1.0 + model.observation_sd * jax.random.normal(key, shape)
