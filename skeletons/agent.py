"""An agent to copy: expected SARSA on a target network, trained with Adam.

1. Copy this to ``src/valuetrack/agents/<name>.py``.
2. Import the class in ``src/valuetrack/registry.py``. The command line, experiments, reports,
   ``valuetrack.load`` and ``docs/options.md`` then know it.
3. Let it solve the probe environments: ``tests/probes.py``.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from valuetrack import samplers
from valuetrack.agents.target_network import GradientOptions
from valuetrack.api.agent import Agent
from valuetrack.api.options import Share, as_rate
from valuetrack.learner import Learner, Task, build_learner
from valuetrack.measurement import TargetBatch
from valuetrack.policies import masked_max, select
from valuetrack.types import Apply, Array, Params


class ExpectedSarsaOptions(GradientOptions):
    """Expected SARSA's own options.

    Attributes
    ----------
    target_epsilon
        How often the policy that is evaluated takes a random action.
    """

    target_epsilon: Share = 0.05


class ExpectedSarsa(Agent[ExpectedSarsaOptions]):
    """Expected SARSA: the values of the epsilon-greedy policy.

    References
    ----------
    van Seijen, van Hasselt, Whiteson and Wiering (2009). A theoretical and empirical analysis of
    Expected Sarsa. ADPRL. https://ieeexplore.ieee.org/document/4927542
    """

    name, label, colour, marker = "expected-sarsa", "Expected SARSA", "#999933", "h"
    options_type = ExpectedSarsaOptions

    @staticmethod
    def build(task: Task, options: ExpectedSarsaOptions) -> Learner:
        """Build the learner: a network, what is minimised, and how often the target is copied."""
        network = options.network(task, task.actions)
        optimiser = samplers.adam(
            expected_sarsa_loss(network.apply, options.target_epsilon),
            learning_rate=as_rate(options.learning_rate),
            max_gradient_norm=options.max_gradient_norm,
        )
        return build_learner(network, optimiser, target_every=options.target_every)


def expected_sarsa_loss(apply: Apply, epsilon: float) -> Callable[[Params, TargetBatch], Array]:
    r"""Return the mean of :math:`(y - Q(s, a))^2`, where the target network gives

    .. math:: y = r + \gamma \left[(1 - \varepsilon) \max_{a'} Q^-(s', a')
              + \varepsilon\, \overline{Q^-}(s')\right]
    """  # noqa: D400

    def loss(params: Params, data: TargetBatch) -> Array:
        t = data.transitions
        q = apply(data.target_params, t.next_observation)
        legal = jnp.maximum(jnp.sum(t.next_mask, axis=-1), 1)  # a terminal state may have none
        mean = jnp.sum(jnp.where(t.next_mask, q, 0.0), axis=-1) / legal
        value = (1 - epsilon) * masked_max(q, t.next_mask) + epsilon * mean
        target = jax.lax.stop_gradient(t.reward + t.discount * value)
        return jnp.mean((target - select(apply(params, t.observation), t.action)) ** 2)

    return loss
