"""Environments: the contract, those written in JAX, and their Gymnasium faces.

Importing this package registers its Gymnasium environments::

    import gymnasium
    import valuetrack.envs

    env = gymnasium.make("valuetrack/IndoorEscape-v0", walls=((3, 0), (3, 1)))
"""

import gymnasium

from valuetrack.envs.base import Environment, Step
from valuetrack.envs.indoor_escape import (
    EscapeState,
    IndoorEscape,
    QValues,
    observations,
    optimal_policy_probabilities,
    optimal_q,
)

ESCAPE_ID = "valuetrack/IndoorEscape-v0"

# Registering an id twice warns, and a reload of this module comes by here again.
if ESCAPE_ID not in gymnasium.registry:
    gymnasium.register(ESCAPE_ID, entry_point="valuetrack.envs.escape_gym:IndoorEscapeEnv")

__all__ = [
    "ESCAPE_ID",
    "Environment",
    "EscapeState",
    "IndoorEscape",
    "QValues",
    "Step",
    "observations",
    "optimal_policy_probabilities",
    "optimal_q",
]
