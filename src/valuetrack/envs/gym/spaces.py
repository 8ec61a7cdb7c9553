"""From Gymnasium's spaces to the arrays that networks take, and to actions 0, 1, ...."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from valuetrack.envs.base import (
    FLOAT32,
    UINT8,
    JaxEnvironment,
    ObservationSpec,
    bounds_in_jax,
)
from valuetrack.envs.gym.encoders import ArrayEncoder, Encoder, OneHotEncoder, PartsEncoder
from valuetrack.types import Bools, Floats, NDArray

Space = gymnasium.Space[Any]


class OneHot(spaces.Box):
    """Vectors of n numbers, one of which is 1 and the others 0; also zeros, where an episode ends.

    What no ``Box`` says is told by the class: such vectors are brought to the mean square 1, as
    those are that a ``Discrete`` becomes.

    Examples
    --------
    >>> space = OneHot(4, np.float32)
    >>> space.shape, int(space.sample().sum())
    ((4,), 1)
    """

    def __init__(self, n: int, dtype: Any) -> None:
        kind = np.dtype(dtype).type
        super().__init__(np.zeros(n, kind), np.ones(n, kind), dtype=kind)

    def sample(self, mask: None = None, probability: None = None) -> NDArray:
        """Draw one of the n vectors."""
        del mask, probability
        return np.asarray(
            np.arange(*self.shape) == self.np_random.integers(self.shape[0]), self.dtype
        )

    def __repr__(self) -> str:
        return f"OneHot({self.shape[0]}, {self.dtype})"


def space_in_jax(env: JaxEnvironment) -> Space:
    """Return Gymnasium's space of the observations of an environment written in JAX.

    Examples
    --------
    >>> from valuetrack.envs import MountainCar, RiverSwim
    >>> space_in_jax(RiverSwim()), space_in_jax(MountainCar()).shape
    (OneHot(6, bool), (2,))
    """
    spec = ObservationSpec.of_env(env)
    if getattr(env, "one_hot", False):
        return OneHot(spec.size, spec.dtype)
    low, high = (end.reshape(spec.shape).astype(spec.dtype) for end in bounds_in_jax(env))
    return spaces.Box(low, high, dtype=spec.dtype.type)


def encoder(space: Space, *, flat: bool = False) -> Encoder:
    """Return what turns observations of a space into arrays.

    ============================  ===================================================
    space                         array
    ============================  ===================================================
    Box, an image                 (height, width, channels), its dtype kept
    Box, any other                flat, float32
    Discrete                      one-hot, float32
    MultiDiscrete                 one-hot for each component, float32
    MultiBinary, an image         (height, width, channels), bool
    MultiBinary, any other        flat, float32
    Dict, Tuple, also nested      the parts' vectors one after the other, float32
    ============================  ===================================================

    :class:`valuetrack.envs.base.ObservationSpec` says what an image is: an array of three axes, of
    any dtype, that is 5 x 5 or larger or holds uint8. The channels are the last axis, or the first
    one where that is shorter; they are moved last. Inside a Dict or Tuple images become vectors
    too, those of dtype uint8 divided by 255; with ``flat`` they do so everywhere. No other number
    is scaled here. Any other space is a ``ValueError`` in one sentence.

    Examples
    --------
    >>> import numpy as np
    >>> from gymnasium.spaces import Box
    >>> encoder(Box(0, 1, (4, 10, 10), np.bool_)).spec
    ObservationSpec(shape=(10, 10, 4), dtype=dtype('bool'), is_image=True)
    >>> encoder(Box(-1, 1, (2, 3))).spec
    ObservationSpec(shape=(6,), dtype=dtype('float32'), is_image=False)
    """
    image = None if flat else _image_encoder(space)
    return image or _vector_encoder(space, ())


def bounds(space: Space) -> Floats:
    """Return the lowest and the highest observation as :func:`encoder` encodes it, (2, *shape).

    Examples
    --------
    >>> from gymnasium.spaces import Box, Dict, Discrete
    >>> bounds(Dict({"at": Discrete(2), "speed": Box(-3, 3, (1,))}))
    array([[ 0.,  0., -3.],
           [ 1.,  1.,  3.]])
    """
    image = _image_encoder(space)
    if image is not None:
        pixels = image.spec.dtype.kind == "b"
        low, high = (0, 1) if pixels else (space.low.min(), space.high.max())  # type: ignore[attr-defined]
        return np.stack([np.full(image.shape, float(bound)) for bound in (low, high)])
    return _vector_bounds(space)


def factors(space: Space) -> Floats:
    """Return what brings one-hot vectors to the mean square 1, and 1 elsewhere, as encoded.

    Examples
    --------
    >>> from gymnasium.spaces import Box, Dict, Discrete
    >>> factors(Dict({"at": Discrete(4), "speed": Box(-3, 3, (1,))}))
    array([2., 2., 2., 2., 1.])
    """
    image = _image_encoder(space)
    return np.ones(image.shape) if image is not None else _vector_factors(space)


def _vector_factors(space: Space) -> Floats:
    match space:
        case OneHot():
            sizes = np.array(space.shape)
        case spaces.Discrete():
            sizes = np.array([space.n])
        case spaces.MultiDiscrete():
            sizes = space.nvec.ravel()
        case spaces.Dict() | spaces.Tuple():
            inside = space.spaces
            parts = inside.values() if isinstance(inside, Mapping) else inside
            return np.concatenate([_vector_factors(part) for part in parts])
        case _:
            return np.ones(_vector_encoder(space, ()).shape)
    return np.repeat(np.sqrt(sizes), sizes)


def _vector_bounds(space: Space) -> Floats:
    match space:
        case spaces.Box() if space.dtype == UINT8 and len(space.shape) == 3:
            return np.stack([space.low.ravel(), space.high.ravel()]) / 255
        case spaces.Box():
            return np.stack([space.low.ravel(), space.high.ravel()]).astype(np.float64)
        case spaces.Dict() | spaces.Tuple():
            inside = space.spaces
            parts = inside.values() if isinstance(inside, Mapping) else inside
            return np.concatenate([_vector_bounds(part) for part in parts], axis=1)
    return np.repeat([[0.0], [1.0]], _vector_encoder(space, ()).shape[0], axis=1)


def action_count(space: Space) -> int:
    """Return how many actions there are."""
    return int(_discrete(space).n)


def action_offset(space: Space) -> int:
    """Return the environment's number for our action 0: the space's ``start``.

    Examples
    --------
    >>> from gymnasium.spaces import Discrete
    >>> action_count(Discrete(3, start=5)), action_offset(Discrete(3, start=5))
    (3, 5)
    """
    return int(_discrete(space).start)


def action_mask(info: Mapping[str, object], count: int, *, terminal: bool = False) -> Bools | None:
    """Return which actions are legal, if the environment says so in ``info["action_mask"]``.

    In a ``terminal`` state there need not be any.

    Examples
    --------
    >>> action_mask({"action_mask": [1, 0]}, 2)
    array([ True, False])
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


def _image_encoder(space: Space) -> Encoder | None:
    """Return the encoder of a space of images; ``None`` for any other space."""
    if not isinstance(space, spaces.Box | spaces.MultiBinary) or len(space.shape) != 3:
        return None
    shape = height, width, channels = space.shape
    if channels_first := shape[0] < shape[2]:
        channels, height, width = shape
    # Gymnasium gives the zeros and ones of a MultiBinary as integers, which would be scaled.
    dtype = np.bool_ if isinstance(space, spaces.MultiBinary) else space.dtype
    spec = ObservationSpec.of((height, width, channels), dtype)
    if not spec.is_image:
        return None
    return ArrayEncoder("The observation", spec, shape, spec.dtype, channels_first)


def _vector_encoder(space: Space, path: tuple[Any, ...]) -> Encoder:
    """Build the encoder of a space, or of the part of one at ``path``, to a flat vector."""
    where = "".join(f"[{key!r}]" for key in path)
    name = f"The part {where} of the observation" if path else "The observation"

    def common(length: int) -> tuple[str, ObservationSpec]:
        return name, ObservationSpec.of((length,), FLOAT32)

    match space:
        case spaces.Box():
            given = UINT8 if space.dtype == UINT8 and len(space.shape) == 3 else FLOAT32
            return ArrayEncoder(*common(math.prod(space.shape)), space.shape, given)
        case spaces.Discrete():
            size, start = int(space.n), int(space.start)
            return OneHotEncoder(*common(size), (), (size,), (start,))
        case spaces.MultiDiscrete():
            sizes = tuple(space.nvec.ravel().tolist())
            starts = tuple(space.start.ravel().tolist())
            return OneHotEncoder(*common(sum(sizes)), space.shape, sizes, starts)
        case spaces.MultiBinary():
            return ArrayEncoder(*common(math.prod(space.shape)), space.shape, np.dtype(bool))
        case spaces.Dict() | spaces.Tuple() if space.spaces:
            inside = space.spaces
            items: Iterable[tuple[Any, Space]]
            items = inside.items() if isinstance(inside, Mapping) else enumerate(inside)
            parts = tuple((key, _vector_encoder(part, (*path, key))) for key, part in items)
            length = sum(part.shape[0] for _, part in parts)
            sources = {key: part.source for key, part in parts}
            return PartsEncoder(*common(length), sources, parts, isinstance(inside, Mapping))
    kind = type(space).__name__
    raise ValueError(
        f"{name} is in a space of type {kind}, but valuetrack takes Box, Discrete, MultiDiscrete, "
        "MultiBinary, and non-empty Dict and Tuple of these; turn it into one of them with "
        "gymnasium.wrappers.TransformObservation."
    )


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
