"""The agents that exist. Everything that lists them reads this file.

To add one, write its file in ``agents/`` and import it here: the command line, experiments,
reports, ``valuetrack.load`` and the tables of options then know it.
"""
# ruff: noqa: PLC0414 - "X as X" says that X is to be imported from here

from __future__ import annotations

import os

from valuetrack.agents.akq import AKQ as AKQ
from valuetrack.agents.bootdqn import BootDQN as BootDQN
from valuetrack.agents.dqn import DQN as DQN
from valuetrack.agents.iqn import IQN as IQN
from valuetrack.agents.kova import KOVA as KOVA
from valuetrack.agents.ktd import KTD as KTD
from valuetrack.agents.lktd import LKTD as LKTD
from valuetrack.agents.qrdqn import QRDQN as QRDQN
from valuetrack.agents.sghmc import SGHMC as SGHMC
from valuetrack.agents.sgld import SGLD as SGLD
from valuetrack.api.agent import Agent as Agent
from valuetrack.api.agent import AnyAgent
from valuetrack.api.loading import load_agent
from valuetrack.io import array_file, errors

AGENTS: dict[str, type[AnyAgent]] = {
    kind.name: kind
    for kind in sorted(Agent.__subclasses__(), key=lambda kind: (not kind.is_sampler, kind.name))
}
"""The name in files and on the command line -> the class; the samplers first."""


def agent_type(name: str) -> type[AnyAgent]:
    """Return the class of an algorithm by its name, in capitals or not."""
    kind = AGENTS.get(name.lower())
    if kind is None:
        raise ValueError(f"There is no algorithm {name!r}; there are {', '.join(AGENTS)}.")
    return kind


def load(path: str | os.PathLike[str], env: object = None) -> AnyAgent:
    """Load an agent from a file of :meth:`~valuetrack.api.agent.Agent.save`.

    ``env`` is needed if the agent was made without an id; given, it replaces the saved one.

    Raises
    ------
    ModelFileError
        If the file is not whole, or no model of this library.

    Examples
    --------
    >>> import valuetrack as vt
    >>> vt.DQN("CartPole-v1", hidden=(8,)).learn(100).save("agent.vt")
    >>> vt.load("agent.vt").num_timesteps
    100
    """
    arrays, description = array_file.load(path)
    name = description.get("algorithm")
    if not isinstance(name, str) or name not in AGENTS:
        told = errors.shortened(repr(name))
        raise errors.file_error(path, f"holds the unknown algorithm {told}")
    return load_agent(AGENTS[name], path, arrays, description, env)
