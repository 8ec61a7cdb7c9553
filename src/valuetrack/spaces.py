"""From Gymnasium's spaces to the arrays that networks take.

::

    inputs = encoder(env.observation_space)
    observation, info = env.reset()
    array = inputs.encode(observation)  # of inputs.shape and inputs.dtype

An observation becomes one array of a fixed shape and dtype, always a new one: environments are
free to reuse theirs. What does not fit its space is an error here, in one sentence, and not a
wrong number later.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

MAX_CHANNELS = 4
"""How many channels a floating-point image has at most: red, green, blue and depth."""

Shape = tuple[int, ...]
NumberArray = npt.NDArray[Any]
Space = gymnasium.Space[Any]

VECTOR = np.dtype(np.float32)
PIXEL = np.dtype(np.uint8)


@dataclass(frozen=True)
class Encoder(abc.ABC):
    """What turns the observations of one space into arrays.

    Attributes
    ----------
    shape, dtype
        Of one encoded observation: (height, width, channels) for an image, else (length,).
    is_image
        Whether it is an image, for :func:`valuetrack.networks.cnn`.
    """

    name: str = field(repr=False)
    """The part of the observation that this is, as an error's message begins."""
    shape: Shape
    dtype: np.dtype[Any]
    is_image: bool
    source: Any = field(hash=False)
    """The shape of an observation as it comes; of a Dict or Tuple, its parts' by their keys."""

    def encode(self, observation: Any) -> NumberArray:
        """Encode one observation."""
        return self._encode(observation, ())

    def encode_batch(self, observations: Any, count: int) -> NumberArray:
        """Encode what a vector environment of ``count`` environments returns.

        That is an array with a leading axis, or a dict or tuple of such arrays as the space is; a
        tuple, list or object array of ``count`` single observations serves as well.
        """
        return self._encode(observations, (count,))

    @abc.abstractmethod
    def _encode(self, observation: Any, lead: Shape) -> NumberArray:
        """Encode one observation (``lead`` is empty) or a batch (``lead`` is its length)."""

    def _is_batch(self, observations: Any) -> bool:
        """Return whether this may be a batch as Gymnasium lays it out: an array."""
        return hasattr(observations, "shape")


def encoder(space: Space) -> Encoder:
    """Return what turns observations of a space into arrays.

    ============================  ===================================================
    space                         array
    ============================  ===================================================
    Box, an image                 (height, width, channels), its dtype kept
    Box, any other                flat, float32
    Discrete                      one-hot, float32
    MultiDiscrete                 one-hot for each component, float32
    MultiBinary                   flat, float32
    Dict, Tuple, also nested      the parts' vectors one after the other, float32
    ============================  ===================================================

    A Box is an image if it has three axes and is of dtype uint8, or of a floating dtype with at
    most four channels and a height and width above four. The channels are the last axis, or the
    first one where that is shorter; they are moved last. Inside a Dict or Tuple images become
    vectors too, those of dtype uint8 divided by 255. No other number is scaled.

    Raises
    ------
    ValueError
        For any other space; in one sentence.
    """
    if isinstance(space, spaces.Box) and _is_image(space):
        height, width, channels = shape = space.shape
        if channels_first := shape[0] < shape[2]:
            channels, height, width = shape
        return _Image(
            "The observation",
            (height, width, channels),
            np.dtype(space.dtype),
            is_image=True,
            source=shape,
            channels_first=channels_first,
        )
    return _vector(space, ())


def action_count(space: Space) -> int:
    """Return how many actions there are."""
    return int(_discrete(space).n)


def action_offset(space: Space) -> int:
    """Return the environment's number for our action 0: the space's ``start``."""
    return int(_discrete(space).start)


def action_mask(
    info: Mapping[str, Any], count: int, *, terminal: bool = False
) -> npt.NDArray[np.bool_] | None:
    """Return which actions are legal, if the environment says so in ``info["action_mask"]``.

    In a ``terminal`` state there need not be any.
    """
    given = info.get("action_mask")
    if given is None:
        return None
    asked = f'info["action_mask"] should be {count} booleans, True for a legal action'
    try:
        mask = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{asked}, but a {type(given).__name__} came that is none.") from error
    if mask.dtype.kind not in "biu":
        raise ValueError(f"{asked}, but its dtype is {mask.dtype}.")
    if mask.shape != (count,):
        raise ValueError(f"{asked}, but its shape is {mask.shape}.")
    if mask.dtype.kind != "b" and not ((mask == 0) | (mask == 1)).all():
        raise ValueError(f"{asked}, but it holds numbers other than 0 and 1.")
    if not terminal and not mask.any():
        raise ValueError(
            'info["action_mask"] allows no action in a state that is not terminal; '
            "end the episode there, or allow an action."
        )
    return mask.astype(np.bool_)


@dataclass(frozen=True)
class _Image(Encoder):
    channels_first: bool

    def _encode(self, observation: Any, lead: Shape) -> NumberArray:
        array = _numbers(observation, (*lead, *self.source), self.name)
        if self.channels_first:
            array = np.moveaxis(array, -3, -1)
        if self.dtype == PIXEL:
            return _pixels(array, self.name)
        return _finite(array, self.dtype, self.name)


@dataclass(frozen=True)
class _Vector(Encoder):
    is_pixels: bool

    def _encode(self, observation: Any, lead: Shape) -> NumberArray:
        array = _numbers(observation, lead + self.source, self.name)
        if self.is_pixels:
            array = _pixels(array, self.name) / VECTOR.type(255)
        else:
            array = _finite(array, VECTOR, self.name)
        return array.reshape(lead + self.shape)


@dataclass(frozen=True)
class _Binary(Encoder):
    def _encode(self, observation: Any, lead: Shape) -> NumberArray:
        array = _numbers(observation, lead + self.source, self.name)
        wrong = (array != 0) & (array != 1)
        if wrong.any():
            raise ValueError(f"{self.name} should hold zeros and ones, but {array[wrong][0]} came.")
        return array.astype(VECTOR).reshape(lead + self.shape)


@dataclass(frozen=True)
class _OneHot(Encoder):
    """Each component has ``sizes`` values from ``starts`` on, and a slot for each."""

    sizes: Shape
    starts: Shape

    def _encode(self, observation: Any, lead: Shape) -> NumberArray:
        array = _numbers(observation, lead + self.source, self.name, kinds="biu")
        values = array.reshape(math.prod(lead), len(self.sizes))
        hot = np.zeros((len(values), *self.shape), VECTOR)
        rows = np.arange(len(values))
        slot = 0
        for component, (size, start) in enumerate(zip(self.sizes, self.starts, strict=True)):
            column = values[:, component]
            # Compared before the subtraction, which could go round in a narrow or unsigned dtype.
            wrong = (column < start) | (column >= start + size)
            if wrong.any():
                where = f" in component {component}" if self.source else ""
                raise ValueError(
                    f"{self.name} should be from {start} to {start + size - 1}{where}, "
                    f"but {column[wrong][0]} came."
                )
            hot[rows, column.astype(np.int64) - start + slot] = 1
            slot += size
        return hot.reshape(lead + self.shape)


@dataclass(frozen=True)
class _Parts(Encoder):
    """The parts of a Dict, or of a Tuple, whose keys are 0, 1, ..."""

    parts: tuple[tuple[Any, Encoder], ...]
    is_dict: bool

    def _encode(self, observation: Any, lead: Shape) -> NumberArray:
        # A vector environment that cannot batch returns single observations one after the other.
        if lead and not self._is_batch(observation):
            singles = self._singles(observation, *lead)
            return np.stack([self.encode(single) for single in singles])
        self._check(observation)
        vectors = [part._encode(observation[key], lead) for key, part in self.parts]
        return np.concatenate(vectors, axis=-1)

    def _is_batch(self, observations: Any) -> bool:
        if self.is_dict:
            return isinstance(observations, Mapping)
        # The first part tells: in a tuple of single observations it is one tuple deeper.
        (key, first), *_ = self.parts
        return (
            isinstance(observations, tuple | list)
            and len(observations) == len(self.parts)
            and first._is_batch(observations[key])
        )

    def _singles(self, observations: Any, count: int) -> list[Any]:
        is_sequence = isinstance(observations, tuple | list | np.ndarray)
        if not is_sequence or len(observations) != count:
            size = f" of length {len(observations)}" if is_sequence else ""
            raise ValueError(
                f"{self.name} should be a batch of {count}, a {self._kind} of arrays or a tuple "
                f"of {count} observations, but a {type(observations).__name__}{size} came."
            )
        return list(observations)

    @property
    def _kind(self) -> str:
        return "dict" if self.is_dict else "tuple"

    def _check(self, observation: Any) -> None:
        if not isinstance(observation, Mapping if self.is_dict else tuple | list):
            raise ValueError(
                f"{self.name} should be a {self._kind}, but a {type(observation).__name__} came."
            )
        if self.is_dict:
            missing = [key for key, _ in self.parts if key not in observation]
            if missing:
                there = ", ".join(map(repr, observation)) or "none"
                raise ValueError(f"{self.name} lacks the key {missing[0]!r}; its keys: {there}.")
        if len(observation) != len(self.parts):
            raise ValueError(
                f"{self.name} should have {len(self.parts)} parts, but {len(observation)} came."
            )


def _is_image(space: spaces.Box[Any]) -> bool:
    if len(space.shape) != 3:
        return False
    if space.dtype == PIXEL:
        return True
    channels, *sides = sorted(space.shape)
    at_an_end = channels in (space.shape[0], space.shape[2])
    small_and_large = channels <= MAX_CHANNELS < min(sides)
    return np.issubdtype(space.dtype, np.floating) and at_an_end and small_and_large


def _vector(space: Space, path: tuple[Any, ...]) -> Encoder:
    """Build the encoder of a space, or of the part of one at ``path``, to a flat vector."""
    where = "".join(f"[{key!r}]" for key in path)
    name = f"The part {where} of the observation" if path else "The observation"

    def common(length: int) -> tuple[str, Shape, np.dtype[Any], bool]:
        return name, (length,), VECTOR, False

    match space:
        case spaces.Box():
            is_pixels = space.dtype == PIXEL and _is_image(space)
            return _Vector(*common(math.prod(space.shape)), space.shape, is_pixels)
        case spaces.Discrete():
            size, start = int(space.n), int(space.start)
            return _OneHot(*common(size), (), (size,), (start,))
        case spaces.MultiDiscrete():
            sizes = tuple(space.nvec.ravel().tolist())
            starts = tuple(space.start.ravel().tolist())
            return _OneHot(*common(sum(sizes)), space.shape, sizes, starts)
        case spaces.MultiBinary():
            return _Binary(*common(math.prod(space.shape)), space.shape)
        case spaces.Dict() | spaces.Tuple() if space.spaces:
            inside = space.spaces
            items: Iterable[tuple[Any, Space]]
            items = inside.items() if isinstance(inside, Mapping) else enumerate(inside)
            parts = tuple((key, _vector(part, (*path, key))) for key, part in items)
            length = sum(part.shape[0] for _, part in parts)
            sources = {key: part.source for key, part in parts}
            return _Parts(*common(length), sources, parts, isinstance(inside, Mapping))
    kind = type(space).__name__
    raise ValueError(
        f"{name} is in a space of type {kind}, but valuetrack takes Box, Discrete, MultiDiscrete, "
        "MultiBinary, and non-empty Dict and Tuple of these; turn it into one of them with "
        "gymnasium.wrappers.TransformObservation."
    )


def _numbers(observation: Any, shape: Shape, name: str, kinds: str = "fiub") -> NumberArray:
    """Return an observation as an array of numbers, which may be the observation itself."""
    what = "numbers" if "f" in kinds else "integers"
    try:
        array = np.asarray(observation)
        if array.dtype.kind == "O" and array.ndim:  # single observations in an object array
            array = np.asarray(list(array))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} should be {what} of shape {shape}, "
            f"but a {type(observation).__name__} came that is no such array."
        ) from error
    if array.dtype.kind not in kinds:
        came = f"dtype {array.dtype}" if array.dtype != object else type(observation).__name__
        raise ValueError(f"{name} should be {what} of shape {shape}, but {came} came.")
    if array.shape != shape:
        raise ValueError(f"{name} should have the shape {shape}, but {array.shape} came.")
    return array


def _finite(array: NumberArray, dtype: np.dtype[Any], name: str) -> NumberArray:
    """Return a copy of a floating dtype, without NaN and infinity."""
    if array.dtype == dtype:
        copy = array.astype(dtype, order="C")
    else:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, an error below
            copy = array.astype(dtype, order="C")
    if not np.isfinite(copy).all():
        wrong = array[~np.isfinite(copy)][0]
        raise ValueError(f"{name} should hold finite numbers of dtype {dtype}, but {wrong} came.")
    return copy


def _pixels(array: NumberArray, name: str) -> NumberArray:
    """Return a copy of dtype uint8, where that changes no number."""
    if array.dtype != PIXEL:
        # An image of floats from 0 to 1 would become black without a word.
        if array.dtype.kind == "f":
            raise ValueError(f"{name} should be of dtype uint8, but {array.dtype} came.")
        wrong = (array < 0) | (array > 255)
        if wrong.any():
            raise ValueError(f"{name} should be from 0 to 255, but {array[wrong][0]} came.")
    return array.astype(PIXEL, order="C")


def _discrete(space: Space) -> spaces.Discrete[Any]:
    if isinstance(space, spaces.Discrete):
        return space
    kind = type(space).__name__
    match space:
        case spaces.Box():
            is_continuous = np.issubdtype(space.dtype, np.floating)
            what = "continuous" if is_continuous else f"an array of {space.dtype}"
            said, cure = f"{kind}{space.shape}, {what}", "Discretise it"
        case spaces.MultiDiscrete() | spaces.MultiBinary():
            said = f"{kind}{space.shape}, several choices at once"
            cure = "Number their combinations"
        case _:
            said, cure = kind, "Number the actions"
    raise ValueError(
        f"The action space is {said}; valuetrack chooses among finitely many actions (Discrete). "
        f"{cure} with a gymnasium.ActionWrapper."
    )
