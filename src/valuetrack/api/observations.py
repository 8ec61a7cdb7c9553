"""From what users pass as observations to the arrays that networks take.

A user may pass one observation, a list of them, or a batch as a vector environment returns it. What
is none of these is refused in a sentence that says what an observation of this environment is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from valuetrack.envs import ObservationSpec
from valuetrack.envs.gym.encoders import Encoder, converted
from valuetrack.types import NDArray

Observation = Any
"""What users pass: an observation of their environment's space, or a batch of them."""


def encode_on_host(observation: Observation, inputs: Encoder, env: str) -> tuple[NDArray, bool]:
    """Return observations of a space as a batch of arrays, and whether it is a single one.

    A list of numbers that fits is one observation. ``env`` names the environment in errors.
    """
    _refuse_reset(observation, inputs.source, env)
    try:
        return _encode(observation, inputs)
    except ValueError as error:
        raise _said(error, observation, inputs.source, env) from error


def encode_in_jax(
    observation: Observation, spec: ObservationSpec, env: str
) -> tuple[NDArray, bool]:
    """Return the same for an environment in JAX; the dtype of observations is kept."""
    _refuse_reset(observation, spec.shape, env)
    try:
        array = np.asarray(observation)
        if array.dtype.kind == "O":
            raise TypeError("no numbers")
        array = array.astype(np.float32) if array.dtype.kind not in "biu" else array
    except (TypeError, ValueError) as error:
        kind = type(observation).__name__
        raise ValueError(f"{_one_of(env, spec.shape)}; what came is a {kind}.") from error
    _refuse_empty(array.shape)
    single = array.shape == spec.shape
    if not single and array.shape[1:] != spec.shape:
        raise _misshapen(array.shape, spec.shape, env)
    if not np.isfinite(array).all():
        raise ValueError(f"The observation of {env} holds a NaN or an infinity.")
    array = converted(array, spec.dtype, f"The observation of {env}")
    return (array[None] if single else array), single


def in_words(shape: tuple[int, ...]) -> str:
    """Say what an array of a shape is.

    Examples
    --------
    >>> in_words(()), in_words((4,)), in_words((84, 84, 4))
    ('one number', '4 numbers', 'an array of shape (84, 84, 4)')
    """
    if not shape:
        return "one number"
    if len(shape) == 1:
        return "1 number in an array" if shape == (1,) else f"{shape[0]} numbers"
    return f"an array of shape {shape}"


def _one_of(env: str, shape: tuple[int, ...]) -> str:
    batch = f"(n, {', '.join(map(str, shape))})" if shape else "(n,)"
    return f"An observation of {env} is {in_words(shape)}, and a batch of n has the shape {batch}"


def _misshapen(came: tuple[int, ...], shape: tuple[int, ...], env: str) -> ValueError:
    return ValueError(f"{_one_of(env, shape)}; what came has the shape {came}.")


def _said(error: ValueError, observation: Observation, source: object, env: str) -> ValueError:
    """Return an encoder's error with the environment's name, or that of a wrong shape."""
    came = _shape(observation)
    is_wrong = came and came[0] and came != source and came[1:] != source
    if isinstance(source, tuple) and is_wrong:
        return _misshapen(came, source, env)
    text = str(error)
    for start in ("The observation", "The part"):
        if text.startswith(start):
            return ValueError(f"In {env}, {text[0].lower()}{text[1:]}")
    return error


def _refuse_reset(observation: Observation, source: object, env: str) -> None:
    """Refuse what ``env.reset()`` returns, the observation and an info."""
    is_tuple = isinstance(source, Mapping) and set(source) == {0, 1}
    if is_tuple or not isinstance(observation, tuple) or len(observation) != 2:
        return
    info = observation[1]
    if isinstance(info, dict) and not (
        isinstance(source, Mapping) and info.keys() == source.keys()
    ):
        raise ValueError(
            f"This is a pair of an observation of {env} and its info, as reset returns them; pass "
            "the first alone: observation, info = env.reset()."
        )


def _encode(observation: Observation, inputs: Encoder) -> tuple[NDArray, bool]:
    if isinstance(observation, list):
        return _encode_list(observation, inputs)
    try:
        return inputs.encode(observation)[None], True
    except ValueError:
        _refuse_empty(_shape(observation))
        count = _batch_size(observation, inputs.source)
        if count is None:
            raise
    _refuse_empty((count,))
    return inputs.encode_batch(observation, count), False


def _refuse_empty(shape: tuple[int, ...]) -> None:
    if shape[:1] == (0,):
        raise ValueError("A batch holds at least one observation.")


def _encode_list(observation: list[Observation], inputs: Encoder) -> tuple[NDArray, bool]:
    _refuse_empty((len(observation),))
    try:  # a single one, its numbers as a list
        return inputs.encode(np.asarray(observation))[None], True
    except ValueError:
        # Numbers that are not an observation each are one that is wrong.
        numbers = all(isinstance(one, int | float | np.number) for one in observation)
        if numbers and _batch_size(observation, inputs.source) is None:
            raise
    return np.stack([inputs.encode(one) for one in observation]), False


def _batch_size(observation: Observation, source: object) -> int | None:
    """Return how many observations there are, or None if the shapes are not those of a batch.

    ``source`` is the shape of a single one, as an ``Encoder`` has it.
    """
    if not isinstance(source, Mapping):
        shape = _shape(observation)
        return shape[0] if shape and shape[1:] == source else None
    parts = dict(enumerate(observation)) if isinstance(observation, tuple) else observation
    if isinstance(parts, Mapping) and set(parts) == set(source):
        found = {key: _batch_size(parts[key], source[key]) for key in source}
        sizes = {key: size for key, size in found.items() if size is not None}
        if len(sizes) == len(found):
            return _one_size(sizes)
    # Else single observations one after the other, as in an object array.
    is_array = isinstance(observation, np.ndarray) and observation.ndim == 1
    singles = list(observation) if is_array or isinstance(observation, tuple) else []
    fit = bool(singles) and all(isinstance(one, Mapping | tuple) for one in singles)
    return len(singles) if fit else None


def _one_size(sizes: dict[str | int, int]) -> int:
    if len(set(sizes.values())) > 1:
        lengths = ", ".join(f"{key!r} has {size}" for key, size in sizes.items())
        raise ValueError(f"The parts of a batch should be equally long, but {lengths}.")
    return next(iter(sizes.values()))


def _shape(observation: Observation) -> tuple[int, ...]:
    """Return the shape of an array or of nested lists, which is () where they are uneven."""
    if isinstance(observation, np.ndarray) and observation.dtype == object and observation.ndim:
        observation = list(observation)  # whose items may be arrays
    try:
        return tuple(np.shape(observation))
    except (TypeError, ValueError):
        return ()
