"""Agents: a network, a measurement model, a sampler and a behaviour, behind one interface."""

from valuetrack.agents.definitions import bootdqn, dqn, kova, lktd, qrdqn, sghmc, sgld
from valuetrack.learner import Learner, LearnerState, build_learner

__all__ = [
    "Learner",
    "LearnerState",
    "bootdqn",
    "build_learner",
    "dqn",
    "kova",
    "lktd",
    "qrdqn",
    "sghmc",
    "sgld",
]
