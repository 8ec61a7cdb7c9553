"""SGHMC: stochastic gradient Hamiltonian Monte Carlo."""

from __future__ import annotations

from valuetrack import samplers
from valuetrack.agents.sampling import SamplerOptions, sampling_learner
from valuetrack.api.agent import Agent
from valuetrack.api.options import PositiveShare, default_of
from valuetrack.learner import Learner, Task
from valuetrack.samplers.sghmc import Momentum


class SGHMCOptions(SamplerOptions):
    """SGHMC's own options.

    Attributes
    ----------
    friction
        The paper's momentum coefficient a, in (0, 1].
    momentum
        What becomes of the velocity between updates; see
        :func:`valuetrack.samplers.sghmc.sghmc`.
    """

    friction: PositiveShare = default_of(samplers.sghmc, "friction")
    momentum: Momentum = default_of(samplers.sghmc, "momentum")


class SGHMC(Agent[SGHMCOptions]):
    """Stochastic gradient Hamiltonian Monte Carlo on the model of the values.

    Examples
    --------
    >>> import valuetrack as vt
    >>> agent = vt.SGHMC("CartPole-v1", hidden=(8,), seed=0).learn(2_000)

    References
    ----------
    Chen, Fox and Guestrin (2014). Stochastic gradient Hamiltonian Monte Carlo. ICML.
    https://arxiv.org/abs/1402.4102
    """

    name, label, colour, marker = "sghmc", "SGHMC", "#D55E00", "^"
    options_type = SGHMCOptions
    is_sampler = True
    sample_name = "posterior samples of SGHMC"

    @staticmethod
    def build(task: Task, options: SGHMCOptions) -> Learner:
        """Build the learner."""
        return sampling_learner(samplers.sghmc, task, options)
