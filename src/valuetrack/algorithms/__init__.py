"""The seven algorithms as classes, and the function that loads them from a file.

::

    import valuetrack as vt

    agent = vt.LKTD("CartPole-v1", seed=0).learn(100_000)
    action, _ = agent.predict(observation)
    q = agent.posterior(observation)      # q.mean, q.std, q.interval(0.95)
"""

from __future__ import annotations

import os
from typing import Any

from valuetrack.algorithms import build, options
from valuetrack.algorithms.base import Algorithm
from valuetrack.algorithms.estimate import Estimate
from valuetrack.algorithms.running import Callback, Progress
from valuetrack.algorithms.tracking import Tracking
from valuetrack.io import array_file
from valuetrack.io.array_file import ModelFileError


class LKTD(Algorithm):
    """Langevinized Kalman temporal differences: posterior samples at the cost of a gradient step.

    The options are those of :class:`~valuetrack.algorithms.options.LKTDOptions`.
    """

    name, options_type, build = "lktd", options.LKTDOptions, staticmethod(build.build_lktd)
    is_sampler, sample_name = True, "posterior samples of LKTD"


class SGLD(Algorithm):
    """Stochastic gradient Langevin dynamics; options of ``SGLDOptions``."""

    name, options_type, build = "sgld", options.SGLDOptions, staticmethod(build.build_sgld)
    is_sampler, sample_name = True, "posterior samples of SGLD"


class SGHMC(Algorithm):
    """Stochastic gradient Hamiltonian Monte Carlo; options of ``SGHMCOptions``."""

    name, options_type, build = "sghmc", options.SGHMCOptions, staticmethod(build.build_sghmc)
    is_sampler, sample_name = True, "posterior samples of SGHMC"


class KOVA(Algorithm):
    """The extended Kalman filter on all parameters; options of ``KOVAOptions``."""

    name, options_type, build = "kova", options.KOVAOptions, staticmethod(build.build_kova)
    sample_name = "recent means of the Kalman filter, not a posterior"


class DQN(Algorithm):
    """Deep Q-learning with a (double) target; options of ``DQNOptions``."""

    name, options_type, build = "dqn", options.DQNOptions, staticmethod(build.build_dqn)


class BootDQN(Algorithm):
    """Bootstrapped DQN: heads that learn from half of the data each; ``BootDQNOptions``."""

    name, options_type, build = "bootdqn", options.BootDQNOptions, staticmethod(build.build_bootdqn)
    sample_name = "heads of a bootstrapped ensemble over recent iterates, not a posterior"


class QRDQN(Algorithm):
    """Quantile-regression DQN, whose quantiles are those of the return; ``QRDQNOptions``."""

    name, options_type, build = "qrdqn", options.QRDQNOptions, staticmethod(build.build_qrdqn)


ALGORITHMS: dict[str, type[Algorithm]] = {
    kind.name: kind for kind in (LKTD, SGLD, SGHMC, KOVA, DQN, BootDQN, QRDQN)
}
"""The name in files and on the command line -> the class."""


def load(path: str | os.PathLike[str], env: Any = None) -> Algorithm:
    """Load an agent from a file of :meth:`Algorithm.save`.

    ``env`` is needed if the agent was made without an id; given, it stands in for the saved one.

    Raises
    ------
    ModelFileError
        If the file is not whole, or no model of this library.
    """
    arrays, description = array_file.load(path)
    name = description.get("algorithm")
    if not isinstance(name, str) or name not in ALGORITHMS:
        raise array_file.file_error(
            path, f"holds the unknown algorithm {array_file.shortened(repr(name))}"
        )
    return ALGORITHMS[name].from_file(path, arrays, description, env)


__all__ = [
    "ALGORITHMS",
    "DQN",
    "KOVA",
    "LKTD",
    "QRDQN",
    "SGHMC",
    "SGLD",
    "Algorithm",
    "BootDQN",
    "Callback",
    "Estimate",
    "ModelFileError",
    "Progress",
    "Tracking",
    "load",
]
