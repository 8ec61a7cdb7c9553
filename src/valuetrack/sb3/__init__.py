"""LKTD, SGLD and SGHMC as off-policy algorithms of Stable-Baselines3.

::

    from valuetrack.sb3 import LKTD

    model = LKTD("MlpPolicy", "CartPole-v1", step_size=2.5e-5, seed=0).learn(100_000)
    action, _ = model.predict(observation, deterministic=True)
    q = model.posterior(observation)      # q.mean, q.std, q.interval(0.95)

Networks, samplers and the pool of parameter samples are valuetrack's; environments, the replay
buffer, callbacks, logs and files are SB3's.
"""

from __future__ import annotations

try:
    import stable_baselines3  # noqa: F401 - to name the extra if it is missing
except ImportError as error:
    raise ImportError("Stable-Baselines3 needs an extra: pip install 'valuetrack[sb3]'.") from error

from valuetrack import registry
from valuetrack.sb3.base import SamplingAlgorithm
from valuetrack.sb3.policies import CnnPolicy, MlpPolicy, MultiInputPolicy


class LKTD(SamplingAlgorithm):
    """Langevinized Kalman temporal differences, with the options of ``vt.LKTD``."""

    agent = registry.LKTD


class SGLD(SamplingAlgorithm):
    """Stochastic gradient Langevin dynamics, with the options of ``vt.SGLD``."""

    agent = registry.SGLD


class SGHMC(SamplingAlgorithm):
    """Stochastic gradient Hamiltonian Monte Carlo, with the options of ``vt.SGHMC``."""

    agent = registry.SGHMC


ALGORITHMS: dict[str, type[SamplingAlgorithm]] = {
    kind.agent.name: kind for kind in (LKTD, SGLD, SGHMC)
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
