"""The few types that every part of the library shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

Array = jax.Array
"""An array on the device."""
NDArray = npt.NDArray[Any]
"""An array on the host, of any dtype."""
AnyArray = Array | NDArray
"""An array on either."""
Arrays = Mapping[str, NDArray]
"""Arrays by name."""
DType = np.dtype[Any]
"""Of arrays on the host."""
Keywords = dict[str, Any]
"""Values of any type by name: keyword arguments and options."""
Json = dict[str, Any]
"""A JSON object or a table of a TOML file, such as options and manifests."""
Floats = npt.NDArray[np.floating]
Bools = npt.NDArray[np.bool_]
Tree = Any
"""A pytree: arrays in nested tuples, lists and dicts. Python's types cannot say what is inside."""
Params = Tree
"""A pytree of floating-point arrays: the network's parameters, theta in the paper."""
Scalar = int | float | Array
"""A number, which compiled code may have traced."""

Apply = Callable[[Params, Array], Array]
"""A network as a function: (parameters, observations) -> outputs."""


class Transition(NamedTuple):
    """What one environment step leaves behind; every field may carry leading batch axes.

    ``discount`` is gamma * (1 - terminated): zero after a terminal step, gamma after any other,
    a truncated one included, so that truncation bootstraps. ``next_action`` is the action really
    taken in the next state, which the SARSA form of h needs; ``next_mask`` says which actions are
    legal there. A form that does not need a field ignores it.
    """

    observation: Array
    action: Array
    reward: Array
    discount: Array
    next_observation: Array
    next_action: Array
    next_mask: Array


class Weighted(NamedTuple):
    """Transitions that were not drawn evenly, and what each one's loss weighs."""

    transitions: Transition
    weights: Array


Batch = Transition | Weighted
"""What an update learns from."""
