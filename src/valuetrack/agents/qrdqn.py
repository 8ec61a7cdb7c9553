"""QR-DQN: quantile-regression deep Q-learning."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from valuetrack.agents.noisy import NoisyOptions
from valuetrack.api.agent import Agent
from valuetrack.api.options import Count
from valuetrack.learner import Learner, Task, build_learner
from valuetrack.losses import midpoint_levels, quantile_huber
from valuetrack.measurement import TargetBatch, weighted_mean
from valuetrack.policies import greedy, select
from valuetrack.types import Apply, Array, Params


class QRDQNOptions(NoisyOptions):
    """QR-DQN's own options.

    Attributes
    ----------
    quantiles
        How many quantiles of the return are learned per action.
    """

    quantiles: Count = 50


class QRDQN(Agent[QRDQNOptions]):
    """Quantile-regression DQN, whose quantiles are those of the return, not of the value.

    Examples
    --------
    >>> import valuetrack as vt
    >>> agent = vt.QRDQN("CartPole-v1", hidden=(8,), quantiles=10, seed=0).learn(2_000)
    >>> agent.posterior([0.0, 0.1, 0.02, -0.1]).quantiles.values.shape  # (actions, quantiles)
    (2, 10)

    References
    ----------
    Dabney, Rowland, Bellemare and Munos (2018). Distributional reinforcement learning with
    quantile regression. AAAI. https://arxiv.org/abs/1710.10044
    """

    name, label, colour, marker = "qrdqn", "QR-DQN", "#E69F00", "P"
    options_type = QRDQNOptions

    @staticmethod
    def build(task: Task, options: QRDQNOptions) -> Learner:
        """Build the learner; its network has outputs (actions, quantiles)."""
        shape = (task.actions, options.quantiles)
        network = options.around_noise(options.network(task, shape, action_axis=0))
        losses = quantile_losses(network.apply, double=options.double)
        loss = quantile_loss(network.apply, double=options.double)
        optimiser = options.optimiser(loss, losses)
        learner = build_learner(
            network,
            optimiser,
            to_values=lambda outputs: outputs.mean(axis=-1)[None],
            target_every=options.target_every,
            tau=options.tau,
            prepare=options.prepare(),
        )
        learner = learner._replace(
            quantiles=lambda state, observations: network.apply(state.sampler.params, observations)
        )
        return options.acting_by_noise(learner)


def quantile_loss(apply: Apply, *, double: bool) -> Callable[[Params, TargetBatch], Array]:
    """Return the mean of :func:`quantile_losses` over a batch."""
    losses = quantile_losses(apply, double=double)
    return lambda params, data: weighted_mean(losses(params, data), data)


def quantile_losses(apply: Apply, *, double: bool) -> Callable[[Params, TargetBatch], Array]:
    r"""Return the quantile Huber loss of each transition, summed over the predicted quantiles.

    .. math:: \sum_{i=1}^M \frac1M \sum_{j=1}^M
              |\tau_i - 1\{u_{ij} < 0\}|\, \operatorname{Huber}_1(u_{ij}), \qquad
              u_{ij} = y_j - \theta_i(s, a), \quad \tau_i = \frac{i - 1/2}{M}
    """

    def losses(params: Params, data: TargetBatch) -> Array:
        t = data.transitions
        target_quantiles = apply(data.target_params, t.next_observation)  # (n, actions, M)
        chooser = apply(params, t.next_observation) if double else target_quantiles
        best = greedy(jnp.mean(chooser, axis=-1), t.next_mask)
        target = quantiles_of_action(target_quantiles, best)
        target = jax.lax.stop_gradient(t.reward[:, None] + t.discount[:, None] * target)
        current = quantiles_of_action(apply(params, t.observation), t.action)  # (n, M)
        levels = midpoint_levels(current)
        return jnp.sum(quantile_huber(current, target, levels), axis=-1)

    return losses


def quantiles_of_action(quantiles: Array, action: Array) -> Array:
    """Pick an action's quantiles from (n, actions, M)."""
    return select(jnp.swapaxes(quantiles, -1, -2), action[:, None])
