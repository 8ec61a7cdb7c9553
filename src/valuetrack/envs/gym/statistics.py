"""Gymnasium's wrappers that learn statistics: those of training serve an evaluation, too.

An environment made for an evaluation begins with statistics of its own, and a policy that was
trained on observations normalised by others is then shown numbers it has never seen. So the
running means and variances are copied from the training's environments and frozen.
"""

from __future__ import annotations

import copy
from typing import Any

from gymnasium import Wrapper
from gymnasium.vector import VectorWrapper
from gymnasium.wrappers import NormalizeObservation, NormalizeReward
from gymnasium.wrappers import vector as vector_wrappers

from valuetrack.envs.gym.guards import GymEnv
from valuetrack.envs.gym.vectorised import SequentialEnvs, VectorisedEnvs, WrappedVectorEnv

LEARNING = (
    NormalizeObservation,
    NormalizeReward,
    vector_wrappers.NormalizeObservation,
    vector_wrappers.NormalizeReward,
)
"""The wrappers that learn statistics; all have ``update_running_mean``."""
STATISTICS = ("obs_rms", "return_rms")
"""Where they keep them."""


def learning_wrappers(env: GymEnv) -> list[Any]:
    """Return an environment's wrappers that learn statistics, the outermost first.

    Examples
    --------
    >>> import gymnasium
    >>> [type(found).__name__ for found in learning_wrappers(gymnasium.make("CartPole-v1"))]
    []
    """
    found = []
    while isinstance(env, Wrapper | VectorWrapper):
        if isinstance(env, LEARNING):
            found.append(env)
        env = env.env
    return found


def learning_in(envs: VectorisedEnvs) -> list[str]:
    """Return the names of the wrappers that learn statistics."""
    match envs:
        case SequentialEnvs():
            inner: GymEnv = envs.envs[0]
        case WrappedVectorEnv():
            inner = envs.envs
        case _:
            return []
    return [type(wrapper).__name__ for wrapper in learning_wrappers(inner)]


def share_statistics(training: VectorisedEnvs, evaluation: VectorisedEnvs) -> None:
    """Give environments for an evaluation the present statistics of those of the training.

    Each gets those of the first of its seed's environments, and does not change them.

    Raises
    ------
    ValueError
        If they are not wrapped alike.
    """
    if not isinstance(training, SequentialEnvs) or not isinstance(evaluation, SequentialEnvs):
        return
    each = training.count // evaluation.count
    for place, env in enumerate(evaluation.envs):
        theirs, own = learning_wrappers(training.envs[place * each]), learning_wrappers(env)
        if [type(wrapper) for wrapper in theirs] != [type(wrapper) for wrapper in own]:
            raise ValueError(
                "The function that makes environments does not normalise each in the same way, so "
                "that an evaluation cannot use the statistics of the training; let it make them "
                "alike."
            )
        for source, target in zip(theirs, own, strict=True):
            for name in STATISTICS:
                if hasattr(source, name):
                    setattr(target, name, copy.deepcopy(getattr(source, name)))
            target.update_running_mean = False
