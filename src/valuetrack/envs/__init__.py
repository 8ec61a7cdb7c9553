"""Environments: the protocol, those written in JAX, and what surrounds Gymnasium's.

========================  =======================================================================
:mod:`~.base`             the protocol of environments in JAX; what an observation is
:mod:`~.registry`         from an id to the environment in JAX
``acrobot``, ...          one file per environment in JAX
:mod:`~.changing`         worlds that change: several of them, one after the other
:mod:`~.finite`           what those share whose transitions are a table
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
from valuetrack.envs.changing import CHANGING_ID, ChangingWorld, WorldState, changing
from valuetrack.envs.deep_sea import DEEP_SEA_ID, DeepSea, DeepSeaState, episodes_to_solve
from valuetrack.envs.finite import FiniteTask, Outcomes, PlaceState
from valuetrack.envs.gym.rewards import CHANGED_REWARDS_ID
from valuetrack.envs.gym.tabular import (
    TransitionTable,
    optimal_values,
    table_values,
    transition_table,
    values_to_go,
)
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
from valuetrack.envs.n_chain import N_CHAIN_ID, NChain
from valuetrack.envs.policy_evaluation import action_values, state_values
from valuetrack.envs.registry import IN_JAX, find, ids_in_jax, register
from valuetrack.envs.river_swim import RIVER_SWIM_ID, RiverSwim

# Registering an id twice warns, and a reload of this module passes here again.
if ESCAPE_ID not in gymnasium.registry:
    gymnasium.register(ESCAPE_ID, entry_point="valuetrack.envs.gym.indoor_escape:IndoorEscapeEnv")
    gymnasium.register(CHANGED_REWARDS_ID, entry_point="valuetrack.envs.gym.rewards:make")
    for env_id in (DEEP_SEA_ID, N_CHAIN_ID, RIVER_SWIM_ID):
        made_by = "valuetrack.envs.gym.from_jax:FiniteEnv"
        gymnasium.register(env_id, entry_point=made_by, kwargs={"task": env_id})
    made_by = "valuetrack.envs.gym.from_jax:JaxEnv"
    gymnasium.register(CHANGING_ID, entry_point=made_by, kwargs={"task": CHANGING_ID})

__all__ = [
    "CHANGED_REWARDS_ID",
    "CHANGING_ID",
    "DEEP_SEA_ID",
    "ESCAPE_ID",
    "IN_JAX",
    "N_CHAIN_ID",
    "RIVER_SWIM_ID",
    "Acrobot",
    "AcrobotState",
    "CartPole",
    "CartPoleState",
    "ChangingWorld",
    "DeepSea",
    "DeepSeaState",
    "Environment",
    "EscapeState",
    "FiniteTask",
    "IndoorEscape",
    "MountainCar",
    "MountainCarState",
    "NChain",
    "ObservationSpec",
    "Outcomes",
    "PlaceState",
    "QValues",
    "RiverSwim",
    "Step",
    "TimedTask",
    "TransitionTable",
    "WorldState",
    "action_values",
    "changing",
    "episodes_to_solve",
    "find",
    "ids_in_jax",
    "observations",
    "optimal_policy_probabilities",
    "optimal_q",
    "optimal_values",
    "register",
    "state_values",
    "table_values",
    "transition_table",
    "values_to_go",
]
