r"""The seven agents, and all that tells them apart.

===========  ==================  =========================  =================================
agent        learner             compares                   with
===========  ==================  =========================  =================================
LKTD         lktd                Q(s,a) - discount Q(s',a') r (or, as DQN's form, Q with y)
SGLD         sgld                the same                   the same
SGHMC        sghmc               the same                   the same
KOVA         Kalman filter       Q(s,a)                     y, double-Q from a target network
DQN          Adam, squares       Q(s,a)                     y, double-Q from a target network
BootDQN      Adam, squares       Q_h(s,a), each head        its own y, on half of the batch
QRDQN        Adam, Huber         quantiles of Q(s,a)        quantiles of y
===========  ==================  =========================  =================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from valuetrack import samplers
from valuetrack.learner import Learner, build_learner
from valuetrack.losses import bootstrapped_loss, bootstrapped_mask, quantile_loss
from valuetrack.measurement import (
    Gradient,
    huber_error,
    mean_squared_error,
    q_learning,
    sarsa,
)
from valuetrack.networks import Network
from valuetrack.priors import Prior
from valuetrack.samplers.base import Sampler
from valuetrack.schedules import Schedule
from valuetrack.types import Params

Form = Literal["sarsa", "q_learning"]
"""Which measurement model a sampling agent uses."""
Loss = Literal["squared", "huber"]
"""How DQN weighs its residuals."""
LOSSES = {"squared": mean_squared_error, "huber": huber_error}


def lktd(network: Network, prior: Prior, **options: Any) -> Learner:
    """Build an LKTD agent; options of :func:`sampling_agent` and of the sampler."""
    return sampling_agent(samplers.lktd, network, prior, **options)


def sgld(network: Network, prior: Prior, **options: Any) -> Learner:
    """Build an SGLD agent; options of :func:`sampling_agent` and of the sampler."""
    return sampling_agent(samplers.sgld, network, prior, **options)


def sghmc(network: Network, prior: Prior, **options: Any) -> Learner:
    """Build an SGHMC agent; options of :func:`sampling_agent` and of the sampler."""
    return sampling_agent(samplers.sghmc, network, prior, **options)


def sampling_agent(
    sampler: Callable[..., Sampler],
    network: Network,
    prior: Prior,
    *,
    form: Form = "sarsa",
    gradient: Gradient = "semi",
    target_every: int = 1,
    **options: Any,
) -> Learner:
    """Build an agent around a posterior sampler.

    ``form="sarsa"`` is the paper's Q-function form, whose ``gradient`` is ``"semi"`` or
    ``"full"``; ``form="q_learning"`` its second model, with a target network copied every
    ``target_every`` updates. ``options`` go to the sampler.
    """
    if form == "sarsa":
        return build_learner(network, sampler(sarsa(network.apply, gradient), prior, **options))
    learner = sampler(q_learning(network.apply), prior, **options)
    return build_learner(network, learner, target_every=target_every)


def kova(
    network: Network, *, double: bool = True, target_every: int = 10, **options: Any
) -> Learner:
    """Build a KOVA agent; ``options`` go to :func:`~valuetrack.samplers.kova.kova`."""
    learner = samplers.kova(q_learning(network.apply, double=double), **options)
    return build_learner(network, learner, target_every=target_every)


def dqn(
    network: Network,
    *,
    learning_rate: float | Schedule,
    double: bool = True,
    target_every: int = 10,
    max_gradient_norm: float | None = None,
    loss: Loss = "squared",
) -> Learner:
    """Build a DQN agent with the mean squared error, or with Huber's as SB3 has it."""
    error = LOSSES[loss](q_learning(network.apply, double=double))
    learner = samplers.adam(error, learning_rate=learning_rate, max_gradient_norm=max_gradient_norm)
    return build_learner(network, learner, target_every=target_every)


def bootdqn(
    network: Network,
    *,
    heads: int,
    learning_rate: float | Schedule,
    mask_probability: float = 0.5,
    double: bool = True,
    target_every: int = 10,
    head_every: int = 10,
    max_gradient_norm: float | None = 1.0,
) -> Learner:
    """Build a bootstrapped DQN on a network with outputs (heads, actions).

    Each update draws for every head which transitions it learns from. The shared body receives
    the sum of the heads' gradients, so its part is divided by their number.
    """

    def average_body(gradient: Params) -> Params:
        body = jax.tree.map(lambda g: g / heads, gradient["body"])
        return {**gradient, "body": body}

    learner = samplers.adam(
        bootstrapped_loss(network.apply, double=double),
        learning_rate=learning_rate,
        max_gradient_norm=max_gradient_norm,
        transform_gradient=average_body,
    )
    return build_learner(
        network,
        learner,
        to_values=lambda outputs: jnp.moveaxis(outputs, -2, 0),
        target_every=target_every,
        heads=heads,
        head_every=head_every,
        prepare=bootstrapped_mask(heads, mask_probability),
    )


def qrdqn(
    network: Network,
    *,
    learning_rate: float | Schedule,
    double: bool = True,
    target_every: int = 10,
    max_gradient_norm: float | None = 1.0,
) -> Learner:
    """Build a quantile-regression DQN on a network with outputs (actions, quantiles)."""
    learner = samplers.adam(
        quantile_loss(network.apply, double=double),
        learning_rate=learning_rate,
        max_gradient_norm=max_gradient_norm,
    )
    return build_learner(
        network,
        learner,
        to_values=lambda outputs: jnp.mean(outputs, axis=-1)[None],
        target_every=target_every,
    )
