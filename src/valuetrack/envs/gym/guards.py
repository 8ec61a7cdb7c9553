"""Guards around users' environments: whatever is wrong in what they raise or return, in a sentence.

::

    observation, info = guards.call(env, "reset", seed=0)
    observation, reward, terminated, truncated, info = guards.call(env, "step", action)
    reward = guards.checked_reward(env, reward)

:func:`call`, :func:`checked_reward` and :func:`checked_flag` run in every step of every
environment; where all is well they look at types and compare two numbers, and copy nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

GymEnv = gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]
LARGEST = float(np.finfo(np.float32).max)
"""The largest reward: rewards are kept in single precision."""
SEQUENCES = (tuple, list)
PYTHON_NUMBERS = (float, int)
RETURNED = {
    "reset": ("observation", "info"),
    "step": ("observation", "reward", "terminated", "truncated", "info"),
}
"""What Gymnasium's functions return."""


class EnvironmentFailedError(RuntimeError):
    """The environment's own code raised an error, which is the cause of this one."""

    exit_code = 1


def failed(who: str | GymEnv, error: Exception, where: str = "") -> EnvironmentFailedError:
    """Return the error that tells whose code failed, and how."""
    name = who if isinstance(who, str) else f"The environment {name_of(who)}"
    kind, place = type(error).__name__, f" in {where}" if where else ""
    told = f"{kind}: {one_line(error)}" if str(error).strip() else f"{kind}."
    return EnvironmentFailedError(f"{name} failed{place}: {told}")


def name_of(env: GymEnv) -> str:
    """Return an environment's id, or the name of its class."""
    inner = env.unwrapped
    return getattr(getattr(inner, "spec", None), "id", None) or type(inner).__name__


def get_space(env: GymEnv, name: str) -> Any:
    """Return one of an environment's spaces by its attribute's name."""
    try:
        return getattr(env, name)
    except Exception as error:
        raise failed(env, error, name) from error


def call(env: GymEnv, name: Literal["reset", "step"], *given: object, **how: object) -> Any:
    """Reset or step an environment or a vector environment; return what Gymnasium's would."""
    try:
        seen = getattr(env, name)(*given, **how)
    except Exception as error:
        raise failed(env, error, name) from error
    returned = RETURNED[name]
    if not isinstance(seen, SEQUENCES) or len(seen) != len(returned):
        came = f"{len(seen)} values" if isinstance(seen, SEQUENCES) else _shown(seen)
        raise ValueError(
            f"The environment {name_of(env)} returned {came} from {name}; "
            f"Gymnasium's {name} returns {', '.join(returned)}."
        )
    info = seen[-1]
    if type(info) is not dict and not isinstance(info, Mapping):  # the first is the faster
        raise _wrong(env, info, f"info from {name}", "it should be a dict, and may be empty")
    return seen


def checked_reward(env: GymEnv, reward: object) -> float:
    """Return a reward as a finite number; an array of one element counts as one."""
    if isinstance(reward, PYTHON_NUMBERS):
        value: float = reward
    elif isinstance(reward, np.floating):
        value = float(reward)
    else:
        numbers = _numbers(reward, 1)
        if numbers is None:
            raise _wrong(env, reward, "its reward", "it should be a single number")
        value = float(numbers[0])
    if not -LARGEST <= value <= LARGEST:  # a NaN is not either
        raise _not_finite(env, value)
    return value


def checked_rewards(env: GymEnv, rewards: object, count: int) -> npt.NDArray[np.float32]:
    """Return the finite rewards of a vector environment, one for each of its environments."""
    numbers = _numbers(rewards, count)
    if numbers is None:
        should = f"they should be {count} numbers, one for each environment"
        raise _wrong(env, rewards, "rewards", should)
    wrong = ~(np.abs(numbers) <= LARGEST)  # also where it is a NaN
    if wrong.any():
        raise _not_finite(env, numbers[wrong][0])
    return numbers.astype(np.float32)


def checked_flag(env: GymEnv, value: object) -> bool:
    """Return whether an episode is over, as a boolean."""
    if value is True or value is False:
        return value
    try:
        return bool(value)
    except Exception as error:  # such as an array of several
        should = "each should be True or False"
        raise _wrong(env, value, "terminated or truncated", should) from error


def one_line(error: Exception) -> str:
    """Return an error's message in one line that ends with a full stop."""
    return " ".join(str(error).split()).rstrip(".") + "."


def _numbers(given: object, count: int) -> npt.NDArray[np.float64] | None:
    """Return so many numbers as an array, or ``None`` if they are something else."""
    try:
        array = np.asarray(given).reshape(count)
        if array.dtype.kind == "O":  # fractions, or large integers; a None would become NaN
            return np.array([float(number) for number in array])
        if array.dtype.kind in "fiub":
            return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    return None


def _wrong(env: GymEnv, value: object, role: str, should: str) -> ValueError:
    return ValueError(
        f"The environment {name_of(env)} returned {_shown(value)} as {role}; {should}."
    )


def _not_finite(env: GymEnv, reward: float) -> ValueError:
    try:
        value = float(reward)
    except OverflowError:  # of an integer
        value = math.inf
    precision = " of single precision" if math.isfinite(value) else ""
    return ValueError(
        f"The environment {name_of(env)} returned a reward that is no finite number{precision}: "
        f"{value}."
    )


def _shown(value: object) -> str:
    """Return a value in a few words: None, a number or a text itself, else its kind and shape."""
    if value is None or isinstance(value, str | int | float):
        return f"{value!r:.40}"
    shape = f" of shape {value.shape}" if isinstance(value, np.ndarray) else ""
    return f"a {type(value).__name__}{shape}"
