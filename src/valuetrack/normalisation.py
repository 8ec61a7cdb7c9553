r"""Observations brought to a common scale: running means and variances, as a part of a learner.

.. math:: x' = \operatorname{clip}\left(\frac{x - \mu}{\sqrt{\sigma^2 + 10^{-8}}}, \pm 10\right)

:math:`\mu` and :math:`\sigma^2` are the mean and the variance of all observations that a seed has
collected, in all of its environments. Trainers report what they collect with
``Learner.observe``; nothing else changes the statistics. The replay memory keeps observations as
they came, so that old transitions are seen in today's scale::

    learner = normalised(learner, scaling(bounds, factors, "auto"))

A one-hot vector of n places is multiplied by :math:`\sqrt n`. It has the mean square 1 then, as
normalised numbers have and as He's initialisation expects; a single 1 among hundreds of zeros would
hardly move a layer that was drawn for n numbers of that size.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from valuetrack.host_networks import Forward
from valuetrack.learner import Acted, Learner, LearnerState
from valuetrack.samplers.base import Info
from valuetrack.types import Array, Batch, Bools, Floats, NDArray, Scalar, Transition, Weighted

CLIP = 10.0
"""How many standard deviations from the mean an observation may be."""
FLOOR = 1e-8
"""Added to a variance, which may be zero."""
LARGE, APART = 10.0, 10.0
"""Bounds beyond the first, or as far apart as the second, ask for normalisation."""

Wanted = bool | Literal["auto", "one-hot"]
"""Whether observations are normalised; ``"auto"`` decides by the bounds of the space, and
``"one-hot"`` means one-hot vectors alone."""


class Moments(NamedTuple):
    """How many observations there were, and the mean and variance of each component."""

    seen: Array
    mean: Array
    variance: Array


def init(shape: tuple[int, ...]) -> Moments:
    """Return moments of no observations, which leave an observation as it is."""
    return Moments(jnp.int32(0), jnp.zeros(shape), jnp.ones(shape))


def add(moments: Moments, observations: Array, counts: Array) -> Moments:
    r"""Return the moments with more observations, (n, ...); only those that count are added.

    With the share s of the new ones in all, and their distance d from the old mean in the mean,

    .. math:: \mu' = \mu + s d, \qquad
              \sigma'^2 = (1 - s)\,\sigma^2 + s\,\sigma_{\text{new}}^2 + s(1 - s)\,d^2.

    References
    ----------
    Chan, Golub and LeVeque (1983). Algorithms for computing the sample variance. The American
    Statistician 37. https://doi.org/10.1080/00031305.1983.10483115
    """
    weights = counts.astype(jnp.float32).reshape(-1, *(1,) * (observations.ndim - 1))
    new = jnp.sum(weights)
    weights = weights / jnp.maximum(new, 1.0)
    away = observations.astype(jnp.float32) - moments.mean
    distance = jnp.sum(weights * away, axis=0)
    spread = jnp.sum(weights * (away - distance) ** 2, axis=0)
    count = moments.seen + jnp.sum(counts, dtype=jnp.int32)
    share = new / jnp.maximum(count, 1)
    return Moments(
        count,
        moments.mean + share * distance,
        (1 - share) * moments.variance + share * (spread + (1 - share) * distance**2),
    )


def normalise(moments: Moments, observations: Array, which: Bools) -> Array:
    """Return observations in units of their sd; components that are not meant stay as they are."""
    plain = observations.astype(jnp.float32)
    scaled = (plain - moments.mean) / jnp.sqrt(moments.variance + FLOOR)
    return jnp.where(which, jnp.clip(scaled, -CLIP, CLIP), plain)


def normalise_on_host(moments: Moments, which: Bools) -> Forward:
    """Return :func:`normalise` in NumPy: for moments (seeds, ...) a function of observations."""
    mean, sd = np.asarray(moments.mean)[:, None], np.sqrt(moments.variance + FLOOR)[:, None]
    everywhere = bool(which.all())

    def scaled(observations: NDArray) -> NDArray:
        plain = observations.astype(np.float32)
        new = (plain - mean) / sd
        np.minimum(np.maximum(new, -CLIP, out=new), CLIP, out=new)
        return new if everywhere else np.where(which, new, plain)

    return scaled


class Scaling(NamedTuple):
    """How observations are brought to a common scale; ``None`` for what is left as it is."""

    which: Bools | None = None
    """The components that are normalised by their running mean and sd."""
    factors: Floats | None = None
    """What observations are multiplied by before: the root of n in a one-hot vector of n."""

    @property
    def decided(self) -> Wanted:
        """What was wanted, once that is decided."""
        if self.which is not None:
            return True
        return "one-hot" if self.factors is not None else False


def scaling(bounds: Floats, factors: Floats, wanted: Wanted, *, is_image: bool = False) -> Scaling:
    """Return how to scale observations with such bounds; ``factors`` are 1 but in one-hot vectors.

    Examples
    --------
    >>> scaling(np.array([[0.0] * 4, [1.0] * 4]), np.full(4, 2.0), "auto").decided
    'one-hot'
    """
    which = None if wanted == "one-hot" else components(bounds, wanted, is_image=is_image)
    scales = wanted is not False and bool((factors != 1).any())
    return Scaling(which, factors.astype(np.float32) if scales else None)


def components(bounds: Floats, wanted: Wanted, *, is_image: bool = False) -> Bools | None:
    """Return which components of an observation to normalise; ``None`` for none.

    Those between 0 and 1 are never meant: one-hot vectors, bits, pixels divided by 255.
    ``"auto"`` normalises the others if one of them is unbounded or may be larger than 10, or if
    their bounds are 10 times as large as each other's; images it leaves alone.

    Parameters
    ----------
    bounds
        The lowest and the highest observation, (2, *shape); infinite where there is none.

    Examples
    --------
    >>> components(np.array([[-1.2, -0.07], [0.6, 0.07]]), "auto")  # of MountainCar-v0
    array([ True,  True])
    >>> components(np.array([[0.0, 0.0], [1.0, 1.0]]), "auto") is None
    True
    """
    low, high = bounds
    which = ~((low == 0) & (high == 1))
    if wanted is False or (wanted == "auto" and is_image) or not which.any():
        return None
    if wanted == "auto":
        size = np.maximum(np.abs(low), np.abs(high))[which]
        if size.max() <= LARGE and size.max() < APART * size.min():
            return None
    return np.asarray(which)


def normalised(learner: Learner, scaling: Scaling) -> Learner:
    """Return the learner with its observations in a common scale.

    A given policy still sees them as they came.
    """
    which, factors = scaling
    if which is None and factors is None:
        return learner

    def seen(state: LearnerState, observations: Array) -> Array:
        given = jnp.asarray(observations)
        given = given if factors is None else given * factors
        return given if which is None else normalise(state.scale, given, which)

    def start(key: Array) -> LearnerState:
        state = learner.init(key)
        return state if which is None else state._replace(scale=init(which.shape))

    def act(
        state: LearnerState, observation: Array, mask: Array, uniforms: Array, epsilon: Scalar
    ) -> Acted:
        return learner.act(state, seen(state, observation), mask, uniforms, epsilon)

    def scaled(state: LearnerState, transitions: Transition) -> Transition:
        return transitions._replace(
            observation=seen(state, transitions.observation),
            next_observation=seen(state, transitions.next_observation),
        )

    def update(key: Array, state: LearnerState, batch: Batch) -> tuple[LearnerState, Info]:
        if isinstance(batch, Weighted):
            batch = batch._replace(transitions=scaled(state, batch.transitions))
        else:
            batch = scaled(state, batch)
        return learner.update(key, state, batch)

    def values(key: Array, state: LearnerState, observations: Array) -> Array:
        return learner.values(key, state, seen(state, observations))

    def observe(state: LearnerState, observations: Array, counts: Array) -> LearnerState:
        return state._replace(scale=add(state.scale, observations, counts))

    def quantiles(state: LearnerState, observations: Array) -> Array:
        assert learner.quantiles is not None
        return learner.quantiles(state, seen(state, observations))

    def on_host(states: LearnerState) -> Forward:
        assert learner.on_host is not None
        values = learner.on_host(states)
        scaled = (lambda x: x) if which is None else normalise_on_host(states.scale, which)
        if factors is None:
            return lambda observations: values(scaled(observations))
        return lambda observations: values(scaled(observations * factors))

    return learner._replace(
        init=start,
        act=act,
        update=update,
        values=values,
        observe=observe if which is not None else None,
        quantiles=quantiles if learner.quantiles is not None else None,
        on_host=on_host if learner.on_host is not None else None,
        chain=None if learner.chain is None else normalised(learner.chain, scaling),
    )
