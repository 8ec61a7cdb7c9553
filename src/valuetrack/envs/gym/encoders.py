"""How observations of each kind of space become arrays; :mod:`valuetrack.envs.gym.spaces` chooses.

An encoder checks what it is given: a value that does not fit its space is an error in one sentence
here, and not a wrong number later. It always returns a new array, for environments are free to
reuse theirs.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from valuetrack.envs.base import FLOAT32, UINT8, ObservationSpec, Shape
from valuetrack.types import DType, NDArray


@dataclass(frozen=True)
class Encoder(abc.ABC):
    """What turns the observations of one space into arrays: of ``shape`` and ``dtype``.

    Examples
    --------
    >>> from gymnasium.spaces import Discrete
    >>> from valuetrack.envs.gym.spaces import encoder
    >>> inputs = encoder(Discrete(3))
    >>> inputs.shape, inputs.encode(1).tolist()
    ((3,), [0.0, 1.0, 0.0])
    """

    name: str = field(repr=False)
    """The part of the observation that this is, as an error's message begins."""
    spec: ObservationSpec
    """Shape and dtype of an encoded observation, and whether it is an image."""
    source: Any = field(hash=False)
    """The shape of an observation as it comes; of a Dict or Tuple, its parts' by their keys."""

    @property
    def shape(self) -> Shape:
        """Shape of an encoded observation: (height, width, channels) for an image, else flat."""
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        """Dtype of an encoded observation."""
        return self.spec.dtype

    @property
    def is_image(self) -> bool:
        """Whether it is an image, for :func:`valuetrack.networks.cnn`."""
        return self.spec.is_image

    def encode(self, observation: object) -> NDArray:
        """Encode one observation."""
        return self._encode(observation, ())

    def encode_batch(self, observations: object, count: int) -> NDArray:
        """Encode what a vector environment of ``count`` environments returns.

        That is an array with a leading axis, or a dict or tuple of such arrays as the space is; a
        tuple, list or object array of ``count`` single observations serves as well.
        """
        return self._encode(observations, (count,))

    @abc.abstractmethod
    def _encode(self, observation: object, lead: Shape) -> NDArray:
        """Encode one observation (``lead`` is empty) or a batch (``lead`` is its length)."""

    def row(self, observations: Any, index: int) -> object:
        """Return one observation, not encoded, of what a vector environment returns."""
        return observations[index]

    def _is_batch(self, observations: object) -> bool:
        """Return whether this may be a batch as Gymnasium lays it out: an array."""
        return hasattr(observations, "shape")


@dataclass(frozen=True)
class ArrayEncoder(Encoder):
    """Numbers: an image, its dtype kept and its channels moved last, or flattened to float32.

    They must fit the dtype ``given``. In a vector, pixels (uint8) are divided by 255.
    """

    given: DType
    channels_first: bool = False

    def encode(self, observation: object) -> NDArray:
        """Encode one observation; most are arrays of single precision, which are just copied."""
        is_array = type(observation) is np.ndarray and observation.dtype == FLOAT32
        if is_array and self.given == FLOAT32 and not self.is_image:
            array: NDArray = observation  # type: ignore[assignment]
            if array.shape == self.source and np.isfinite(copy := array.flatten()).all():
                return copy
        return self._encode(observation, ())

    def _encode(self, observation: object, lead: Shape) -> NDArray:
        array = _numbers(observation, lead + self.source, self.name)
        if self.channels_first:
            array = np.moveaxis(array, -3, -1)
        array = converted(array, self.given, self.name)
        if self.given != self.dtype:
            array = array / FLOAT32.type(255 if self.given == UINT8 else 1)
        return array.reshape(lead + self.shape)


@dataclass(frozen=True)
class OneHotEncoder(Encoder):
    """Each component has ``sizes`` values from ``starts`` on, and a slot for each."""

    sizes: Shape
    starts: Shape

    def encode(self, observation: object) -> NDArray:
        """Encode one observation; nearly all are a single number."""
        if isinstance(observation, int | np.integer) and self.source == ():
            place = int(observation) - self.starts[0]
            if 0 <= place < self.sizes[0]:
                hot = np.zeros(self.shape, FLOAT32)
                hot[place] = 1
                return hot
        return self._encode(observation, ())

    def _encode(self, observation: object, lead: Shape) -> NDArray:
        array = _numbers(observation, lead + self.source, self.name, kinds="biu")
        values = array.reshape(math.prod(lead), len(self.sizes))
        hot = np.zeros((len(values), *self.shape), FLOAT32)
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
class PartsEncoder(Encoder):
    """The vectors of the parts of a Dict, or of a Tuple (whose keys are 0, 1, ...), in a row."""

    parts: tuple[tuple[Any, Encoder], ...]
    is_dict: bool

    def _encode(self, observation: Any, lead: Shape) -> NDArray:
        # A vector environment that cannot batch returns single observations one after the other.
        if lead and not self._is_batch(observation):
            self._check_singles(observation, *lead)
            return np.stack([self.encode(single) for single in observation])
        self._check_parts(observation)
        vectors = [part._encode(observation[key], lead) for key, part in self.parts]
        return np.concatenate(vectors, axis=-1)

    def row(self, observations: Any, index: int) -> object:
        """Return one observation, not encoded, of what a vector environment returns."""
        if not self._is_batch(observations):
            return observations[index]
        rows = {key: part.row(observations[key], index) for key, part in self.parts}
        return rows if self.is_dict else tuple(rows.values())

    def _is_batch(self, observations: object) -> bool:
        if self.is_dict:
            return isinstance(observations, Mapping)
        # The first part tells: in a tuple of single observations it is one tuple deeper.
        (key, first), *_ = self.parts
        return (
            isinstance(observations, tuple | list)
            and len(observations) == len(self.parts)
            and first._is_batch(observations[key])
        )

    @property
    def _kind(self) -> str:
        return "dict" if self.is_dict else "tuple"

    def _check_singles(self, observations: Any, count: int) -> None:
        is_sequence = isinstance(observations, tuple | list | np.ndarray)
        if not is_sequence or len(observations) != count:
            size = f" of length {len(observations)}" if is_sequence else ""
            raise ValueError(
                f"{self.name} should be a batch of {count}, a {self._kind} of arrays or a tuple "
                f"of {count} observations, but a {type(observations).__name__}{size} came."
            )

    def _check_parts(self, observation: Any) -> None:
        if not isinstance(observation, Mapping if self.is_dict else tuple | list):
            raise ValueError(
                f"{self.name} should be a {self._kind}, but a {type(observation).__name__} came."
            )
        missing = [key for key, _ in self.parts if self.is_dict and key not in observation]
        if missing:
            there = ", ".join(map(repr, observation)) or "none"
            raise ValueError(f"{self.name} lacks the key {missing[0]!r}; its keys: {there}.")
        if len(observation) != len(self.parts):
            raise ValueError(
                f"{self.name} should have {len(self.parts)} parts, but {len(observation)} came."
            )


def _numbers(observation: object, shape: Shape, name: str, kinds: str = "fiub") -> NDArray:
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


def converted(array: NDArray, dtype: DType, name: str) -> NDArray:
    """Return a copy of another dtype whose numbers are the same, up to a float's precision.

    ``name`` begins the sentence of the error if they cannot be.

    Examples
    --------
    >>> converted(np.array([0, 255]), np.dtype(np.uint8), "The image")
    array([  0, 255], dtype=uint8)
    """
    if array.dtype == dtype:
        copy = array.astype(dtype, order="C")
        if dtype.kind != "f":
            return copy
    elif array.dtype.kind == "f" and dtype.kind in "iu":
        # An image of floats from 0 to 1 would become black without a word.
        raise ValueError(f"{name} should be of dtype {dtype}, but {array.dtype} came.")
    else:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, an error below
            copy = array.astype(dtype, order="C")
    if dtype.kind == "f":
        fits = np.isfinite(copy)
    elif dtype.kind == "b":
        fits = (array == 0) | (array == 1)
    else:
        fits = (array >= np.iinfo(dtype).min) & (array <= np.iinfo(dtype).max)
    if not fits.all():
        raise ValueError(f"{name} should {_demand(dtype)}, but {array[~fits][0]} came.")
    return copy


def _demand(dtype: DType) -> str:
    """Say what numbers of a dtype are; asked for in errors only, as it takes long."""
    if dtype.kind == "f":
        return f"hold finite numbers of dtype {dtype}"
    if dtype.kind == "b":
        return "hold zeros and ones"
    return f"be from {np.iinfo(dtype).min} to {np.iinfo(dtype).max}"
