"""AKQ: approximate Kalman filter Q-learning, with a diagonal covariance."""

from __future__ import annotations

from valuetrack import samplers
from valuetrack.agents.kalman import FOLLOWING, FORMS, FilterOptions
from valuetrack.api.agent import Agent
from valuetrack.api.options import Layers
from valuetrack.learner import Learner, Task, build_learner
from valuetrack.measurement import Gradient


class AKQOptions(FilterOptions):
    """AKQ's own options.

    Attributes
    ----------
    gradient
        Whether the temporal difference is linearised in both of its terms (``"full"``) or in
        Q(s, a) alone (``"semi"``).
    """

    hidden: Layers = (32, 32)
    gradient: Gradient = "full"


class AKQ(Agent[AKQOptions]):
    """Approximate Kalman filter Q-learning: an extended Kalman filter with a diagonal covariance.

    Examples
    --------
    >>> import valuetrack as vt
    >>> agent = vt.AKQ("CartPole-v1", hidden=(8,), seed=0).learn(2_000)

    References
    ----------
    Tripp and Shachter (2013). Approximate Kalman filter Q-learning for continuous state-space
    MDPs. UAI. https://arxiv.org/abs/1309.6868
    """

    name, label, colour, marker = "akq", "AKQ", "#7A9A01", ">"
    options_type = AKQOptions
    sample_name = "recent means of the Kalman filter, not a posterior"

    @staticmethod
    def build(task: Task, options: AKQOptions) -> Learner:
        """Build the learner."""
        network = options.network(task, task.actions)
        filter_ = samplers.akq(
            FORMS[options.form](network.apply, gradient=options.gradient),
            observation_variance=options.observation_variance,
            initial_variance=options.initial_variance,
            process_variance=options.process_variance,
            forgetting=options.forgetting,
        )
        return build_learner(network, filter_, following=FOLLOWING[options.form])
