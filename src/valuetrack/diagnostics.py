r"""Whether chains agree, and how many independent samples they are worth.

Both measures take draws of shape ``(chains, draws, ...)`` and return one number for each of the
remaining axes' entries. They are those of Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021),
*Rank-normalization, folding, and localization*, without the rank normalisation; ArviZ calls them
``ess(method="mean")`` and ``rhat(method="split")``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MINIMUM_DRAWS = 4
"""Below four draws a half of a chain has no variance."""


def split_r_hat(draws: npt.ArrayLike) -> Floats:
    r"""Return split-R-hat, the square root of total over within-chain variance.

    .. math:: \hat R = \sqrt{\frac{\frac{m-1}{m} W + \frac{1}{m} B}{W}}

    over half-chains of length m. Values above about 1.01 say that the chains have not mixed.
    """
    halves = _split(draws)
    length = halves.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        within = halves.var(axis=1, ddof=1).mean(axis=0)
        between = length * halves.mean(axis=1).var(axis=0, ddof=1)
        ratio: Floats = ((length - 1) / length * within + between / length) / within
        # A constant has no R-hat; that of its rounding errors means nothing.
        return np.where(np.ptp(halves, axis=(0, 1)) == 0, np.nan, np.sqrt(ratio))


def effective_sample_size(draws: npt.ArrayLike) -> Floats:
    r"""Return the number of independent draws that would estimate the mean as well.

    .. math:: \hat n = \frac{MT}{\hat\tau}, \qquad \hat\tau = -1 + 2\sum_t \hat P_t

    with :math:`\hat P_t` the sums of neighbouring autocorrelations, summed while positive and
    made monotone (Geyer's initial sequence), over split chains. As in Stan and ArviZ, the
    autocovariances are divided by the number of draws at every lag, and the pair that ends the
    sum counts with half of its first member.
    """
    halves = _split(draws)
    flat = halves.reshape(*halves.shape[:2], -1)
    sizes = [_ess_of_scalar(flat[:, :, i]) for i in range(flat.shape[-1])]
    return np.asarray(sizes).reshape(halves.shape[2:])


def _split(draws: npt.ArrayLike) -> Floats:
    x = np.asarray(draws, dtype=np.float64)
    if x.ndim < 2 or x.shape[1] < MINIMUM_DRAWS:
        raise ValueError(
            f"Draws have the shape (chains, draws, ...) with at least {MINIMUM_DRAWS} draws; "
            f"these have {x.shape}."
        )
    half = x.shape[1] // 2
    return np.concatenate([x[:, :half], x[:, -half:]])


def _ess_of_scalar(chains: Floats) -> float:
    count, length = chains.shape
    if not np.isfinite(chains).all():
        return float("nan")
    if np.ptp(chains) == 0:  # a constant is as well known from all its draws as from one
        return float(count * length)
    covariance = _autocovariance(chains).mean(axis=0)
    within = covariance[0] * length / (length - 1)
    total = covariance[0] + chains.mean(axis=1).var(ddof=1)
    correlation = 1 - (within - covariance) / total
    correlation[0] = 1.0
    tau = _integrated_autocorrelation(correlation)
    # Antithetic chains may beat independence, but by no more than a logarithm can vouch for.
    return float(count * length / max(tau, 1 / np.log10(count * length)))


def _autocovariance(chains: Floats) -> Floats:
    """Return every chain's autocovariance at all lags, by the fast Fourier transform."""
    length = chains.shape[1]
    centred = chains - chains.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, n=2 * length, axis=1)) ** 2
    covariance: Floats = np.fft.irfft(spectrum, axis=1)[:, :length] / length
    return covariance


def _integrated_autocorrelation(correlation: Floats) -> float:
    count = max((len(correlation) - 1) // 2, 1)  # the last lags are nothing but noise
    pairs = correlation[: 2 * count].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0)
    end = int(ends[0]) if ends.size else count - 1
    monotone = np.minimum.accumulate(pairs[:end])
    tail = correlation[2 * end]
    if pairs[end] < 0:
        tail = max(tail, 0.0)
    return float(-1 + 2 * monotone.sum() + tail)
