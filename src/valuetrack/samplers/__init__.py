"""Samplers of the parameters' posterior, and the filter and optimiser they are compared with.

All keep one contract, :class:`~valuetrack.samplers.base.Sampler`: ``init(params) -> state`` and
``step(key, state, data) -> (state, info)``.
"""

from valuetrack.samplers.adam import adam
from valuetrack.samplers.base import Info, Sampler
from valuetrack.samplers.kova import kova
from valuetrack.samplers.lktd import lktd, lktd_prototype
from valuetrack.samplers.sghmc import sghmc
from valuetrack.samplers.sgld import sgld

__all__ = ["Info", "Sampler", "adam", "kova", "lktd", "lktd_prototype", "sghmc", "sgld"]
