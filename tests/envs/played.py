"""Episodes of an environment in JAX, to be held against another account of it."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np


def play(env: Any, uniforms: Any, steps: int, seed: int, copies: int, go: float = 0.5) -> Any:
    """Play side by side with random actions, action 1 with chance ``go``, and never reset.

    Returns the first states, the actions and uniforms (steps, copies, ...), and the steps' results.
    """
    draws = np.random.default_rng(seed)
    actions = (draws.random((steps, copies)) < go).astype(np.int32)
    starts = uniforms((copies, env.reset_uniforms))
    noise = uniforms((steps, copies, env.step_uniforms))

    @jax.jit
    def run(starts, actions, noise):
        def body(states, given):
            result = jax.vmap(env.step)(states, *given)
            return result.state, result

        first = jax.vmap(env.reset)(starts)
        return first, jax.lax.scan(body, first, (actions, noise))[1]

    first, results = jax.device_get(run(starts, actions, noise))
    return first, actions, starts, noise, results


def row(results: Any, step: int, copy: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[step, copy], results)


def uniforms(seed: int) -> Any:
    return partial(np.random.default_rng(seed).random, dtype=np.float32)
