"""Environments: the contract, those written in JAX, and their Gymnasium faces.

Importing this package registers its Gymnasium environments::

    import gymnasium
    import valuetrack.envs

    env = gymnasium.make("valuetrack/IndoorEscape-v0", walls=((3, 0), (3, 1)))
"""

from collections.abc import Callable
from typing import Any

import gymnasium

from valuetrack.envs.acrobot import Acrobot, AcrobotState
from valuetrack.envs.base import Environment, Step
from valuetrack.envs.cartpole import CartPole, CartPoleState
from valuetrack.envs.indoor_escape import (
    EscapeState,
    IndoorEscape,
    QValues,
    observations,
    optimal_policy_probabilities,
    optimal_q,
)
from valuetrack.envs.mountain_car import MountainCar, MountainCarState

ESCAPE_ID = "valuetrack/IndoorEscape-v0"

# Registering an id twice warns, and a reload of this module comes by here again.
if ESCAPE_ID not in gymnasium.registry:
    gymnasium.register(ESCAPE_ID, entry_point="valuetrack.envs.escape_gym:IndoorEscapeEnv")

IN_JAX: dict[str, Callable[[], Environment[Any]]] = {
    "Acrobot-v1": Acrobot,
    "CartPole-v1": CartPole,
    "MountainCar-v0": MountainCar,
    ESCAPE_ID: IndoorEscape,
}
"""From a Gymnasium id to the builder of the same environment in JAX, with the id's time limit."""

__all__ = [
    "ESCAPE_ID",
    "IN_JAX",
    "Acrobot",
    "AcrobotState",
    "CartPole",
    "CartPoleState",
    "Environment",
    "EscapeState",
    "IndoorEscape",
    "MountainCar",
    "MountainCarState",
    "QValues",
    "Step",
    "observations",
    "optimal_policy_probabilities",
    "optimal_q",
]
