"""IQN: implicit quantile networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from valuetrack import networks
from valuetrack.agents.noisy import NoisyOptions
from valuetrack.api.agent import Agent
from valuetrack.api.options import Count
from valuetrack.learner import Acted, Learner, LearnerState, Task, acted, build_learner
from valuetrack.losses import quantile_huber
from valuetrack.measurement import TargetBatch, weighted_mean
from valuetrack.networks import ACTIVATIONS, Network
from valuetrack.policies import POLICY_UNIFORMS, greedy, select
from valuetrack.types import Array, Keywords, Params, Scalar

Quantiles = Callable[[Params, Array, Array], Array]
"""(parameters, observations, levels (..., K)) -> quantiles (..., K, actions)."""


class IQNOptions(NoisyOptions):
    """IQN's own options.

    Attributes
    ----------
    levels, target_levels
        How many quantile levels are drawn per transition, for the prediction and for its target.
    acting_levels
        Over how many drawn levels a value is averaged, to act and to be asked for.
    cosines
        How many cosines of a level the network is given.
    """

    levels: Count = 8
    target_levels: Count = 8
    acting_levels: Count = 32
    cosines: Count = 64


class IQN(Agent[IQNOptions]):
    """Implicit quantile networks: any quantile of the return, at levels drawn in every pass.

    Examples
    --------
    >>> import valuetrack as vt
    >>> agent = vt.IQN("CartPole-v1", hidden=(8,), cosines=8, seed=0).learn(2_000)

    References
    ----------
    Dabney, Ostrovski, Silver and Munos (2018). Implicit quantile networks for distributional
    reinforcement learning. ICML. https://arxiv.org/abs/1806.06923
    """

    name, label, colour, marker = "iqn", "IQN", "#56B4E9", "*"
    options_type = IQNOptions

    @staticmethod
    def build(task: Task, options: IQNOptions) -> Learner:
        """Build the learner; acting and values draw the levels that they average over."""
        init, quantiles = quantile_network(task, options)
        losses = implicit_quantile_losses(quantiles, double=options.double)
        loss = implicit_quantile_loss(quantiles, double=options.double)
        optimiser = options.optimiser(loss, losses)
        drawn = options.acting_levels

        def act(
            state: LearnerState, observation: Array, mask: Array, uniforms: Array, epsilon: Scalar
        ) -> Acted:
            explore, levels = jnp.split(uniforms, [POLICY_UNIFORMS], axis=-1)
            q = jnp.mean(quantiles(state.sampler.params, observation, levels), axis=-2)
            return acted(q, mask, explore, epsilon, "greedy")

        def values(key: Array, state: LearnerState, observations: Array) -> Array:
            levels = jax.random.uniform(key, (drawn,))  # the same for all observations
            return jnp.mean(quantiles(state.sampler.params, observations, levels), axis=-2)[None]

        def at_midpoints(state: LearnerState, observations: Array) -> Array:
            levels = (jnp.arange(drawn) + 0.5) / drawn
            found = quantiles(state.sampler.params, observations, levels)
            return jnp.swapaxes(found, -1, -2)

        network = Network(init, lambda params, x: quantiles(params, x, jnp.full((1,), 0.5)))
        learner = build_learner(
            options.around_noise(network),
            optimiser,
            target_every=options.target_every,
            tau=options.tau,
            prepare=options.prepare(drawn_levels(options.levels, options.target_levels, drawn)),
        )
        learner = learner._replace(
            act=act,
            values=values,
            acting_uniforms=POLICY_UNIFORMS + drawn,
            quantiles=at_midpoints,
        )
        return options.acting_by_noise(learner)


def quantile_network(
    task: Task, options: IQNOptions
) -> tuple[Callable[[Array], Params], Quantiles]:
    r"""Return ``init`` and the function from observations and levels to quantiles.

    .. math:: Z_\tau(s, \cdot) = f(\psi(s) \odot \phi(\tau)), \qquad
              \phi_j(\tau) = \operatorname{relu}\Big(\sum_{i=0}^{n-1} \cos(\pi i \tau) w_{ij}
              + b_j\Big)

    :math:`\psi` has all hidden layers but the last, which belongs to f; a network of one hidden
    layer has it in :math:`\psi`.
    """
    hidden = options.hidden or (64,)
    body_layers, head_layers = (hidden[:-1], hidden[-1:]) if len(hidden) > 1 else (hidden, ())
    common: Keywords = {
        "activation": options.activation, "init": options.init, "init_sd": options.init_sd,
    }  # fmt: skip
    *inner, width = body_layers
    body = networks.for_observations(
        task.shape, task.is_image, width, hidden=inner, convolutions=options.convolutions, **common
    )
    embedding = networks.mlp(options.cosines, width, (), **common)
    head = networks.mlp(
        width, task.actions, head_layers, dueling=-1 if options.dueling else None, **common
    )
    activation = ACTIVATIONS[options.activation]

    def init(key: Array) -> Params:
        keys = jax.random.split(key, 3)
        parts = {"body": body, "embedding": embedding, "head": head}
        return {name: part.init(k) for (name, part), k in zip(parts.items(), keys, strict=True)}

    def quantiles(params: Params, observations: Array, levels: Array) -> Array:
        features = activation(body.apply(params["body"], observations))  # (..., width)
        cosines = jnp.cos(jnp.pi * levels[..., None] * jnp.arange(options.cosines))
        embedded = jax.nn.relu(embedding.apply(params["embedding"], cosines))  # (..., K, width)
        return head.apply(params["head"], features[..., None, :] * embedded)

    return init, quantiles


class LevelBatch(NamedTuple):
    """A target batch with its levels, (n, N), (n, N') and (K,): predicted, target, to choose."""

    batch: TargetBatch
    levels: Array
    target_levels: Array
    choosing_levels: Array


def drawn_levels(
    levels: int, target_levels: int, choosing_levels: int
) -> Callable[[Array, TargetBatch], LevelBatch]:
    """Return the function that draws the levels of an update."""

    def prepare(key: Array, batch: TargetBatch) -> LevelBatch:
        n = batch.transitions.reward.shape[0]
        shapes = ((n, levels), (n, target_levels), (choosing_levels,))
        keys = jax.random.split(key, len(shapes))
        drawn = (jax.random.uniform(k, shape) for k, shape in zip(keys, shapes, strict=True))
        return LevelBatch(batch, *drawn)

    return prepare


def implicit_quantile_loss(
    quantiles: Quantiles, *, double: bool
) -> Callable[[Params, LevelBatch], Array]:
    """Return the mean of :func:`implicit_quantile_losses` over a batch."""
    losses = implicit_quantile_losses(quantiles, double=double)
    return lambda params, data: weighted_mean(losses(params, data), data.batch)


def implicit_quantile_losses(
    quantiles: Quantiles, *, double: bool
) -> Callable[[Params, LevelBatch], Array]:
    r"""Return the quantile Huber loss of each transition at drawn levels.

    .. math:: \sum_{i=1}^{N} \frac{1}{N'} \sum_{j=1}^{N'}
              |\tau_i - 1\{u_{ij} < 0\}| \operatorname{Huber}_1(u_{ij}), \qquad
              u_{ij} = r + \gamma Z^-_{\tau'_j}(s', a^*) - Z_{\tau_i}(s, a)

    :math:`a^*` has the largest mean over the choosing levels, of the network itself with
    ``double`` and of the target network otherwise.
    """

    def losses(params: Params, data: LevelBatch) -> Array:
        t = data.batch.transitions
        chooser = params if double else data.batch.target_params
        means = jnp.mean(quantiles(chooser, t.next_observation, data.choosing_levels), axis=-2)
        best = greedy(means, t.next_mask)
        ahead = quantiles(data.batch.target_params, t.next_observation, data.target_levels)
        target = t.reward[:, None] + t.discount[:, None] * of_action(ahead, best)
        current = of_action(quantiles(params, t.observation, data.levels), t.action)
        target = jax.lax.stop_gradient(target)
        return jnp.sum(quantile_huber(current, target, data.levels), axis=-1)

    return losses


def of_action(quantiles: Array, action: Array) -> Array:
    """Pick an action's quantiles from (n, K, actions)."""
    return select(quantiles, jnp.broadcast_to(action[:, None], quantiles.shape[:-1]))
