"""The spaces of an environment as data, and what stands in for one that is not here.

A model file holds the spaces, so that an agent can be asked where its environment is missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces

from valuetrack.envs.gym.spaces import OneHot
from valuetrack.types import Json

Space = spaces.Space[Any]
MOST_NUMBERS = 10**7
"""How many numbers an observation may have that a file describes."""


def described(space: Space) -> Json | None:  # noqa: PLR0911 - one for each kind
    """Return a space as JSON, or ``None`` if it is of another kind than those of observations.

    Examples
    --------
    >>> described(spaces.Discrete(3, start=1))
    {'kind': 'Discrete', 'n': 3, 'start': 1}
    >>> space_of(described(spaces.Box(-1, 1, (2,), np.float32)))
    Box(-1.0, 1.0, (2,), float32)
    """
    match space:
        case OneHot():
            return {"kind": "OneHot", "n": space.shape[0], "dtype": space.dtype.name}
        case spaces.Box():
            ends = {"low": _ends(space.low), "high": _ends(space.high)}
            return {"kind": "Box", "shape": list(space.shape), "dtype": space.dtype.name, **ends}
        case spaces.Discrete():
            return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            sizes, starts = space.nvec.tolist(), space.start.tolist()
            return {"kind": "MultiDiscrete", "nvec": sizes, "start": starts}
        case spaces.MultiBinary():
            n = space.n if isinstance(space.n, int) else list(space.shape)
            return {"kind": "MultiBinary", "n": n}
        case spaces.Dict() if all(isinstance(key, str) for key in space):
            named = {key: described(part) for key, part in space.items()}
            return {"kind": "Dict", "parts": named} if None not in named.values() else None
        case spaces.Tuple():
            parts = [described(part) for part in space]
            return {"kind": "Tuple", "parts": parts} if None not in parts else None
    return None


def space_of(given: Json) -> Space:
    """Return the space that JSON describes.

    Raises
    ------
    ValueError, KeyError, TypeError
        If it describes none.
    """
    made: Space
    match given["kind"]:
        case "Box":
            shape, dtype = _shape(given["shape"]), np.dtype(str(given["dtype"]))
            low, high = (_array(given[end], shape, dtype) for end in ("low", "high"))
            made = spaces.Box(low, high, shape, dtype=dtype.type)
        case "OneHot":
            made = OneHot(_shape([given["n"]])[0], np.dtype(str(given["dtype"])))
        case "Discrete":
            made = spaces.Discrete(_shape([given["n"]])[0], start=int(given["start"]))
        case "MultiDiscrete":
            made = spaces.MultiDiscrete(given["nvec"], start=given["start"])
        case "MultiBinary":
            n = given["n"]
            made = spaces.MultiBinary(_shape(n) if isinstance(n, list) else _shape([n])[0])
        case "Dict":
            made = spaces.Dict({key: space_of(part) for key, part in given["parts"].items()})
        case "Tuple":
            made = spaces.Tuple([space_of(part) for part in given["parts"]])
        case other:
            raise ValueError(f"There is no space {other!r}.")
    return made


class Absent(gymnasium.Env[Any, Any]):
    """An environment of which only the spaces are known."""

    def __init__(self, observations: Space, actions: Space) -> None:
        self.observation_space, self.action_space = observations, actions

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        """Return any observation, for trainers begin an episode before they learn or play."""
        self.observation_space.seed(0)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> NoReturn:
        """Refuse."""
        raise RuntimeError("only its spaces are known")


@dataclass(frozen=True)
class StandIn:
    """Makes :class:`Absent` environments."""

    observations: Space
    actions: Space
    __name__ = "an environment that is not here"

    def __call__(self) -> Absent:
        """Make one."""
        return Absent(self.observations, self.actions)


def stand_in(given: object) -> Callable[[], Absent] | None:
    """Return what makes stand-ins for an environment of the described spaces, if they are whole."""
    if not isinstance(given, Mapping):
        return None
    try:
        return StandIn(space_of(given["observation"]), space_of(given["action"]))
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError):
        return None


def _ends(array: Any) -> Any:
    """Return bounds as JSON has them: one number if all are equal, infinities as words."""
    flat = [_word(value) for value in np.unique(array).tolist()]
    return flat[0] if len(flat) == 1 else [_word(value) for value in array.ravel().tolist()]


def _word(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _array(given: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    values = [float(value) for value in (given if isinstance(given, list) else [given])]
    array = np.array(values)
    return (np.full(shape, array[0]) if array.size == 1 else array.reshape(shape)).astype(dtype)


def _shape(given: Any) -> tuple[int, ...]:
    shape = tuple(int(side) for side in given)
    if min(shape, default=1) < 1 or math.prod(shape) > MOST_NUMBERS:
        raise ValueError(f"The shape {shape} cannot be.")
    return shape
