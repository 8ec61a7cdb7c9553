"""BootDQN: bootstrapped deep Q-learning."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from valuetrack.agents.exploring import ExploringOptions, he_network
from valuetrack.agents.target_network import GradientOptions
from valuetrack.api.agent import Agent
from valuetrack.api.options import Count, PositiveShare
from valuetrack.learner import Learner, Task, build_learner
from valuetrack.measurement import TargetBatch
from valuetrack.policies import greedy, select
from valuetrack.types import Apply, Array, Params


class BootDQNOptions(ExploringOptions, GradientOptions):
    """BootDQN's own options.

    Attributes
    ----------
    heads
        How many heads share the body of the network.
    mask_probability
        With which probability a head learns from a transition.
    head_every
        Another head is drawn to act every this many updates, with
        ``behaviour="epsilon_greedy"``.
    """

    heads: Count = 10
    mask_probability: PositiveShare = 0.5
    head_every: Count = 10


class BootDQN(Agent[BootDQNOptions]):
    """Bootstrapped DQN: heads that learn from half of the data each.

    Examples
    --------
    >>> import valuetrack as vt
    >>> agent = vt.BootDQN("CartPole-v1", hidden=(8,), heads=3, seed=0).learn(2_000)

    References
    ----------
    Osband, Blundell, Pritzel and Van Roy (2016). Deep exploration via bootstrapped DQN. NeurIPS.
    https://arxiv.org/abs/1602.04621
    """

    name, label, colour, marker = "bootdqn", "BootDQN", "#CC79A7", "D"
    options_type = BootDQNOptions
    sample_name = "heads of a bootstrapped ensemble over recent iterates, not a posterior"

    @staticmethod
    def build(task: Task, options: BootDQNOptions) -> Learner:
        """Build the learner; its network has outputs (heads, actions).

        The shared body receives the sum of the heads' gradients, so its part is divided by their
        number.
        """
        heads = options.heads
        shape = (heads, task.actions)
        network = options.around_prior(
            options.network(task, shape), he_network(options, task, shape)
        )

        def average_body(gradient: Params) -> Params:
            return {**gradient, "body": jax.tree.map(lambda g: g / heads, gradient["body"])}

        optimiser = options.optimiser(
            bootstrapped_loss(network.apply, double=options.double),
            bootstrapped_errors(network.apply, double=options.double),
            transform_gradient=average_body,
        )
        learner = build_learner(
            network,
            optimiser,
            to_values=heads_first,
            target_every=options.target_every,
            tau=options.tau,
            heads=heads,
            head_every=options.head_every,
            prepare=bootstrapped_mask(heads, options.mask_probability),
        )
        return learner if options.behaviour == "epsilon_greedy" else options.behaving(learner)


def heads_first(outputs: Array) -> Array:
    """Return (..., heads, actions) as (heads, ..., actions); NumPy's arrays as well."""
    return outputs.transpose(outputs.ndim - 2, *range(outputs.ndim - 2), outputs.ndim - 1)


class BootstrapBatch(NamedTuple):
    """A target batch, and which head learns from which transition: booleans (heads, n)."""

    batch: TargetBatch
    mask: Array


def bootstrapped_mask(
    heads: int, probability: float
) -> Callable[[Array, TargetBatch], BootstrapBatch]:
    """Return the function that draws a Bernoulli mask for every head and transition."""
    if not 0 < probability <= 1:
        raise ValueError(f"mask_probability must lie in (0, 1], not {probability}.")

    def prepare(key: Array, batch: TargetBatch) -> BootstrapBatch:
        n = batch.transitions.reward.shape[0]
        return BootstrapBatch(batch, jax.random.bernoulli(key, probability, (heads, n)))

    return prepare


def bootstrapped_loss(apply: Apply, *, double: bool) -> Callable[[Params, BootstrapBatch], Array]:
    r"""Return the mean over heads of each head's mean squared error on its own transitions.

    Head h is compared with :math:`y_h = r + \gamma Q^-_h(s', a^*_h)`, where :math:`a^*_h` is the
    legal argmax of the head itself (with ``double``) or of its target. Transitions that were not
    drawn evenly count by their weights.
    """
    differences = _differences(apply, double=double)

    def loss(params: Params, data: BootstrapBatch) -> Array:
        difference, weights = differences(params, data), data.batch.weights
        used = data.mask.T.astype(difference.dtype)
        counted = used if isinstance(weights, tuple) else used * weights[:, None]
        squares = jnp.sum(counted * difference**2, axis=0)
        return jnp.mean(squares / jnp.maximum(jnp.sum(used, axis=0), 1.0))

    return loss


def bootstrapped_errors(apply: Apply, *, double: bool) -> Callable[[Params, BootstrapBatch], Array]:
    r"""Return the mean over heads of :math:`|y_h - Q_h(s, a)|`, for each transition."""
    differences = _differences(apply, double=double)
    return lambda params, data: jnp.mean(jnp.abs(differences(params, data)), axis=1)


def _differences(apply: Apply, *, double: bool) -> Callable[[Params, BootstrapBatch], Array]:
    """Return what each head is off its own target, (n, heads)."""

    def differences(params: Params, data: BootstrapBatch) -> Array:
        t = data.batch.transitions
        target_q = apply(data.batch.target_params, t.next_observation)  # (n, heads, actions)
        chooser_q = apply(params, t.next_observation) if double else target_q
        next_value = select(target_q, greedy(chooser_q, t.next_mask[:, None]))  # (n, heads)
        target = t.reward[:, None] + t.discount[:, None] * jax.lax.stop_gradient(next_value)
        q = apply(params, t.observation)
        chosen = select(q, jnp.broadcast_to(t.action[:, None], q.shape[:-1]))
        return chosen - target

    return differences
