"""A sampler that learns what is added to a randomised prior function."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax

from valuetrack.networks import PRIOR_FUNCTION
from valuetrack.samplers.base import Info, Sampler
from valuetrack.types import Apply, Array, Params, Tree


class AroundPriorState(NamedTuple):
    """A sampler's state, whose parameters include those of the prior function."""

    params: Params
    updates: Array
    others: Tree
    """What else the sampler carries: its state, with an empty tuple for its parameters."""

    @property
    def units(self) -> Tree:
        """What the sampler knows of its own units; see :mod:`valuetrack.samplers.units`."""
        return getattr(self.others, "units", ())


def around_prior_function(build: Callable[[Apply], Sampler], apply: Apply) -> Sampler:
    r"""Sample all parameters but those of the prior function, which never change.

    The values are :math:`Q_\theta(s, a) + \beta\,p(s, a)` with a random network p of the chain's
    own; see :func:`valuetrack.networks.with_prior_function`. The prior law of :math:`\theta` pulls
    towards p, so that chains agree where they have data and differ where they have none.

    Parameters
    ----------
    build
        From a network's ``apply`` to a sampler of its parameters.
    apply
        The network with its prior function, whose parameters are under the name "prior".

    References
    ----------
    Osband, Aslanides and Cassirer (2018). Randomized prior functions for deep reinforcement
    learning. NeurIPS. https://arxiv.org/abs/1806.03335
    """

    def around(fixed: Params) -> Sampler:
        return build(lambda learned, x: apply({**learned, PRIOR_FUNCTION: fixed}, x))

    def whole(state: Tree, fixed: Params) -> AroundPriorState:
        params = {**state.params, PRIOR_FUNCTION: fixed}
        return AroundPriorState(params, state.updates, state._replace(params=()))

    def init(params: Params) -> AroundPriorState:
        learned, fixed = _parted(params)
        return whole(around(fixed).init(learned), fixed)

    def step(key: Array, state: AroundPriorState, data: Tree) -> tuple[AroundPriorState, Info]:
        learned, fixed = _parted(state.params)
        own = state.others._replace(params=learned)
        after, info = around(jax.lax.stop_gradient(fixed)).step(key, own, data)
        return whole(after, fixed), info

    return Sampler(init, step)


def _parted(params: Params) -> tuple[Params, Params]:
    """Return the parameters that are sampled, and those of the prior function."""
    learned = {name: part for name, part in params.items() if name != PRIOR_FUNCTION}
    return learned, params[PRIOR_FUNCTION]
