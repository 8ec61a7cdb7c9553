"""From an id, a function or an object to Gymnasium environments side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from valuetrack.envs.gym import guards
from valuetrack.envs.gym.vectorised import SequentialEnvs, VectorisedEnvs, WrappedVectorEnv
from valuetrack.types import Json


def make_vectorised(
    env: str | guards.GymEnv | Callable[[], object], count: int, **options: object
) -> VectorisedEnvs:
    """Make ``count`` environments from an id, a function, an environment or a vector environment.

    An environment object serves if ``count`` is 1, a vector environment if it has ``count``. An id
    must be registered; its ``options`` go to ``gymnasium.make``. Where the environment's own code
    fails, an ``EnvironmentFailedError`` tells so.

    Examples
    --------
    >>> envs = make_vectorised("FrozenLake-v1", 2, is_slippery=False)
    >>> envs.count, envs.num_actions, envs.encoder.shape
    (2, 4, (16,))
    """
    if isinstance(env, VectorEnv):
        if env.num_envs != count:
            raise ValueError(
                f"The vector environment has {env.num_envs} environments, and {count} are needed: "
                "as many as `seeds` times `environments`."
            )
        return WrappedVectorEnv(env)
    if isinstance(env, gymnasium.Env):
        if count != 1:
            raise ValueError(
                f"One environment object cannot serve {count} runs side by side; "
                "pass its id or a function that makes one."
            )
        return SequentialEnvs([env])
    return SequentialEnvs([_make(env, options) for _ in range(count)])


def _make(env: str | Callable[[], object], options: Json) -> gymnasium.Env[Any, Any]:
    if isinstance(env, str):
        return make_by_id(env, options)
    if not callable(env):
        raise TypeError(
            "An environment is an id, a Gymnasium environment, a vector environment or a "
            f"function that makes one, not {type(env).__name__}."
        )
    who = "The function that makes an environment"
    if isinstance(env, type):
        who = f"The constructor of the environment {env.__name__}"
    try:
        made = env()
    except Exception as error:
        raise guards.failed(who, error) from error
    if not isinstance(made, gymnasium.Env):
        raise TypeError(
            "The function that makes an environment returned no gymnasium.Env but a "
            f"{type(made).__name__}."
        )
    return made


def make_by_id(env: str, options: Json) -> gymnasium.Env[Any, Any]:
    """Make an environment that is registered; nothing is imported for that.

    Gymnasium would import the module of ``module:Id-v0``, but an id may come from a file, which
    must not choose what code runs.
    """
    module, colon, rest = env.partition(":")
    if colon:
        raise ValueError(
            f"There is no environment {env!r}: an id imports nothing here. Import the module "
            f"{module!r} first, on the command line with --import, and give the id alone: {rest!r}."
        )
    try:
        spec = gymnasium.spec(env)
    except (gymnasium.error.Error, ValueError, ModuleNotFoundError) as error:
        raise ValueError(
            f"There is no environment {env!r}: {guards.one_line(error)} `valuetrack envs` "
            "lists those there are; import the package that registers your own first."
        ) from error
    try:
        return gymnasium.make(env, **options)
    except (gymnasium.error.Error, TypeError) as error:
        raise ValueError(f"{env} cannot be made: {guards.one_line(error)}") from error
    except Exception as error:
        if isinstance(error, ValueError) and str(spec.entry_point).startswith("valuetrack."):
            raise  # its sentence tells which option is wrong
        raise guards.failed(f"The constructor of the environment {env}", error) from error
