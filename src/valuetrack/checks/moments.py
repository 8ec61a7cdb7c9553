"""Whether samples have the mean and the covariance that they should have."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from valuetrack.checks.linear_gaussian import Gaussian, LinearGaussian, Matrix
from valuetrack.samplers.base import Sampler
from valuetrack.types import Array


class MomentTest(NamedTuple):
    """How far sample moments are from a law's.

    Attributes
    ----------
    mean_z, covariance_z
        The largest deviation of an entry in standard errors, after whitening with the law.
    mean_p, covariance_p
        The probability of deviations as large as all of these together if the law is right.
    """

    mean_z: float
    covariance_z: float
    mean_p: float
    covariance_p: float

    @property
    def p_value(self) -> float:
        """The smaller of the two, doubled because it was chosen from two."""
        return min(1.0, 2 * min(self.mean_p, self.covariance_p))


def moment_test(samples: npt.ArrayLike, law: Gaussian) -> MomentTest:
    r"""Compare the moments of independent samples with those of a normal law.

    After whitening, :math:`z = L^{-1}(x - m)` with :math:`LL^\top = S`, the sample mean's entries
    have the standard error :math:`1/\sqrt M`, those of :math:`\overline{zz^\top}`
    :math:`\sqrt{2/M}` on the diagonal and :math:`1/\sqrt M` off it, and all are uncorrelated: the
    sums of squares are chi-squared.
    """
    x = np.asarray(samples, dtype=np.float64)
    count, p = x.shape
    z = np.linalg.solve(np.linalg.cholesky(law.covariance), (x - law.mean).T)
    mean_z = np.sqrt(count) * z.mean(axis=1)
    error = np.sqrt((1 + np.eye(p)) / count)
    covariance_z = ((z @ z.T / count - np.eye(p)) / error)[np.triu_indices(p)]
    return MomentTest(
        mean_z=float(np.abs(mean_z).max()),
        covariance_z=float(np.abs(covariance_z).max()),
        mean_p=float(chi2.sf(np.sum(mean_z**2), p)),
        covariance_p=float(chi2.sf(np.sum(covariance_z**2), len(covariance_z))),
    )


def run_chains(
    sampler: Sampler, model: LinearGaussian, *, chains: int, updates: int, seed: int
) -> Matrix:
    """Run many independent chains from the origin and return where each one ends.

    The last states of separate chains are independent of each other, so that the standard errors
    of their moments are known exactly; draws along one chain would not be.
    """
    data = (jnp.asarray(model.H), jnp.asarray(model.r))
    start = jnp.zeros(model.H.shape[1], data[0].dtype)

    def one_chain(key: Array) -> Array:
        state, _ = jax.lax.scan(
            lambda state, key_t: (sampler.step(key_t, state, data)[0], None),
            sampler.init(start),
            jax.random.split(key, updates),
        )
        return jnp.asarray(state.params)

    keys = jax.random.split(jax.random.key(seed), chains)
    return np.asarray(jax.jit(jax.vmap(one_chain))(keys))
