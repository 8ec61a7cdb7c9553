r"""LKTD: Langevinized Kalman temporal differences (Algorithm 1) and its prototype (Algorithm S2).

The measurement noise is split in two, :math:`\xi = h(x; \theta) + u` with
:math:`u \sim N(0, \alpha\sigma^2)` and :math:`r = \xi + v` with
:math:`v \sim N(0, (1-\alpha)\sigma^2)`. On :math:`\varphi = (\theta, \xi)` the measurement is
linear, :math:`r = H\varphi + v` with :math:`H = (0, I)`, so that the Kalman gain is the number
:math:`\epsilon / (\epsilon + 2(1-\alpha)\sigma^2)` on the :math:`\xi` part and zero on the
:math:`\theta` part: time and memory are linear in p and n.
"""

from __future__ import annotations

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
    as_arrays,
    check_choice,
    check_positive,
    check_sampler_options,
    gaussian_like,
    init_chain,
    make_info,
)
from valuetrack.samplers.units import Estimated, Preconditioner, UnitsState, find_units
from valuetrack.schedules import Schedule, as_schedule, inner_decay
from valuetrack.types import Array, Params, Scalar, Tree

Latent = Literal["restart", "conditional", "conditional_tempered"]
"""How the latent observation xi is treated, see :func:`lktd`."""


def lktd(
    measurement: Measurement,
    prior: Prior,
    *,
    step_size: float | Schedule | None = None,
    learning_rate: float | Schedule | None = None,
    pseudo_population: float | Schedule,
    observation_sd: float | Estimated,
    preconditioner: Preconditioner | None = None,
    value_scale: Literal[1] | Estimated = 1,
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
    learning_rate
        In its place, :math:`\ell_t` with :math:`\epsilon_t = 2\ell_t\sigma^2/n`.
    pseudo_population
        :math:`\mathcal N`, a number or a schedule; the likelihood of the batch of n counts
        :math:`\mathcal N/n` times.
    observation_sd
        :math:`\sigma`, or ``"estimated"`` from the residuals; see
        :func:`~valuetrack.samplers.units.find_units`.
    preconditioner
        P, which gives every parameter a step :math:`\epsilon P` of its own, and leaves
        :math:`\xi` alone.
    value_scale
        1, or ``"estimated"``: the last layer's step and prior follow the scale of the rewards.
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
    check_positive(likelihood_weight=likelihood_weight)
    check_choice("latent", latent, get_args(Latent))
    if not 0 < alpha < 1:
        raise ValueError(f"alpha splits the observation variance, so 0 < alpha < 1, not {alpha}.")
    units = find_units(
        step_size=step_size,
        learning_rate=learning_rate,
        pseudo_population=pseudo_population,
        observation_sd=observation_sd,
        preconditioner=preconditioner,
        value_scale=value_scale,
        square=measurement.square,
    )
    shrink = inner_decay(inner_iterations, inner_power)

    def init(params: Params) -> ChainState:
        params = as_arrays(params)
        return ChainState(params, jnp.int32(0), units.init(params))

    def step(key: Array, state: ChainState, data: Tree) -> tuple[ChainState, Info]:
        known, params = units.look(state.units, state.params, data)
        observed = measurement.observe(params, data)  # r_t
        batch = units.of_batch(known, state.updates, observed.shape[0])
        prior_now = units.prior(prior, batch)
        ratio = batch.ratio  # n / N
        precision = likelihood_weight / (alpha * batch.variance)
        analysis_variance = 2 * (1 - alpha) * batch.variance  # R_t

        def iterate(phi: tuple[Params, Array, UnitsState], inputs: tuple[Array, Array]) -> Tree:
            theta, xi, known = phi
            key_k, eps = inputs
            h, pull_back = jax.vjp(lambda params: measurement.predict(params, data), theta)
            w_theta, w_xi, v = gaussian_like(key_k, (theta, h, h))
            if latent != "restart":
                xi = conditional_latent(h, observed, w_xi, ratio, precision)
            (likelihood_gradient,) = pull_back((precision * (xi - h)).astype(h.dtype))
            prior_gradient = prior_now.gradient(theta, state.updates)
            known, steps = units.steps(known, likelihood_gradient, batch, eps)

            theta = forecast(theta, prior_gradient, likelihood_gradient, w_theta, steps, ratio)
            if latent == "restart":
                xi = xi - eps / 2 * ratio * precision * (xi - h) + jnp.sqrt(eps * ratio) * w_xi
                v = jnp.sqrt(ratio * analysis_variance) * v
                xi = analysis(xi, observed, v, eps, analysis_variance)
            return (theta, xi.astype(observed.dtype), known), observed - h

        inputs = (jax.random.split(key, inner_iterations), jnp.asarray(batch.step * shrink))
        begin = (params, observed, known)
        (params, _, known), residuals = jax.lax.scan(iterate, begin, inputs)
        info = make_info(batch.weight, residuals[0], residuals[-1], params)
        known = units.learn(known, residuals[0])
        return ChainState(params, state.updates + 1, known), info

    def conditional_latent(
        h: Array, observed: Array, noise: Array, ratio: Scalar, precision: Scalar
    ) -> Array:
        temperature = ratio if latent == "conditional_tempered" else 1.0
        sd = jnp.sqrt(temperature * (1 - alpha) / precision)
        return alpha * observed + (1 - alpha) * h + sd * noise

    return Sampler(init, step)


def forecast(
    theta: Params,
    prior_gradient: Params,
    likelihood_gradient: Params,
    noise: Params,
    steps: Params,
    ratio: Scalar,
) -> Params:
    r"""Take the Langevin step of :math:`\theta` under the split model.

    .. math:: \theta^f = \theta + \frac{\epsilon}{2}
              \left[\frac{n}{\mathcal N} \nabla \log \pi(\theta)
              + \frac{1}{\alpha\sigma^2} \nabla_\theta h\,(\xi - h)\right] + \tilde w,
              \quad \tilde w \sim N\left(0, \frac{n}{\mathcal N} \epsilon I\right)

    ``steps`` has a step :math:`\epsilon` for each parameter, or one for each array.
    """

    def leaf(p: Array, prior: Array, likelihood: Array, w: Array, eps: Array) -> Array:
        moved = p + eps / 2 * (ratio * prior + likelihood) + jnp.sqrt(eps * ratio) * w
        return jnp.astype(moved, p.dtype)

    return jax.tree.map(leaf, theta, prior_gradient, likelihood_gradient, noise, steps)


def analysis(xi: Array, observed: Array, noise: Array, eps: Scalar, variance: Scalar) -> Array:
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
        theta_f = forecast(theta, prior_gradient, jnp.zeros_like(theta), w, jnp.asarray(eps), ratio)
        H = jax.jacrev(predict)(theta)
        innovation = observed - predict(theta_f) - jnp.sqrt(ratio * variance) * v
        innovation_covariance = eps * H @ H.T + variance * jnp.eye(H.shape[0], dtype=H.dtype)
        gained = eps * H.T @ jnp.linalg.solve(innovation_covariance, innovation)
        params = unravel((theta_f + gained).astype(theta.dtype))
        info = make_info(eps, observed - predict(theta), params)
        return ChainState(params, state.updates + 1), info

    return Sampler(init_chain, step)
