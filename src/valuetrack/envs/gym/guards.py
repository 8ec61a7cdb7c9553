"""Guards around users' environments: whatever is wrong in what they raise or return, in a sentence.

::

    observation, info = guards.reset(env, seed=0)
    observation, reward, terminated, truncated, info = guards.step(env, action)
    reward = guards.checked_reward(env, reward)

:func:`reset`, :func:`step`, :func:`checked_reward` and :func:`checked_flag` run in every step of
every environment; where all is well they look at types and compare two numbers, and copy nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

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


def name_of(env: Any) -> str:
    """Return an environment's id, or the name of its class."""
    inner = env.unwrapped
    return getattr(getattr(inner, "spec", None), "id", None) or type(inner).__name__


def making_failed(who: str, error: Exception) -> EnvironmentFailedError:
    """Return the error for an environment that ``who`` should have made."""
    return EnvironmentFailedError(f"{who} failed: {_what(error)}")


def get_space(env: Any, name: str) -> Any:
    """Return one of an environment's spaces by its attribute's name."""
    try:
        return getattr(env, name)
    except Exception as error:
        raise _failed(env, name, error) from error


def reset(env: Any, **how: Any) -> tuple[Any, Mapping[str, Any]]:
    """Reset an environment or a vector environment; return the observation and the info."""
    try:
        seen = env.reset(**how)
    except Exception as error:
        raise _failed(env, "reset", error) from error
    if not isinstance(seen, SEQUENCES) or len(seen) != 2:
        raise _miscounted(env, "reset", seen)
    observation, info = seen
    if type(info) is not dict and not isinstance(info, Mapping):
        raise _no_mapping(env, "reset", info)
    return observation, info


def step(env: Any, action: Any) -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
    """Step an environment or a vector environment; return what Gymnasium's ``step`` returns."""
    try:
        seen = env.step(action)
    except Exception as error:
        raise _failed(env, "step", error) from error
    if not isinstance(seen, SEQUENCES) or len(seen) != 5:
        raise _miscounted(env, "step", seen)
    observation, reward, terminated, truncated, info = seen
    if type(info) is not dict and not isinstance(info, Mapping):
        raise _no_mapping(env, "step", info)
    return observation, reward, terminated, truncated, info


def checked_reward(env: Any, reward: Any) -> float:
    """Return a reward as a finite number; an array of one element counts as one.

    Examples
    --------
    >>> import gymnasium, numpy as np
    >>> checked_reward(gymnasium.make("CartPole-v1"), np.array([1.5]))
    1.5
    """
    value: float = reward if isinstance(reward, PYTHON_NUMBERS) else _only_number(env, reward)
    if not -LARGEST <= value <= LARGEST:  # a NaN is not either
        raise _not_finite(env, value)
    return value


def checked_rewards(env: Any, rewards: Any, count: int) -> npt.NDArray[np.float32]:
    """Return the finite rewards of a vector environment, one for each of its environments."""
    try:
        given = np.asarray(rewards)
        fits = given.dtype.kind in "fiubO" and given.size == count
        array = given.astype(np.float64).reshape(count) if fits else None
    except (TypeError, ValueError, OverflowError):
        array = None
    if array is None:
        raise ValueError(
            f"The environment {name_of(env)} returned {_shown(rewards)} as rewards; "
            f"they should be {count} numbers, one for each environment."
        )
    wrong = ~(np.abs(array) <= LARGEST)  # also where it is a NaN
    if wrong.any():
        raise _not_finite(env, array[wrong][0])
    return array.astype(np.float32)


def checked_flag(env: Any, value: Any) -> bool:
    """Return whether an episode is over, as a boolean."""
    if value is True or value is False:
        return value
    try:
        return bool(value)
    except Exception as error:  # such as an array of several
        raise ValueError(
            f"The environment {name_of(env)} returned {_shown(value)} as terminated or truncated; "
            "each should be True or False."
        ) from error


def one_line(error: Exception) -> str:
    """Return an error's message in one line that ends with a full stop."""
    return " ".join(str(error).split()).rstrip(".") + "."


def _what(error: Exception) -> str:
    kind = type(error).__name__
    return f"{kind}: {one_line(error)}" if str(error).strip() else f"{kind}."


def _failed(env: Any, where: str, error: Exception) -> EnvironmentFailedError:
    return EnvironmentFailedError(
        f"The environment {name_of(env)} failed in {where}: {_what(error)}"
    )


def _miscounted(env: Any, call: str, seen: Any) -> ValueError:
    came = f"{len(seen)} values" if isinstance(seen, SEQUENCES) else _shown(seen)
    return ValueError(
        f"The environment {name_of(env)} returned {came} from {call}; "
        f"Gymnasium's {call} returns {', '.join(RETURNED[call])}."
    )


def _no_mapping(env: Any, call: str, info: Any) -> ValueError:
    return ValueError(
        f"The environment {name_of(env)} returned {_shown(info)} as info from {call}; "
        "it should be a dict, and may be empty."
    )


def _only_number(env: Any, reward: Any) -> float:
    try:
        array = np.asarray(reward)
        if array.size == 1 and array.dtype.kind in "fiubO":  # O is a Fraction, or a large integer
            return float(array.item())
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(
        f"The environment {name_of(env)} returned {_shown(reward)} as its reward; "
        "it should be a single number."
    )


def _not_finite(env: Any, reward: float) -> ValueError:
    try:
        value = float(reward)
    except OverflowError:  # of an integer
        value = math.inf
    precision = " of single precision" if math.isfinite(value) else ""
    return ValueError(
        f"The environment {name_of(env)} returned a reward that is no finite number{precision}: "
        f"{value}."
    )


def _shown(value: Any) -> str:
    """Return a value in a few words: None, a number or a text itself, else its kind and shape."""
    if value is None or isinstance(value, str | int | float):
        return f"{value!r:.40}"
    shape = f" of shape {value.shape}" if isinstance(value, np.ndarray) else ""
    return f"a {type(value).__name__}{shape}"
