"""KOVA: the extended Kalman filter on all parameters of the network."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from valuetrack import samplers
from valuetrack.agents.kalman import check_covariance_fits
from valuetrack.agents.target_network import TargetNetworkOptions
from valuetrack.api.agent import Agent
from valuetrack.api.options import Count, Layers, NotNegative, Positive, default_of
from valuetrack.learner import Learner, Task, build_learner
from valuetrack.measurement import q_learning


class KOVAOptions(TargetNetworkOptions):
    """KOVA's own options; its memory grows with the square of the number of parameters.

    Attributes
    ----------
    observation_variance, initial_variance, process_variance, forgetting
        The filter's; see :func:`valuetrack.samplers.kova.kova`.
    """

    hidden: Layers = (32, 32)
    learning_rate: Positive = default_of(samplers.kova, "learning_rate")
    target_every: Count = 10
    observation_variance: Positive = 64.0
    initial_variance: Positive = default_of(samplers.kova, "initial_variance")
    process_variance: NotNegative = default_of(samplers.kova, "process_variance")
    forgetting: Annotated[float, Field(ge=0, lt=1)] = 1e-4


class KOVA(Agent[KOVAOptions]):
    """The extended Kalman filter on all parameters, for small networks.

    Examples
    --------
    >>> import valuetrack as vt
    >>> agent = vt.KOVA("CartPole-v1", hidden=(8,), seed=0).learn(2_000)

    References
    ----------
    Shashua and Mannor (2020). Kalman meets Bellman: improving policy evaluation through value
    tracking. https://arxiv.org/abs/2002.07171
    """

    name, label, colour, marker = "kova", "KOVA", "#5D3A9B", "v"
    options_type = KOVAOptions
    sample_name = "recent means of the Kalman filter, not a posterior"

    @staticmethod
    def build(task: Task, options: KOVAOptions) -> Learner:
        """Build the learner, if the covariance of its parameters fits into memory."""
        network = options.network(task, task.actions)
        check_covariance_fits("KOVA", network)
        filter_ = samplers.kova(
            q_learning(network.apply, double=options.double),
            learning_rate=options.learning_rate,
            observation_variance=options.observation_variance,
            initial_variance=options.initial_variance,
            process_variance=options.process_variance,
            forgetting=options.forgetting,
        )
        return build_learner(network, filter_, target_every=options.target_every, tau=options.tau)
