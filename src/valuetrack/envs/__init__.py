"""Environments: the protocol, those written in JAX, and what surrounds Gymnasium's.

========================  =======================================================================
:mod:`~.base`             the protocol of environments in JAX; what an observation is
:mod:`~.registry`         from an id to the environment in JAX
``acrobot``, ...          one file per environment in JAX
:mod:`~.gymnax`           gymnax's environments, as they are (extra ``gymnax``)
:mod:`~.gym`              Gymnasium's environments: spaces, vectorisation, guards
========================  =======================================================================

Importing this package registers its Gymnasium environments::

    import gymnasium
    import valuetrack.envs

    env = gymnasium.make("valuetrack/IndoorEscape-v0", walls=((3, 0), (3, 1)))
"""

import gymnasium

from valuetrack.envs.acrobot import Acrobot, AcrobotState
from valuetrack.envs.base import Environment, ObservationSpec, Step, TimedTask
from valuetrack.envs.cartpole import CartPole, CartPoleState
from valuetrack.envs.gym.rewards import CHANGED_REWARDS_ID
from valuetrack.envs.indoor_escape import (
    ESCAPE_ID,
    EscapeState,
    IndoorEscape,
    QValues,
    observations,
    optimal_policy_probabilities,
    optimal_q,
)
from valuetrack.envs.mountain_car import MountainCar, MountainCarState
from valuetrack.envs.policy_evaluation import action_values, state_values
from valuetrack.envs.registry import IN_JAX, find, ids_in_jax, register

# Registering an id twice warns, and a reload of this module passes here again.
if ESCAPE_ID not in gymnasium.registry:
    gymnasium.register(ESCAPE_ID, entry_point="valuetrack.envs.gym.indoor_escape:IndoorEscapeEnv")
    gymnasium.register(CHANGED_REWARDS_ID, entry_point="valuetrack.envs.gym.rewards:make")

__all__ = [
    "CHANGED_REWARDS_ID",
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
    "ObservationSpec",
    "QValues",
    "Step",
    "TimedTask",
    "action_values",
    "find",
    "ids_in_jax",
    "observations",
    "optimal_policy_probabilities",
    "optimal_q",
    "register",
    "state_values",
]
