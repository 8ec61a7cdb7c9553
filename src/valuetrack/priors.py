r"""Priors over the network's parameters, each written once for all samplers.

A prior treats every parameter alike and independently. Its functions take the number of updates
made so far, because a prior may be phased in while training goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from valuetrack import schedules
from valuetrack.types import Array, Params, Scalar


class Prior(NamedTuple):
    r"""A density over parameters.

    Attributes
    ----------
    log_density : (params, count) -> scalar
        :math:`\log \pi(\theta)`, summed over all parameters, constants included.
    gradient : (params, count) -> params
        :math:`\nabla_\theta \log \pi(\theta)`, in closed form.
    sample : (key, params) -> params
        A draw from the fully phased-in prior with the shapes and dtypes of ``params``.
    """

    log_density: Callable[[Params, Scalar], Array]
    gradient: Callable[[Params, Scalar], Params]
    sample: Callable[[Array, Params], Params]


def gaussian(sd: float) -> Prior:
    r"""Independent :math:`N(0, \sigma_\theta^2)` for every parameter."""
    _check_positive(sd=sd)

    def log_density(params: Params, count: Scalar = 0) -> Array:
        return _tree_sum(jax.tree.map(lambda p: _log_normal(p, sd), params))

    def gradient(params: Params, count: Scalar = 0) -> Params:
        return jax.tree.map(lambda p: -p / sd**2, params)

    def sample(key: Array, params: Params) -> Params:
        return _sample_leaves(lambda k, p: sd * jax.random.normal(k, p.shape, p.dtype), key, params)

    return Prior(log_density, gradient, sample)


def he(gain: float = 1.0) -> Prior:
    r"""Independent :math:`N(0, g^2 \cdot 2 / m)` for a layer with m inputs, biases included.

    The law of He's initialisation: whatever the widths, a draw is a network whose values are of
    the order of its inputs. A parameter that no data speak of stays at the size it began with.
    The parameters are layers of weights ``w`` and biases ``b``, as those of
    :mod:`valuetrack.networks`; an array elsewhere counts its leading axes as inputs.

    References
    ----------
    He, Zhang, Ren and Sun (2015). Delving deep into rectifiers. ICCV.
    https://arxiv.org/abs/1502.01852
    """
    _check_positive(gain=gain)

    def sds(params: Params) -> Params:
        def of_layer(layer: Params) -> Params:
            shapes = [leaf.shape for leaf in jax.tree.leaves(layer) if leaf.ndim > 1]
            fan_in = math.prod(shapes[0][:-1]) if shapes else 1
            return jax.tree.map(lambda leaf: gain * math.sqrt(2 / fan_in), layer)

        return jax.tree.map(of_layer, params, is_leaf=_is_layer)

    def log_density(params: Params, count: Scalar = 0) -> Array:
        return _tree_sum(jax.tree.map(_log_normal, params, sds(params)))

    def gradient(params: Params, count: Scalar = 0) -> Params:
        return jax.tree.map(lambda p, sd: -p / sd**2, params, sds(params))

    def sample(key: Array, params: Params) -> Params:
        drawn = gaussian(1.0).sample(key, params)
        return jax.tree.map(lambda p, sd: sd * p, drawn, sds(params))

    return Prior(log_density, gradient, sample)


def gaussian_mixture(
    wide_sd: float = 0.5,
    narrow_sd: float = 0.05,
    wide_weight: float = 0.5,
    phase_in: int = 0,
) -> Prior:
    r"""Two Gaussians, one wide and one narrow, that push small parameters towards zero.

    .. math:: \theta \sim (1 - \lambda_t)\, N(0, \sigma_0^2) + \lambda_t\, N(0, \sigma_1^2)

    The gradient weighs the two precisions by the responsibility :math:`\rho` of the wide part,
    computed as a sigmoid of log-odds, so that it neither overflows for large parameters nor
    divides by zero at :math:`\lambda \in \{0, 1\}`:

    .. math:: \nabla \log \pi(\theta) =
              -\theta \left[\frac{\rho}{\sigma_1^2} + \frac{1 - \rho}{\sigma_0^2}\right], \quad
              \rho = \operatorname{sigmoid}\left(\log\frac{\lambda}{1-\lambda}
              + \log\frac{\sigma_0}{\sigma_1}
              + \frac{\theta^2}{2}\left[\frac{1}{\sigma_0^2} - \frac{1}{\sigma_1^2}\right]\right)

    Parameters
    ----------
    wide_sd, narrow_sd
        :math:`\sigma_1` and :math:`\sigma_0`.
    wide_weight
        :math:`\lambda`, the final weight of the wide part.
    phase_in
        Over how many updates :math:`\lambda_t` falls in a straight line from 1 (the wide part
        alone) to ``wide_weight``, with the updates counted from one. The paper has no phase-in (0);
        the reference setting is 10,000.
    """
    _check_positive(wide_sd=wide_sd, narrow_sd=narrow_sd)
    if not 0 <= wide_weight <= 1:
        raise ValueError(f"wide_weight is a probability, so it cannot be {wide_weight}.")
    weight_at = schedules.linear(1.0, wide_weight, phase_in)
    log_sd_ratio = math.log(narrow_sd / wide_sd)
    precision_gap = 1.0 / narrow_sd**2 - 1.0 / wide_sd**2

    def log_density(params: Params, count: Scalar = 0) -> Array:
        weight = weight_at(count + 1)

        def leaf(p: Array) -> Array:
            wide = jnp.log(weight) + _log_normal(p, wide_sd)
            narrow = jnp.log1p(-weight) + _log_normal(p, narrow_sd)
            return jnp.logaddexp(wide, narrow)

        return _tree_sum(jax.tree.map(leaf, params))

    def gradient(params: Params, count: Scalar = 0) -> Params:
        weight = weight_at(count + 1)
        log_odds = jnp.log(weight) - jnp.log1p(-weight) + log_sd_ratio

        def leaf(p: Array) -> Array:
            narrow_share = jax.nn.sigmoid(-(log_odds + 0.5 * precision_gap * p**2))
            return (-p * (1.0 / wide_sd**2 + precision_gap * narrow_share)).astype(p.dtype)

        return jax.tree.map(leaf, params)

    def sample(key: Array, params: Params) -> Params:
        def leaf(leaf_key: Array, p: Array) -> Array:
            which, value = jax.random.split(leaf_key)
            sd = jnp.where(jax.random.bernoulli(which, wide_weight, p.shape), wide_sd, narrow_sd)
            return (sd * jax.random.normal(value, p.shape)).astype(p.dtype)

        return _sample_leaves(leaf, key, params)

    return Prior(log_density, gradient, sample)


def _is_layer(tree: Params) -> bool:
    return isinstance(tree, dict) and set(tree) == {"w", "b"}


def _log_normal(p: Array, sd: float) -> Array:
    return -0.5 * (p / sd) ** 2 - math.log(sd * math.sqrt(2 * math.pi))


def _tree_sum(tree: Params) -> Array:
    return sum((jnp.sum(leaf) for leaf in jax.tree.leaves(tree)), start=jnp.zeros(()))


def _sample_leaves(draw: Callable[[Array, Array], Array], key: Array, params: Params) -> Params:
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(structure, [draw(k, p) for k, p in zip(keys, leaves, strict=True)])


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, not {value}.")
