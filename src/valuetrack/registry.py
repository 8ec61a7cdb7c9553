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
from valuetrack.agents.value_tracker import ValueTracker as ValueTracker
from valuetrack.api.agent import Agent as Agent
from valuetrack.api.agent import AnyAgent
from valuetrack.api.loading import load_agent
from valuetrack.io import array_file, errors

AGENTS: dict[str, type[AnyAgent]] = {
    kind.name: kind
    for kind in sorted(Agent.__subclasses__(), key=lambda kind: (not kind.is_sampler, kind.name))
    if kind is not ValueTracker  # which no command can give a policy
}
"""The name in files and on the command line -> the class; the samplers first."""
CLASSES: dict[str, type[AnyAgent]] = {**AGENTS, ValueTracker.name: ValueTracker}
"""What a file may hold: the agents, and the tracker of a given policy's values."""


def agent_type(name: str) -> type[AnyAgent]:
    """Return the class of an algorithm by its name, in capitals or not."""
    kind = AGENTS.get(name.lower())
    if kind is None:
        raise ValueError(f"There is no algorithm {name!r}; there are {', '.join(AGENTS)}.")
    return kind


def load(path: str | os.PathLike[str], env: object = None, policy: object = None) -> AnyAgent:
    """Load an agent from a file of :meth:`~valuetrack.api.agent.Agent.save`.

    ``env`` replaces the saved environment. Without it, an agent that was made without an id can
    be asked (``predict``, ``posterior``, ``export``), but neither plays nor learns.
    ``policy`` is for a :class:`~valuetrack.agents.value_tracker.ValueTracker`, whose file does not
    hold its policy: without it, it knows its values but cannot learn.

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
    if not isinstance(name, str) or name not in CLASSES:
        told = errors.shortened(repr(name))
        raise errors.file_error(path, f"holds the unknown algorithm {told}")
    kind = CLASSES[name]
    if policy is not None and kind is not ValueTracker:
        raise ValueError(f"The file holds a {kind.__name__}, which takes no policy.")
    given = (policy,) if kind is ValueTracker else ()
    return load_agent(kind, path, arrays, description, env, given)
