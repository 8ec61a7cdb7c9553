"""LKTD's memory is linear in p and in n: the compiled program holds no p x p and no n x n array."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.conftest import as_users_compile
from valuetrack import networks, priors, samplers
from valuetrack.measurement import Measurement

pytestmark = pytest.mark.usefixtures("optimised")


def network_parts(inputs: int, hidden: Sequence[int]) -> tuple[Any, Measurement, int]:
    network = networks.mlp(inputs, 1, hidden=hidden)
    measurement = Measurement(
        predict=lambda params, data: network.apply(params, data[0])[:, 0],
        observe=lambda params, data: data[1],
    )
    params = jax.eval_shape(network.init, jax.random.key(0))
    return params, measurement, networks.parameter_count(params)


def compiled_step(
    params: Any, measurement: Measurement, inputs: int, batch: int, **options: Any
) -> Any:
    """Compile one update without ever allocating its parameters."""
    sampler = samplers.lktd(
        measurement, priors.gaussian_mixture(), step_size=1e-4, pseudo_population=1e4,
        observation_sd=0.5, inner_iterations=5, **options,
    )  # fmt: skip
    state = jax.eval_shape(sampler.init, params)
    data = (
        jax.ShapeDtypeStruct((batch, inputs), jnp.float32),
        jax.ShapeDtypeStruct((batch,), jnp.float32),
    )
    key = jax.eval_shape(lambda: jax.random.key(0))
    lowered = jax.jit(sampler.step).lower(key, state, data)
    return lowered.compile(as_users_compile())


def shapes_in(hlo: str) -> set[tuple[int, ...]]:
    found = re.findall(r"\b(?:pred|bf16|[fsu]\d+)\[([\d,]*)\]", hlo)
    return {tuple(int(size) for size in shape.split(",") if size) for shape in found}


@pytest.mark.parametrize("latent", ["restart", "conditional"])
def test_no_array_is_quadratic_in_p_or_n(latent: str) -> None:
    inputs, batch, hidden = 61, 97, (83, 83, 79)  # every width below n
    params, measurement, p = network_parts(inputs, hidden)
    assert p > batch**2
    shapes = shapes_in(compiled_step(params, measurement, inputs, batch, latent=latent).as_text())

    # The parser sees the arrays that must be there: activations, parameters, noise.
    assert {(batch, 83), (83, 83)} <= shapes
    assert any(math.prod(shape) >= p for shape in shapes)
    for shape in shapes:
        assert sum(size >= batch for size in shape) <= 1, f"an array of shape {shape}"
        # With room for the flat noise (p + 2n), but for nothing like n p = 97 p.
        assert math.prod(shape) <= 3 * (p + 2 * batch), f"an array of shape {shape}"


def test_the_search_finds_a_quadratic_array() -> None:
    """The same search on a program that does form n x n and n x p arrays."""
    inputs, batch = 61, 97
    params, measurement, p = network_parts(inputs, (83, 83, 79))

    def gram(params: Any, x: Any) -> Any:
        J = jax.jacrev(lambda q: measurement.predict(q, (x, None)))(params)
        return sum(jnp.tensordot(j.reshape(batch, -1), j.reshape(batch, -1), ((1,), (1,)))
                   for j in jax.tree.leaves(J))  # fmt: skip

    x = jax.ShapeDtypeStruct((batch, inputs), jnp.float32)
    shapes = shapes_in(jax.jit(gram).lower(params, x).compile(as_users_compile()).as_text())
    assert any(sum(size >= batch for size in shape) > 1 for shape in shapes)
    assert any(math.prod(shape) > 3 * (p + 2 * batch) for shape in shapes)


def temporary_bytes(hidden: Sequence[int], batch: int) -> tuple[int, int]:
    params, measurement, p = network_parts(16, hidden)
    return p, compiled_step(params, measurement, 16, batch).memory_analysis().temp_size_in_bytes


def test_memory_grows_linearly_with_the_parameters() -> None:
    # With one hidden layer p is proportional to the width.
    sizes = [temporary_bytes((width,), batch=8) for width in (10_000, 20_000, 40_000)]
    for (p, memory), (p_twice, memory_twice) in itertools.pairwise(sizes):
        assert p_twice == pytest.approx(2 * p, rel=1e-3)
        assert memory_twice <= 2.2 * memory
        assert memory_twice <= 200 * p_twice  # bytes, that is 50 numbers a parameter


def test_memory_grows_linearly_with_the_batch() -> None:
    sizes = [temporary_bytes((32, 32), batch)[1] for batch in (4096, 8192, 16384)]
    for memory, memory_twice in itertools.pairwise(sizes):
        assert memory_twice <= 2.2 * memory
