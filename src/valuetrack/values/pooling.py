r"""The solved values of several seeds in one.

Seeds have data of their own, so that their values are independent. With the values
:math:`\hat Q_s` of m seeds and their standard errors :math:`\sigma_s`, let W be the mean of
:math:`\sigma_s^2`, and B the variance of the :math:`\hat Q_s` with m - 1 below the bar. The
variance of a seed around what such seeds have in the mean is :math:`W + \tau^2`, where
:math:`\tau^2` is what seeds differ by besides their data, as their policies do. B estimates that
sum, so adding W to it would count W twice; W is a lower bound. Hence

.. math:: \bar Q \pm t_{m-1} \sqrt{\frac{\max(W, B)}{m}}.

Student's t, because B of a few seeds is itself uncertain. This is the interval of Hartung and
Knapp, with the variance bounded from below. It is for the value that seeds trained this way have
in the mean. That is *the* value if they have learned the same policy and their networks' errors
are independent; an error that all seeds share is not in it.

References
----------
Knapp and Hartung (2003). Improved tests for a random effects meta-regression with a single
covariate. Statistics in Medicine 22. https://doi.org/10.1002/sim.1482
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from valuetrack.values.sandwich import Values


def pooled(seeds: Sequence[Values]) -> Values:
    """Return the values of several seeds in one; see the formula of the module.

    Examples
    --------
    >>> found = pooled([Values(np.array([m]), np.array([0.1])) for m in (1.0, 2.0, 3.0)])
    >>> found.mean, found.sd.round(3), found.df
    (array([2.]), array([0.577]), 2.0)
    """
    if len(seeds) == 1:
        return seeds[0]
    means = np.stack([np.asarray(values.mean, np.float64) for values in seeds])
    within = np.mean([np.square(values.sd, dtype=np.float64) for values in seeds], axis=0)
    variance = np.maximum(within, means.var(axis=0, ddof=1)) / len(seeds)
    bound = float(np.max([np.max(values.bound) for values in seeds]))
    return Values(means.mean(axis=0), np.sqrt(variance), float(len(seeds) - 1), bound)
