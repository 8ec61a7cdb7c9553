r"""Measurement models: what the network predicts, and what is observed.

Value learning as a state-space model has the measurement equation
:math:`r_t = h(x_t, \theta_t) + \eta_t`. The samplers differ in what they need of it (a gradient,
a vector-Jacobian product, a Jacobian), so they share the two functions themselves.

======================  ==============================  ======================================
form                    h(x; theta)                     observed
======================  ==============================  ======================================
:func:`sarsa`           Q(s, a) - discount * Q(s', a')  r
:func:`max_sarsa`       Q(s, a) - discount * max Q(s')  r
:func:`state_value`     V(s) - discount * V(s')         r
:func:`q_learning`      Q(s, a)                         r + discount * max Q^-(s', .)
:func:`sarsa_target`    Q(s, a)                         r + discount * Q^-(s', a')
:func:`expected_sarsa`  Q(s, a)                         r + discount * sum pi(. | s') Q^-(s', .)
======================  ==============================  ======================================

``discount`` is gamma * (1 - terminated): a truncated step bootstraps, a terminal one does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp

from valuetrack.policies import action_probabilities, greedy, masked_max, select
from valuetrack.types import Apply, Array, Params, Scalar, Transition, Tree

Gradient = Literal["semi", "full"]
"""Whether the value of the next state is held constant in the gradient of h."""


LONGEST_DISCOUNT = 0.999
"""Beyond which the scale of values no longer grows with the discount."""


class Measurement(NamedTuple):
    """A measurement model over data of any structure.

    Attributes
    ----------
    predict : (params, data) -> (n,)
        h(x; theta), differentiable in the parameters.
    observe : (params, data) -> (n,)
        What h is compared with. Evaluated once an update, at the parameters before it.
    square : (data) -> (n,)
        The square that values would have, were they sums of independent rewards such as these;
        ``None`` where nothing is known of their scale.
    """

    predict: Callable[[Params, Tree], Array]
    observe: Callable[[Params, Tree], Array]
    square: Callable[[Tree], Array] | None = None


class TargetBatch(NamedTuple):
    """The data of the forms with a target network."""

    transitions: Transition
    target_params: Params
    epsilon: Scalar = 0.0
    """How often the behaviour explores at present; only :func:`expected_sarsa` asks."""
    weights: Tree = ()
    """What each transition's loss weighs; an empty tuple where all weigh the same."""


def sarsa(apply: Apply, gradient: Gradient = "semi") -> Measurement:
    r"""Q-function form of the paper's equation for h, on the action really taken next.

    .. math:: h(x; \theta) = Q_\theta(s, a) - \gamma\, Q_\theta(s', a'), \qquad r = h + \eta

    Parameters
    ----------
    apply
        ``(params, observations) -> Q-values`` with the actions on the last axis.
    gradient
        ``"full"`` differentiates both terms, as the paper's equation does; ``"semi"`` holds
        Q(s', a') constant, which is the reference setting. A sampled a' inside a squared
        residual makes the full gradient biased (the double-sampling problem).
    """
    held = _held_in(gradient)

    def predict(params: Params, data: Transition) -> Array:
        next_params = held(params)
        value = select(apply(params, data.observation), data.action)
        next_value = select(apply(next_params, data.next_observation), data.next_action)
        return value - data.discount * next_value

    return Measurement(predict, lambda params, data: data.reward, squared_scale)


def max_sarsa(apply: Apply, gradient: Gradient = "semi") -> Measurement:
    r"""Q-learning without a target network: :func:`sarsa` on the best legal next action.

    .. math:: h(x; \theta) = Q_\theta(s, a) - \gamma \max_{a' \text{ legal}} Q_\theta(s', a'),
              \qquad r = h + \eta

    ``gradient`` is as in :func:`sarsa`.
    """
    held = _held_in(gradient)

    def predict(params: Params, data: Transition) -> Array:
        next_params = held(params)
        value = select(apply(params, data.observation), data.action)
        next_q = apply(next_params, data.next_observation)
        # By its index: the derivative of jnp.max divides by the number of entries that equal the
        # maximum, and a program that computes them twice, with other rounding, may find none.
        best = select(next_q, greedy(next_q, data.next_mask))
        return value - data.discount * best

    return Measurement(predict, lambda params, data: data.reward, squared_scale)


def state_value(apply: Apply, gradient: Gradient = "semi") -> Measurement:
    r"""V-function form: :math:`h(x; \theta) = V_\theta(s) - \gamma\, V_\theta(s')`.

    ``apply`` returns one value a state, with or without a last axis of size one. ``gradient`` is
    as in :func:`sarsa`.
    """
    held = _held_in(gradient)

    def predict(params: Params, data: Transition) -> Array:
        shape = data.reward.shape
        next_params = held(params)
        now = apply(params, data.observation).reshape(shape)
        later = apply(next_params, data.next_observation).reshape(shape)
        return now - data.discount * later

    return Measurement(predict, lambda params, data: data.reward, squared_scale)


def q_learning(apply: Apply, *, double: bool = False) -> Measurement:
    r"""DQN form with a target network, the paper's second state-space model.

    .. math:: h(x; \theta) = Q_\theta(s, a), \qquad
              y = r + \gamma \max_{a' \text{ legal}} Q_{\theta^-}(s', a')

    The data is a :class:`TargetBatch`. With ``double=True`` the action is the legal argmax under
    the current parameters and its value comes from the target network (double Q-learning).
    """

    def next_value(params: Params, data: TargetBatch, target_q: Array) -> Array:
        batch = data.transitions
        if not double:
            return masked_max(target_q, batch.next_mask)
        best = greedy(apply(params, batch.next_observation), batch.next_mask)
        return select(target_q, best)

    return _with_target(apply, next_value)


def sarsa_target(apply: Apply) -> Measurement:
    r"""SARSA with a target network, on the action really taken next.

    .. math:: h(x; \theta) = Q_\theta(s, a), \qquad y = r + \gamma\, Q_{\theta^-}(s', a')

    The data is a :class:`TargetBatch`.
    """

    def next_value(params: Params, data: TargetBatch, target_q: Array) -> Array:
        return select(target_q, data.transitions.next_action)

    return _with_target(apply, next_value)


def expected_sarsa(apply: Apply) -> Measurement:
    r"""SARSA in expectation over the next action of the present epsilon-greedy policy.

    .. math:: h(x; \theta) = Q_\theta(s, a), \qquad
              y = r + \gamma \sum_{a'} \pi_\theta(a' \mid s')\, Q_{\theta^-}(s', a')

    The policy is that of the current parameters, so stored actions do not grow stale; the values
    are the target network's. The data is a :class:`TargetBatch` with its ``epsilon``.

    References
    ----------
    van Seijen, van Hasselt, Whiteson and Wiering (2009). A theoretical and empirical analysis of
    expected Sarsa. ADPRL. https://ieeexplore.ieee.org/document/4927542
    """

    def next_value(params: Params, data: TargetBatch, target_q: Array) -> Array:
        batch = data.transitions
        q = apply(params, batch.next_observation)
        return jnp.sum(action_probabilities(q, batch.next_mask, data.epsilon) * target_q, axis=-1)

    return _with_target(apply, next_value)


def _with_target(
    apply: Apply, next_value: Callable[[Params, TargetBatch, Array], Array]
) -> Measurement:
    """Compare Q(s, a) with r + discount * what the target network says of the next state."""

    def predict(params: Params, data: TargetBatch) -> Array:
        return select(apply(params, data.transitions.observation), data.transitions.action)

    def observe(params: Params, data: TargetBatch) -> Array:
        batch = data.transitions
        target_q = apply(data.target_params, batch.next_observation)
        target = batch.reward + batch.discount * next_value(params, data, target_q)
        return jax.lax.stop_gradient(target)

    return Measurement(predict, observe, lambda data: squared_scale(data.transitions))


def squared_scale(data: Transition) -> Array:
    r"""Return :math:`r^2 / (1 - \gamma^2)` of each transition.

    Its mean is the variance of a discounted sum of independent rewards of mean zero: a scale for
    values that follows the unit of the rewards. :math:`\gamma` is at most 0.999 here.
    """
    gamma = jnp.minimum(jnp.max(data.discount), LONGEST_DISCOUNT)
    return data.reward**2 / (1.0 - gamma**2)


def squared_scale_of(gamma: float, n: int) -> Callable[[Tree], Array]:
    r"""Return :func:`squared_scale` for n-step transitions of a known discount.

    They have :math:`\gamma^n`, which cannot be read off a batch with shorter ones.
    """
    squared = min(gamma, LONGEST_DISCOUNT) ** (2 * n)

    def square(data: Tree) -> Array:
        batch: Transition = data.transitions if isinstance(data, TargetBatch) else data
        return batch.reward**2 / (1.0 - squared)

    return square


def mean_squared_error(measurement: Measurement) -> Callable[[Params, Tree], Array]:
    r"""Return the loss :math:`\frac1n \sum_i (y_i - h_i)^2` of a measurement model."""

    def loss(params: Params, data: Tree) -> Array:
        observed = jax.lax.stop_gradient(measurement.observe(params, data))
        return weighted_mean((observed - measurement.predict(params, data)) ** 2, data)

    return loss


def huber_error(measurement: Measurement) -> Callable[[Params, Tree], Array]:
    r"""Return the mean of :math:`u^2/2` for residuals up to 1 and of :math:`|u| - 1/2` beyond."""

    def loss(params: Params, data: Tree) -> Array:
        observed = jax.lax.stop_gradient(measurement.observe(params, data))
        size = jnp.abs(observed - measurement.predict(params, data))
        return weighted_mean(jnp.where(size <= 1.0, 0.5 * size**2, size - 0.5), data)

    return loss


def error_sizes(measurement: Measurement) -> Callable[[Params, Tree], Array]:
    r"""Return the function for :math:`|y_i - h_i|` of each transition."""

    def sizes(params: Params, data: Tree) -> Array:
        return jnp.abs(measurement.observe(params, data) - measurement.predict(params, data))

    return sizes


def weighted_mean(losses: Array, data: Tree) -> Array:
    r"""Return :math:`\frac1n \sum_i w_i l_i` with the weights of a target batch, if it has any."""
    weights = data.weights if isinstance(data, TargetBatch) else ()
    return jnp.mean(losses) if isinstance(weights, tuple) else jnp.mean(weights * losses)


def discount_of(gamma: float, terminated: Array) -> Array:
    """Return gamma * (1 - terminated). Truncation is not asked for: it bootstraps."""
    return jnp.where(terminated, 0.0, gamma)


def _held_in(gradient: Gradient) -> Callable[[Params], Params]:
    """Return what makes the parameters those of the next state's value."""
    if gradient not in get_args(Gradient):
        raise ValueError(f"gradient is 'semi' or 'full', not {gradient!r}.")
    return jax.lax.stop_gradient if gradient == "semi" else lambda params: params
