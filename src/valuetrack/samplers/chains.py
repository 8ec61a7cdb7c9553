"""Parallel chains as one sampler: they share every batch, and nothing else."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from valuetrack.measurement import TargetBatch
from valuetrack.samplers.base import Info, Sampler
from valuetrack.types import Array, Params, Tree


class ChainsState(NamedTuple):
    """The states of all chains, (chains, ...), apart from the number of updates."""

    params: Params
    updates: Array
    others: Tree
    """What else the chains carry: their states, with empty tuples for the two above."""

    @property
    def units(self) -> Tree:
        """What the chains know of their own units; see :mod:`valuetrack.samplers.units`."""
        return getattr(self.others, "units", ())


def parallel(sampler: Sampler, count: int) -> Sampler:
    r"""Run independent chains of a sampler on the same batches, as one update.

    Their parameters have a leading axis of chains, and so have those of a target network: each
    chain follows its own. With the same data and other noise, chains that began far apart show
    where the posterior has not been reached; with :func:`around_prior_function` they show what the
    data leave open.

    Parameters
    ----------
    sampler
        The sampler of one chain.
    count
        How many chains there are.

    Examples
    --------
    >>> from valuetrack import samplers
    >>> one = samplers.from_log_posterior(
    ...     lambda theta: -0.5 * theta**2, lambda theta, x: 0.0 * x, 1, step_size=0.1
    ... )
    >>> three = parallel(one, 3)
    >>> state = three.init(jnp.zeros(3))
    >>> state, info = jax.jit(three.step)(jax.random.key(0), state, jnp.zeros(1))
    >>> state.params.shape, len(set(state.params.tolist()))
    ((3,), 3)
    """
    if count < 1:
        raise ValueError(f"There is at least one chain, not {count}.")

    def split(states: Tree) -> ChainsState:
        others = states._replace(params=(), updates=())
        return ChainsState(states.params, states.updates[0], others)

    def init(params: Params) -> ChainsState:
        return split(jax.vmap(sampler.init)(params))

    def step(key: Array, state: ChainsState, data: Tree) -> tuple[ChainsState, Info]:
        updates = jnp.broadcast_to(state.updates, (count,))
        chains = state.others._replace(params=state.params, updates=updates)
        shared = TargetBatch(None, 0, None, None) if isinstance(data, TargetBatch) else None  # type: ignore[arg-type]
        keys = jax.random.split(key, count)
        after, infos = jax.vmap(sampler.step, in_axes=(0, 0, shared))(keys, chains, data)
        info = Info(
            jnp.mean(infos.step_size),
            jnp.mean(infos.mean_squared_residual),
            jnp.all(infos.finite),
            jax.tree.map(lambda errors: jnp.mean(errors, axis=0), infos.errors),
        )
        return split(after), info

    return Sampler(init, step)
