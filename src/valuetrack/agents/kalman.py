"""What the Kalman filters share: a check of their memory, and the options of KTD and AKQ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import jax
from pydantic import Field

from valuetrack import networks
from valuetrack.api.options import NotNegative, Options, Positive
from valuetrack.api.settings import memory_of_machine
from valuetrack.learner import Following
from valuetrack.measurement import Measurement, max_sarsa, sarsa
from valuetrack.networks import Network

FORMS: dict[str, Callable[..., Measurement]] = {"q_learning": max_sarsa, "sarsa": sarsa}
"""The measurement behind each form; neither has a target network."""
FOLLOWING: dict[str, Following] = {"q_learning": "greedy", "sarsa": "taken"}
"""Which next action the values of each form are of."""


class FilterOptions(Options):
    """What KTD and AKQ share: the model of the values, and the filter's noises.

    Attributes
    ----------
    form
        What is compared with the reward r: ``"q_learning"``,
        Q(s, a) - gamma max Q(s', .) over the legal actions, or ``"sarsa"``,
        Q(s, a) - gamma Q(s', a') with the action a' really taken. There is no target network.
    observation_variance
        The variance of a reward around its prediction. Transitions are drawn many times from
        the replay memory, and the filter takes each draw for a new observation: the larger the
        variance, the later it is sure of its values.
    initial_variance
        How far the first parameters may be from the right ones, as a variance.
    process_variance, forgetting
        How the filter stays awake: per update a variance is added to each parameter's, and the
        covariance is divided by 1 - forgetting.
    """

    form: Literal["q_learning", "sarsa"] = "q_learning"
    observation_variance: Positive = 1.0
    initial_variance: Positive = 0.1
    process_variance: NotNegative = 0.0
    forgetting: Annotated[float, Field(ge=0, lt=1)] = 1e-4


def check_covariance_fits(name: str, network: Network) -> None:
    """Refuse a network whose parameters have a covariance larger than this machine's memory."""
    count = networks.parameter_count(jax.eval_shape(network.init, jax.random.key(0)))
    needed, available = 4 * count**2, memory_of_machine()
    if needed > available:
        raise ValueError(
            f"{name} keeps a covariance of {count:,} x {count:,} parameters, "
            f"{needed / 1e9:,.0f} GB, and this machine has {available / 1e9:,.0f} GB; choose a "
            "smaller network with `hidden`."
        )
