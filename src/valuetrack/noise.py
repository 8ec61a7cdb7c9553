r"""Noisy layers: fully connected layers whose weights are drawn around means that are learned.

.. math:: w_{ij} = \mu_{ij} + \sigma_{ij}\, f(\varepsilon_i) f(\varepsilon_j), \qquad
          b_j = \mu_j + \sigma_j\, f(\varepsilon_j), \qquad
          f(x) = \operatorname{sgn}(x) \sqrt{|x|}

with a standard normal :math:`\varepsilon` per input and output of a layer: factorised Gaussian
noise. The means are the layers themselves, so that a network of such parameters is that of the
means; the :math:`\sigma` lie beside them under the name "noise". Convolutions have none.

References
----------
Fortunato et al. (2018). Noisy networks for exploration. ICLR. https://arxiv.org/abs/1706.10295
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from valuetrack.networks import Layer, Network
from valuetrack.types import Array, Params, Tree

NOISE = "noise"
"""The name of the sds among the parameters of a network."""
FIRST_SD = 0.5
"""What an sd begins with, times the root of the layer's inputs."""


def with_noise(network: Network, first_sd: float = FIRST_SD) -> Network:
    """Return the network with sds beside its fully connected layers; it computes by the means.

    Examples
    --------
    >>> from valuetrack.networks import mlp
    >>> params = with_noise(mlp(4, 2, (8,))).init(jax.random.key(0))
    >>> float(params["noise"]["body"][0]["w"][0, 0])  # 0.5 / sqrt(4)
    0.25
    """

    def sds(layer: Layer) -> Tree:
        if layer["w"].ndim != 2:
            return ()
        sd = first_sd / math.sqrt(layer["w"].shape[0])
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, sd), layer)

    def init(key: Array) -> Params:
        params = network.init(key)
        return {**params, NOISE: jax.tree.map(sds, params, is_leaf=_is_layer)}

    return network._replace(init=init)


def perturbed(key: Array, params: Params) -> Params:
    """Return a draw of the layers around their means, without the sds.

    Examples
    --------
    >>> from valuetrack.networks import mlp
    >>> params = with_noise(mlp(4, 2, (8,))).init(jax.random.key(0))
    >>> sorted(perturbed(jax.random.key(1), params))
    ['body', 'head']
    """
    means = without_noise(params)
    layers, structure = jax.tree.flatten(means, is_leaf=_is_layer)
    keys = jax.tree.unflatten(structure, list(jax.random.split(key, len(layers))))
    return jax.tree.map(_drawn, means, params[NOISE], keys, is_leaf=_is_layer)


def without_noise(params: Params) -> Params:
    """Return the means, or the parameters themselves where there is no noise."""
    if not isinstance(params, dict) or NOISE not in params:
        return params
    return {name: part for name, part in params.items() if name != NOISE}


def _drawn(layer: Layer, sds: Tree, key: Array) -> Layer:
    if not sds:
        return {name: jnp.copy(part) for name, part in layer.items()}
    rows_key, columns_key = jax.random.split(key)
    inputs, outputs = layer["w"].shape
    rows, columns = _rooted(rows_key, inputs), _rooted(columns_key, outputs)
    return {
        "w": layer["w"] + sds["w"] * rows[:, None] * columns,
        "b": layer["b"] + sds["b"] * columns,
    }


def _rooted(key: Array, count: int) -> Array:
    drawn = jax.random.normal(key, (count,))
    return jnp.sign(drawn) * jnp.sqrt(jnp.abs(drawn))


def _is_layer(params: Any) -> bool:
    return isinstance(params, dict) and {"w", "b"} == params.keys()
