r"""LKTD: Langevinized Kalman temporal differences (Algorithm 1) and its prototype (Algorithm S2).

The measurement noise is split in two, :math:`\xi = h(x; \theta) + u` with
:math:`u \sim N(0, \alpha\sigma^2)` and :math:`r = \xi + v` with
:math:`v \sim N(0, (1-\alpha)\sigma^2)`. On :math:`\varphi = (\theta, \xi)` the measurement is
linear, :math:`r = H\varphi + v` with :math:`H = (0, I)`, so that the Kalman gain is the number
:math:`\epsilon / (\epsilon + 2(1-\alpha)\sigma^2)` on the :math:`\xi` part and zero on the
:math:`\theta` part: time and memory are linear in p and n.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from valuetrack.measurement import Measurement
from valuetrack.priors import Prior
from valuetrack.samplers.base import (
    ChainState,
    Info,
    Sampler,
    check_choice,
    check_sampler_options,
    gaussian_like,
    init_chain,
    make_info,
)
from valuetrack.schedules import Schedule, as_schedule, inner_decay
from valuetrack.types import Array, Params, Scalar, Tree

Latent = Literal["restart", "conditional", "conditional_tempered"]
"""How the latent observation xi is treated, see :func:`lktd`."""


def lktd(
    measurement: Measurement,
    prior: Prior,
    *,
    step_size: float | Schedule,
    pseudo_population: float,
    observation_sd: float,
    latent: Latent = "restart",
    alpha: float = 0.9,
    inner_iterations: int = 5,
    inner_power: float = 0.9,
    likelihood_weight: float = 1.0,
) -> Sampler:
    r"""Build the LKTD sampler.

    One update scans :math:`\mathcal K` times over a forecast, which is a Langevin step on
    :math:`(\theta, \xi)` under the prior of the split model, and an analysis, which is a Kalman
    step of :math:`\xi` towards the observation.

    Parameters
    ----------
    measurement, prior
        h and :math:`\pi(\theta)`.
    step_size
        :math:`\epsilon_t`, a number or a schedule of the update count.
    pseudo_population
        :math:`\mathcal N`; the likelihood of the batch of n counts :math:`\mathcal N/n` times.
    observation_sd
        :math:`\sigma`.
    alpha
        The share of the observation variance between h and :math:`\xi`, in (0, 1).
    inner_iterations, inner_power
        :math:`\mathcal K`, and how fast the step shrinks inside an update,
        :math:`\epsilon_{t,k} = \epsilon_t / k^d`.
    likelihood_weight
        Factor on the gradient of :math:`\log \pi(\xi \mid \theta)`; 1 in the paper, 2 in the
        reference setting, whose sum of squares carries no 1/2.
    latent
        ``"restart"`` starts :math:`\xi` at the observation in each update, as Algorithm 1 says.
        After few small steps :math:`\xi` has not forgotten that start, and the likelihood acts
        with a variance between :math:`\alpha\sigma^2` and :math:`\sigma^2` (see
        ``docs/posterior.md``). ``"conditional"`` draws :math:`\xi` before each forecast from its
        law given r, x and theta, :math:`N(\alpha r + (1-\alpha)h, \alpha(1-\alpha)\sigma^2)`; the
        limit of small steps is then the exact posterior. ``"conditional_tempered"`` draws it with
        the variance :math:`\frac{n}{\mathcal N}\alpha(1-\alpha)\sigma^2` that belongs to a
        likelihood counted :math:`\mathcal N/n` times: the same limit, nearer at any step.
    """
    check_sampler_options(step_size, pseudo_population, observation_sd, likelihood_weight)
    check_choice("latent", latent, get_args(Latent))
    if not 0 < alpha < 1:
        raise ValueError(f"alpha splits the observation variance, so 0 < alpha < 1, not {alpha}.")
    step_at = as_schedule(step_size)
    shrink = inner_decay(inner_iterations, inner_power)
    precision = likelihood_weight / (alpha * observation_sd**2)
    analysis_variance = 2 * (1 - alpha) * observation_sd**2  # R_t

    def step(key: Array, state: ChainState, data: Tree) -> tuple[ChainState, Info]:
        observed = measurement.observe(state.params, data)  # r_t
        ratio = observed.shape[0] / pseudo_population  # n / N

        def iterate(phi: tuple[Params, Array], inputs: tuple[Array, Array]) -> Tree:
            theta, xi = phi
            key_k, eps = inputs
            h, pull_back = jax.vjp(lambda params: measurement.predict(params, data), theta)
            w_theta, w_xi, v = gaussian_like(key_k, (theta, h, h))
            if latent != "restart":
                xi = conditional_latent(h, observed, w_xi, ratio)
            (likelihood_gradient,) = pull_back((precision * (xi - h)).astype(h.dtype))
            prior_gradient = prior.gradient(theta, state.updates)

            theta = forecast(theta, prior_gradient, likelihood_gradient, w_theta, eps, ratio)
            if latent == "restart":
                xi = xi - eps / 2 * ratio * precision * (xi - h) + jnp.sqrt(eps * ratio) * w_xi
                v = jnp.sqrt(ratio * analysis_variance) * v
                xi = analysis(xi, observed, v, eps, analysis_variance)
            return (theta, xi.astype(observed.dtype)), observed - h

        eps_t = step_at(state.updates)
        inputs = (jax.random.split(key, inner_iterations), jnp.asarray(eps_t * shrink))
        (params, _), residuals = jax.lax.scan(iterate, (state.params, observed), inputs)
        info = make_info(eps_t, residuals[0], residuals[-1], params)
        return ChainState(params, state.updates + 1), info

    def conditional_latent(h: Array, observed: Array, noise: Array, ratio: float) -> Array:
        temperature = ratio if latent == "conditional_tempered" else 1.0
        sd = math.sqrt(temperature * (1 - alpha) / precision)
        return alpha * observed + (1 - alpha) * h + sd * noise

    return Sampler(init_chain, step)


def forecast(
    theta: Params,
    prior_gradient: Params,
    likelihood_gradient: Params,
    noise: Params,
    eps: Scalar,
    ratio: float,
) -> Params:
    r"""Take the Langevin step of :math:`\theta` under the split model.

    .. math:: \theta^f = \theta + \frac{\epsilon}{2}
              \left[\frac{n}{\mathcal N} \nabla \log \pi(\theta)
              + \frac{1}{\alpha\sigma^2} \nabla_\theta h\,(\xi - h)\right] + \tilde w,
              \quad \tilde w \sim N\left(0, \frac{n}{\mathcal N} \epsilon I\right)
    """

    def leaf(p: Array, prior: Array, likelihood: Array, w: Array) -> Array:
        moved = p + eps / 2 * (ratio * prior + likelihood) + jnp.sqrt(eps * ratio) * w
        return jnp.astype(moved, p.dtype)

    return jax.tree.map(leaf, theta, prior_gradient, likelihood_gradient, noise)


def analysis(xi: Array, observed: Array, noise: Array, eps: Scalar, variance: float) -> Array:
    r"""Take the Kalman step of :math:`\xi` towards the observation.

    .. math:: \xi^a = \xi^f + \frac{\epsilon}{\epsilon + R}\,(r - \xi^f - v), \qquad
              v \sim N\left(0, \frac{n}{\mathcal N} R\right)

    It is :math:`\varphi^a = \varphi^f + K(r - H\varphi^f - v)` with
    :math:`K = BH^\top(HBH^\top + R)^{-1}`, :math:`B = \epsilon I` and :math:`H = (0, I)`.
    """
    gain = eps / (eps + variance)
    return jnp.asarray(xi + gain * (observed - xi - noise))


def lktd_prototype(
    measurement: Measurement,
    prior: Prior,
    *,
    step_size: float | Schedule,
    pseudo_population: float,
    observation_sd: float,
    likelihood_weight: float = 1.0,
) -> Sampler:
    r"""Build Algorithm S2: LKTD without latent variables, for a linear measurement.

    .. math::
        \theta^f &= \theta + \frac{\epsilon}{2} \frac{n}{\mathcal N} \nabla \log \pi(\theta) + w, &
        w &\sim N\left(0, \tfrac{n}{\mathcal N} \epsilon I\right) \\
        \theta^a &= \theta^f + K(r - H\theta^f - v), &
        v &\sim N\left(0, \tfrac{n}{\mathcal N} R\right), \quad R = 2\sigma^2 I

    This is a preconditioned SGLD (Lemma 1), and its limit of small steps is the exact posterior.
    H is the Jacobian of ``measurement.predict``, which must be linear (or affine) in the
    parameters; the n x n system in the gain makes it a tool for understanding, not for large
    batches.
    """
    check_sampler_options(step_size, pseudo_population, observation_sd, likelihood_weight)
    step_at = as_schedule(step_size)
    variance = 2 * observation_sd**2 / likelihood_weight  # R_t

    def step(key: Array, state: ChainState, data: Tree) -> tuple[ChainState, Info]:
        observed = measurement.observe(state.params, data)
        ratio = observed.shape[0] / pseudo_population
        eps = step_at(state.updates)
        theta, unravel = ravel_pytree(state.params)
        prior_gradient, _ = ravel_pytree(prior.gradient(state.params, state.updates))

        def predict(flat: Array) -> Array:
            return measurement.predict(unravel(flat), data)

        w, v = gaussian_like(key, (theta, observed))
        theta_f = forecast(theta, prior_gradient, jnp.zeros_like(theta), w, eps, ratio)
        H = jax.jacrev(predict)(theta)
        innovation = observed - predict(theta_f) - jnp.sqrt(ratio * variance) * v
        innovation_covariance = eps * H @ H.T + variance * jnp.eye(H.shape[0], dtype=H.dtype)
        gained = eps * H.T @ jnp.linalg.solve(innovation_covariance, innovation)
        params = unravel((theta_f + gained).astype(theta.dtype))
        info = make_info(eps, observed - predict(theta), params)
        return ChainState(params, state.updates + 1), info

    return Sampler(init_chain, step)
