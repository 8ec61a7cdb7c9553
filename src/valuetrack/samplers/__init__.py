"""Samplers of the parameters' posterior, and the filters and optimiser they are compared with.

All keep one contract, :class:`~valuetrack.samplers.base.Sampler`: ``init(params) -> state`` and
``step(key, state, data) -> (state, info)``.
"""

from valuetrack.samplers.adam import adam
from valuetrack.samplers.akq import akq
from valuetrack.samplers.base import Info, Sampler
from valuetrack.samplers.chains import parallel
from valuetrack.samplers.guard import guarded
from valuetrack.samplers.kova import kova
from valuetrack.samplers.ktd import ktd
from valuetrack.samplers.lktd import lktd, lktd_prototype
from valuetrack.samplers.log_posterior import from_log_posterior
from valuetrack.samplers.prior_function import around_prior_function
from valuetrack.samplers.sghmc import sghmc
from valuetrack.samplers.sgld import sgld
from valuetrack.samplers.units import Estimated, Preconditioner, fixed, rmsprop

__all__ = [
    "Estimated", "Info", "Preconditioner", "Sampler", "adam", "akq",
    "around_prior_function", "fixed", "from_log_posterior", "guarded", "kova", "ktd", "lktd",
    "lktd_prototype", "parallel", "rmsprop", "sghmc", "sgld",
]  # fmt: skip
