"""Networks in NumPy: what a step of an environment in Python costs least with.

A call of a compiled program takes longer than the whole forward pass of a small network for a few
observations. These functions give the same numbers up to rounding. They are prepared once for
parameters that do not change, and then called many times::

    forward = mlp_on_host((2,), (4,), "relu")(params)
    q = forward(observations)

All arrays have a leading axis of seeds: parameters have the shape (seeds, ...), observations and
outputs (seeds, environments, ...).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from valuetrack.types import NDArray, Params, Tree

Forward = Callable[[NDArray], NDArray]
"""(observations) -> outputs, both (seeds, environments, ...)."""
OnHost = Callable[[Params], Forward]
"""From the parameters of all seeds, (seeds, ...), to the network that has them."""
WIDE, SPARSE = 64, 0.125
"""Of how many inputs it is asked which are zero, and which share of others counts as few."""


def _relu(x: NDArray) -> NDArray:
    return np.maximum(x, 0, out=x)


def _elu(x: NDArray) -> NDArray:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def _gelu(x: NDArray) -> NDArray:
    y: NDArray = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return y


def _silu(x: NDArray) -> NDArray:
    # Of large sizes, the exponential would overflow on the one side and is zero on the other.
    small = np.exp(-np.abs(x))
    y: NDArray = x * np.where(x >= 0, 1, small) / (1 + small)
    return y


def _leaky_relu(x: NDArray) -> NDArray:
    return np.where(x >= 0, x, np.float32(0.01) * x)


ACTIVATIONS: dict[str, Callable[[NDArray], NDArray]] = {
    "relu": _relu,
    "tanh": np.tanh,
    "elu": _elu,
    "gelu": _gelu,
    "silu": _silu,
    "leaky_relu": _leaky_relu,
}
"""Those of :mod:`valuetrack.networks`; they may change what they are given."""


def mlp_on_host(
    input_shape: Sequence[int],
    output_shape: Sequence[int],
    activation: str,
    dueling: int | None = None,
) -> OnHost:
    """Return :func:`valuetrack.networks.mlp` in NumPy.

    Examples
    --------
    >>> params = {"body": [], "head": {"w": np.ones((1, 2, 3)), "b": np.zeros((1, 3))}}
    >>> mlp_on_host((2,), (3,), "relu")(params)(np.ones((1, 1, 2))).tolist()
    [[[2.0, 2.0, 2.0]]]
    """
    act, inputs, is_flat = ACTIVATIONS[activation], math.prod(input_shape), len(input_shape) == 1
    shape = tuple(output_shape)

    def prepare(params: Params) -> Forward:
        head = params["head"]
        last_layers = (head,) if dueling is None else (head["value"], head["advantage"])
        layers = [(layer["w"], layer["b"][:, None]) for layer in params["body"]]
        (last, offset), *others = [(layer["w"], layer["b"][:, None]) for layer in last_layers]

        def forward(x: NDArray) -> NDArray:
            if not is_flat:
                x = x.reshape(*x.shape[:2], inputs)
            if x.dtype != last.dtype:
                x = x.astype(last.dtype)
            multiply = _sparse_product if inputs >= WIDE else np.matmul
            for weights, biases in layers:
                x = multiply(x, weights)
                x += biases
                x, multiply = act(x), np.matmul
            if dueling is not None:
                (more, added), (of_values, of_advantages) = others[0], np.split(x, 2, axis=-1)
                values, advantages = of_values @ last + offset, of_advantages @ more + added
                q: NDArray = duelled(values, advantages, shape, dueling)
                return q
            y: NDArray = multiply(x, last)
            y += offset
            return y if len(shape) == 1 else y.reshape(*y.shape[:2], *shape)

        return forward

    return prepare


def duelled(value: Tree, advantage: Tree, shape: tuple[int, ...], axis: int) -> Tree:
    r"""Return :math:`V + A - \operatorname{mean}_a A`, of NumPy's arrays or JAX's.

    Examples
    --------
    >>> duelled(np.array([1.0]), np.array([3.0, 5.0]), (2,), 0).tolist()
    [0.0, 2.0]
    """
    axis = axis % len(shape) - len(shape)  # counted from the end, as there are leading axes
    of_value = [*shape]
    of_value[axis] = 1
    advantage = advantage.reshape(*advantage.shape[:-1], *shape)
    value = value.reshape(*value.shape[:-1], *of_value)
    return value + (advantage - advantage.mean(axis=axis, keepdims=True))


def _sparse_product(x: NDArray, weights: NDArray) -> NDArray:
    """Return x @ weights by the few rows of the weights that count, as for one-hot vectors."""
    used = np.flatnonzero(x.any(axis=(0, 1)))
    if len(used) > SPARSE * x.shape[-1]:
        used = slice(None)  # type: ignore[assignment]
    product: NDArray = np.matmul(x[..., used], weights[:, used])
    return product
