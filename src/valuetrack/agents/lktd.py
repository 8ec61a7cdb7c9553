"""LKTD: Langevinized Kalman temporal differences."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from valuetrack import samplers
from valuetrack.agents.sampling import SamplerOptions, sampling_learner
from valuetrack.api.agent import Agent
from valuetrack.api.options import default_of
from valuetrack.learner import Learner, Task
from valuetrack.samplers.lktd import Latent


class LKTDOptions(SamplerOptions):
    """LKTD's own options.

    Attributes
    ----------
    alpha
        How the observation noise is split between the prediction and the latent variable.
    latent
        How the latent variable is treated; see :func:`valuetrack.samplers.lktd.lktd`.
    """

    alpha: Annotated[float, Field(gt=0, lt=1)] = default_of(samplers.lktd, "alpha")
    latent: Latent = default_of(samplers.lktd, "latent")


class LKTD(Agent[LKTDOptions]):
    """Langevinized Kalman temporal differences: posterior samples at the cost of a gradient step.

    Examples
    --------
    >>> import valuetrack as vt
    >>> agent = vt.LKTD("CartPole-v1", hidden=(8,), seed=0).learn(2_000)
    >>> agent.posterior([0.0, 0.1, 0.02, -0.1]).mean.shape
    (2,)

    References
    ----------
    Shih and Liang (2024). Fast value tracking for deep reinforcement learning. ICLR.
    https://openreview.net/forum?id=uZtpwtsxr1
    """

    name, label, colour, marker = "lktd", "LKTD", "#0072B2", "o"
    options_type = LKTDOptions
    is_sampler = True
    sample_name = "posterior samples of LKTD"

    @staticmethod
    def build(task: Task, options: LKTDOptions) -> Learner:
        """Build the learner."""
        return sampling_learner(samplers.lktd, task, options)
