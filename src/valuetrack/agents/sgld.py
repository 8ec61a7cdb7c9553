"""SGLD: stochastic gradient Langevin dynamics."""

from __future__ import annotations

from valuetrack import samplers
from valuetrack.agents.sampling import SamplerOptions, sampling_learner
from valuetrack.api.agent import Agent
from valuetrack.learner import Learner, Task


class SGLDOptions(SamplerOptions):
    """SGLD has no options of its own."""


class SGLD(Agent[SGLDOptions]):
    """Stochastic gradient Langevin dynamics on the model of the values.

    Examples
    --------
    >>> import valuetrack as vt
    >>> agent = vt.SGLD("CartPole-v1", hidden=(8,), seed=0).learn(2_000)

    References
    ----------
    Welling and Teh (2011). Bayesian learning via stochastic gradient Langevin dynamics. ICML.
    https://dl.acm.org/doi/10.5555/3104482.3104568
    """

    name, label, colour, marker = "sgld", "SGLD", "#009E73", "s"
    options_type = SGLDOptions
    is_sampler = True
    sample_name = "posterior samples of SGLD"

    @staticmethod
    def build(task: Task, options: SGLDOptions) -> Learner:
        """Build the learner."""
        return sampling_learner(samplers.sgld, task, options)
