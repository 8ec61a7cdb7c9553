"""DQN: deep Q-learning."""

from __future__ import annotations

from typing import Literal

from valuetrack.agents.noisy import NoisyOptions
from valuetrack.api.agent import Agent
from valuetrack.learner import Learner, Task, build_learner
from valuetrack.measurement import error_sizes, huber_error, mean_squared_error, q_learning


class DQNOptions(NoisyOptions):
    """DQN's own options.

    Attributes
    ----------
    loss
        How residuals are weighed: ``"huber"`` as in SB3, or ``"squared"``.
    """

    loss: Literal["squared", "huber"] = "huber"


LOSSES = {"squared": mean_squared_error, "huber": huber_error}


class DQN(Agent[DQNOptions]):
    """Deep Q-learning with a (double) target network.

    Examples
    --------
    >>> import valuetrack as vt
    >>> agent = vt.DQN("CartPole-v1", hidden=(8,), seed=0).learn(2_000)

    References
    ----------
    Mnih et al. (2015). Human-level control through deep reinforcement learning. Nature 518.
    https://www.nature.com/articles/nature14236

    van Hasselt, Guez and Silver (2016). Deep reinforcement learning with double Q-learning. AAAI.
    https://arxiv.org/abs/1509.06461
    """

    name, label, colour, marker = "dqn", "DQN", "#6E6E6E", "X"
    options_type = DQNOptions

    @staticmethod
    def build(task: Task, options: DQNOptions) -> Learner:
        """Build the learner."""
        network = options.around_noise(options.network(task, task.actions))
        measurement = q_learning(network.apply, double=options.double)
        loss = LOSSES[options.loss](measurement)
        optimiser = options.optimiser(loss, error_sizes(measurement))
        learner = build_learner(
            network,
            optimiser,
            target_every=options.target_every,
            tau=options.tau,
            prepare=options.prepare(),
        )
        return options.acting_by_noise(learner)
