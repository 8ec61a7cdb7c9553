"""LKTD, SGLD and SGHMC as off-policy algorithms of Stable-Baselines3.

::

    from valuetrack.sb3 import LKTD

    model = LKTD("MlpPolicy", "CartPole-v1", step_size=2.5e-5, seed=0).learn(100_000)
    action, _ = model.predict(observation, deterministic=True)
    q = model.posterior(observation)      # q.mean, q.std, q.interval(0.95)

Networks, samplers and the pool of parameter samples are valuetrack's own; environments, replay
buffer, callbacks, logging and files are SB3's.
"""

from __future__ import annotations

try:
    import stable_baselines3  # noqa: F401 - only to say in one sentence what is missing
except ImportError as error:
    raise ImportError("Stable-Baselines3 needs an extra: pip install 'valuetrack[sb3]'.") from error

from valuetrack import algorithms
from valuetrack.sb3.base import SamplingAlgorithm
from valuetrack.sb3.policies import CnnPolicy, MlpPolicy, MultiInputPolicy


class LKTD(SamplingAlgorithm):
    """Langevinized Kalman temporal differences; options of ``LKTDOptions``."""

    core = algorithms.LKTD


class SGLD(SamplingAlgorithm):
    """Stochastic gradient Langevin dynamics; options of ``SGLDOptions``."""

    core = algorithms.SGLD


class SGHMC(SamplingAlgorithm):
    """Stochastic gradient Hamiltonian Monte Carlo; options of ``SGHMCOptions``."""

    core = algorithms.SGHMC


ALGORITHMS: dict[str, type[SamplingAlgorithm]] = {
    kind.core.name: kind for kind in (LKTD, SGLD, SGHMC)
}
"""The name in files and on the command line -> the class."""

__all__ = [
    "ALGORITHMS",
    "LKTD",
    "SGHMC",
    "SGLD",
    "CnnPolicy",
    "MlpPolicy",
    "MultiInputPolicy",
    "SamplingAlgorithm",
]
