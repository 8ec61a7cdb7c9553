"""Adam behind the samplers' contract, for the baselines that minimise a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from valuetrack.samplers.base import (
    Info,
    Sampler,
    all_finite,
    as_arrays,
    check_positive,
    check_rate,
)
from valuetrack.schedules import Schedule, as_schedule
from valuetrack.types import Array, Params, Tree


class AdamState(NamedTuple):
    """The parameters, and Optax's moments of their gradient."""

    params: Params
    updates: Array
    moments: Tree


def adam(
    loss: Callable[[Params, Tree], Array],
    *,
    learning_rate: float | Schedule,
    max_gradient_norm: float | None = None,
    epsilon: float = 1e-8,
    transform_gradient: Callable[[Params], Params] | None = None,
    errors: Callable[[Params, Tree], Array] | None = None,
) -> Sampler:
    """Build an Adam optimiser with ``init``/``step`` like a sampler; the key is ignored.

    Parameters
    ----------
    loss : (params, data) -> scalar
        For a measurement model, :func:`~valuetrack.measurement.mean_squared_error`.
    learning_rate
        A number or a schedule of the update count.
    max_gradient_norm
        Clip the gradient to this global norm; no clipping by default.
    epsilon
        What is added to the root of the second moments.
    transform_gradient
        Applied to the gradient before clipping, for instance to scale that of a shared body.
    errors : (params, data) -> (n,)
        How large the error of each transition is, for :class:`~valuetrack.samplers.base.Info`.
    """
    import optax  # noqa: PLC0415 - it takes a while, and the samplers do without it

    check_rate(learning_rate=learning_rate)
    rate_at = as_schedule(learning_rate)
    clip = optax.identity()
    if max_gradient_norm is not None:
        check_positive(max_gradient_norm=max_gradient_norm)
        clip = optax.clip_by_global_norm(max_gradient_norm)
    check_positive(epsilon=epsilon)
    optimiser = optax.chain(clip, optax.adam(rate_at, eps=epsilon))

    def init(params: Params) -> AdamState:
        params = as_arrays(params)
        return AdamState(params, jnp.int32(0), optimiser.init(params))

    def step(key: Array, state: AdamState, data: Tree) -> tuple[AdamState, Info]:
        del key  # an optimiser draws nothing
        value, gradient = jax.value_and_grad(loss)(state.params, data)
        if transform_gradient is not None:
            gradient = transform_gradient(gradient)
        updates, moments = optimiser.update(gradient, state.moments, state.params)
        params = optax.apply_updates(state.params, updates)
        # Moments that overflow make all later steps zero, and the parameters look well. They are
        # finite as long as the squares of the gradient are, whose sum clipping needs anyway.
        finite = all_finite((value, params, optax.tree.norm(gradient, squared=True)))
        sizes = () if errors is None else errors(state.params, data)
        info = Info(jnp.asarray(rate_at(state.updates)), value, finite, sizes)
        return AdamState(params, state.updates + 1, moments), info

    return Sampler(init, step)
