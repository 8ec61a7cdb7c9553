r"""SGLD and SGHMC from log-densities alone, at any temperature, as users of blackjax know them.

The paper's samplers take a measurement :math:`r = h(x; \theta) + \eta`. Here any likelihood will
do, and the step has no units of rewards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp

from valuetrack.samplers.base import (
    Info,
    Sampler,
    all_finite,
    as_arrays,
    check_choice,
    check_positive,
    gaussian_like,
)
from valuetrack.schedules import Schedule, as_schedule
from valuetrack.types import Array, Params, Tree

LogPrior = Callable[[Params], Array]
"""(params) -> the log-density of the prior, up to a constant."""
LogLikelihood = Callable[[Params, Tree], Array]
"""(params, one datum) -> the log-likelihood of the datum, up to a constant."""
Method = Literal["sgld", "sghmc"]


class LogPosteriorState(NamedTuple):
    """The current sample, and the velocity it moves with, which SGLD forgets."""

    params: Params
    updates: Array
    velocity: Params


def from_log_posterior(
    logprior: LogPrior,
    loglikelihood: LogLikelihood,
    data_size: int,
    *,
    step_size: float | Schedule,
    method: Method = "sgld",
    temperature: float = 1.0,
    friction: float = 0.1,
) -> Sampler:
    r"""Build SGLD or SGHMC on a posterior that is given by its log-densities.

    With :math:`\hat g(\theta) = \nabla \log \pi(\theta) + \frac{N}{n} \sum_{i=1}^n \nabla \log
    p(z_i \mid \theta)` from a batch of n of all N data, SGLD is

    .. math:: \theta' = \theta + \epsilon\, \hat g(\theta) + \sqrt{2 \epsilon \tau}\, w, \qquad
              w \sim N(0, I)

    and SGHMC, which keeps its velocity from one update to the next,

    .. math:: v' = (1 - a)\, v + \epsilon\, \hat g(\theta) + \sqrt{2 a \epsilon \tau}\, w, \qquad
              \theta' = \theta + v'.

    For small steps both sample :math:`\pi(\theta \mid z_{1:N})^{1/\tau}`, plus what the noise of
    batches adds; SGHMC moves :math:`1/a` times as far per update.

    Parameters
    ----------
    logprior, loglikelihood
        :math:`\log \pi(\theta)`, and :math:`\log p(z \mid \theta)` of one datum. The data that
        ``step`` takes are a pytree of arrays, with one datum per entry of their first axis.
    data_size
        N, of which a batch is a part.
    step_size
        :math:`\epsilon`, a number or a schedule of the update count. It is blackjax's; the paper's
        is :math:`2 \epsilon N / n`.
    method
        ``"sgld"`` or ``"sghmc"``.
    temperature
        :math:`\tau`: 1 for the posterior, less for a colder one, 0 for stochastic gradient ascent.
    friction
        The a of SGHMC, in (0, 1]; with 1 it is SGLD.

    Examples
    --------
    The mean of normal data, and its sd, which is exactly 0.1:

    >>> import jax, jax.numpy as jnp
    >>> data = 2.0 + jax.random.normal(jax.random.key(0), (100,))
    >>> sampler = from_log_posterior(
    ...     lambda theta: 0.0, lambda theta, x: -0.5 * (x - theta) ** 2, 100, step_size=1e-3
    ... )
    >>> def update(state, key):
    ...     state, info = sampler.step(key, state, data)
    ...     return state, state.params
    >>> keys = jax.random.split(jax.random.key(1), 5_000)
    >>> _, chain = jax.jit(jax.lax.scan, static_argnums=0)(update, sampler.init(0.0), keys)
    >>> bool(abs(chain[500:].mean() - data.mean()) < 0.03), bool(0.08 < chain[500:].std() < 0.12)
    (True, True)

    References
    ----------
    Welling and Teh (2011). Bayesian learning via stochastic gradient Langevin dynamics. ICML.

    Chen, Fox and Guestrin (2014). Stochastic gradient Hamiltonian Monte Carlo. ICML.
    https://arxiv.org/abs/1402.4102
    """
    check_choice("method", method, get_args(Method))
    check_positive(data_size=data_size)
    if temperature < 0:
        raise ValueError(f"temperature must not be negative, but is {temperature}.")
    if not 0 < friction <= 1:
        raise ValueError(f"friction must lie in (0, 1], not {friction}.")
    steps = as_schedule(step_size)
    forgotten = friction if method == "sghmc" else 1.0
    estimate = jax.value_and_grad(_estimator(logprior, loglikelihood, data_size), has_aux=True)

    def init(params: Params) -> LogPosteriorState:
        params = as_arrays(params)
        return LogPosteriorState(params, jnp.int32(0), jax.tree.map(jnp.zeros_like, params))

    def step(key: Array, state: LogPosteriorState, data: Tree) -> tuple[LogPosteriorState, Info]:
        eps = jnp.asarray(steps(state.updates))
        (_, loss), gradient = estimate(state.params, data)
        noise_sd = jnp.sqrt(2 * forgotten * eps * temperature)

        def accelerate(v: Array, g: Array, w: Array) -> Array:
            return ((1 - forgotten) * v + eps * g + noise_sd * w).astype(v.dtype)

        noise = gaussian_like(key, state.params)
        velocity = jax.tree.map(accelerate, state.velocity, gradient, noise)
        params = jax.tree.map(jnp.add, state.params, velocity)
        info = Info(eps, loss, all_finite((loss, params)))
        return LogPosteriorState(params, state.updates + 1, velocity), info

    return Sampler(init, step)


def _estimator(
    logprior: LogPrior, loglikelihood: LogLikelihood, data_size: int
) -> Callable[[Params, Tree], tuple[Array, Array]]:
    """Return an unbiased estimate of the log-posterior, and the mean loss of the batch."""

    def estimate(params: Params, data: Tree) -> tuple[Array, Array]:
        each = jax.vmap(loglikelihood, (None, 0))(params, data)
        mean = jnp.mean(each)
        return logprior(params) + data_size * mean, -mean

    return estimate
