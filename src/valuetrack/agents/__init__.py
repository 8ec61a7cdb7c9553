"""Agents: a network, a measurement model, a sampler and a behaviour, behind one interface."""

from valuetrack.agents.base import Agent, AgentState, build_agent
from valuetrack.agents.definitions import bootdqn, dqn, kova, lktd, qrdqn, sghmc, sgld

__all__ = [
    "Agent",
    "AgentState",
    "bootdqn",
    "build_agent",
    "dqn",
    "kova",
    "lktd",
    "qrdqn",
    "sghmc",
    "sgld",
]
