"""The spaces that are searched by default: one for each family of algorithms.

Ranges are those in which users of deep Q-learning find what works, an order of magnitude to either
side of the defaults; rates are on a logarithmic scale. What only changes how wide intervals are,
such as ``pseudo_population``, is left out: neither objective could tell what is right.
"""

from __future__ import annotations

from valuetrack.agents.kalman import FilterOptions
from valuetrack.agents.kova import KOVAOptions
from valuetrack.agents.sampling import SamplerOptions
from valuetrack.agents.target_network import TargetNetworkOptions
from valuetrack.experiments.tuning.space import Space, read_space
from valuetrack.registry import agent_type
from valuetrack.types import Json

COMMON: Json = {
    "batch_size": {"choices": [32, 64, 128, 256]},
    "discount": {"choices": [0.95, 0.98, 0.99, 0.995]},
    "steps_per_update": {"choices": [1, 2, 4, 8]},
    "exploration_final": {"low": 0.01, "high": 0.2, "log": True},
}
NETWORKS: Json = {"hidden": {"choices": [[64, 64], [128, 128], [256, 256]]}}
TARGET: Json = {
    **NETWORKS,
    "learning_rate": {"low": 1e-5, "high": 1e-2, "log": True},
    "target_every": {"low": 1, "high": 2_000, "log": True},
}
SAMPLERS: Json = {
    **NETWORKS,
    "learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
    "tau": {"low": 1e-3, "high": 0.1, "log": True},
}
FILTERS: Json = {
    "hidden": {"choices": [[16, 16], [32, 32]]},  # they keep a matrix over all parameters
    "observation_variance": {"low": 0.1, "high": 100.0, "log": True},
    "initial_variance": {"low": 1e-3, "high": 1.0, "log": True},
    "forgetting": {"low": 1e-6, "high": 1e-2, "log": True},
}
OWN: dict[str, Json] = {
    "lktd": {"alpha": {"low": 0.1, "high": 0.95}},
    "sghmc": {"friction": {"low": 0.01, "high": 0.5, "log": True}},
    "bootdqn": {
        "heads": {"choices": [5, 10, 20]},
        "mask_probability": {"choices": [0.5, 0.75, 1.0]},
    },
    "qrdqn": {"quantiles": {"choices": [25, 50, 100]}},
    "iqn": {"levels": {"choices": [8, 16, 32]}},
}
"""What one algorithm has besides."""


def default_space(algorithm: str, steps: int) -> Space:
    """Return what is varied for an algorithm unless users say; exploration goes by the steps."""
    kind = agent_type(algorithm).options_type
    families = (
        (SamplerOptions, SAMPLERS),
        (KOVAOptions, FILTERS),
        (TargetNetworkOptions, TARGET),
        (FilterOptions, FILTERS),
    )
    family: Json = next((found for base, found in families if issubclass(kind, base)), {})
    exploration = {"low": max(1, steps // 50), "high": max(2, steps // 2), "log": True}
    data = {**COMMON, "exploration_steps": exploration, **family, **OWN.get(algorithm, {})}
    return read_space(data, f"the space of {algorithm}")
