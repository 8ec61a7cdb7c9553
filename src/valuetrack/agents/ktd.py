"""KTD: Kalman temporal differences, by the unscented transform."""

from __future__ import annotations

from valuetrack import samplers
from valuetrack.agents.kalman import FOLLOWING, FORMS, FilterOptions, check_covariance_fits
from valuetrack.api.agent import Agent
from valuetrack.api.options import Layers, NotNegative, Positive, default_of
from valuetrack.learner import Learner, Task, build_learner


class KTDOptions(FilterOptions):
    """KTD's own options; its memory grows with the square of the number of parameters.

    Attributes
    ----------
    initial_variance
        Smaller than AKQ's: as long as variance is left, the values of the mean parameters differ
        from the mean of the values, which is what the filter fits to the rewards.
    alpha, beta, kappa
        The unscented transform's; see :func:`valuetrack.samplers.ktd.ktd`.
    """

    hidden: Layers = (16, 16)
    initial_variance: Positive = 0.01
    alpha: Positive = default_of(samplers.ktd, "alpha")
    beta: NotNegative = default_of(samplers.ktd, "beta")
    kappa: NotNegative = default_of(samplers.ktd, "kappa")


class KTD(Agent[KTDOptions]):
    """Kalman temporal differences: the unscented Kalman filter on all parameters of small networks.

    Examples
    --------
    >>> import valuetrack as vt
    >>> agent = vt.KTD("CartPole-v1", hidden=(8,), seed=0).learn(2_000)

    References
    ----------
    Geist and Pietquin (2010). Kalman temporal differences. JAIR 39.
    https://arxiv.org/abs/1406.3270
    """

    name, label, colour, marker = "ktd", "KTD", "#8C510A", "<"
    options_type = KTDOptions
    sample_name = "recent means of the Kalman filter, not a posterior"

    @staticmethod
    def build(task: Task, options: KTDOptions) -> Learner:
        """Build the learner, if the covariance of its parameters fits into memory."""
        network = options.network(task, task.actions)
        check_covariance_fits("KTD", network)
        filter_ = samplers.ktd(
            FORMS[options.form](network.apply),
            observation_variance=options.observation_variance,
            initial_variance=options.initial_variance,
            process_variance=options.process_variance,
            forgetting=options.forgetting,
            alpha=options.alpha,
            beta=options.beta,
            kappa=options.kappa,
        )
        return build_learner(network, filter_, following=FOLLOWING[options.form])
