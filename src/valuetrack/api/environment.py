"""The environment of an agent, in any of the forms that users bring."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Mapping
from typing import Any, Literal, get_args

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from valuetrack import normalisation
from valuetrack.envs import ObservationSpec, find, ids_in_jax
from valuetrack.envs.base import bounds_in_jax
from valuetrack.envs.gym.encoders import Encoder, converted
from valuetrack.envs.gym.make import make_vectorised
from valuetrack.envs.gym.statistics import learning_in, share_statistics
from valuetrack.envs.gym.vectorised import VectorisedEnvs
from valuetrack.learner import Task
from valuetrack.normalisation import Wanted
from valuetrack.types import Bools, Keywords, NDArray

Backend = Literal["auto", "compiled", "host"]
GivenEnvironment = Any
"""What users bring: an id, an environment of Gymnasium or in JAX, a function that makes one."""
Observation = Any
"""What users pass: an observation of their environment's space, or a batch of them."""


class AgentEnvironment:
    """An environment, and how its observations become arrays.

    Parameters
    ----------
    env, options
        The environment as the user gave it, and keyword arguments for making it.
    backend
        ``"compiled"`` insists on an environment in JAX, ``"host"`` on stepping it in Python.
    count
        How many environments side by side are needed.
    """

    def __init__(
        self, env: GivenEnvironment, options: Mapping[str, object], backend: Backend, count: int
    ) -> None:
        self.env, self.options = env, dict(options)
        if self.options and not isinstance(env, str):
            raise ValueError(
                "env_options are for an environment given by its id; this one is made already, "
                "or by a function of yours."
            )
        self.in_jax = find_in_jax(env, self.options, backend)
        self.in_python: VectorisedEnvs | None = None
        if self.in_jax is None:
            self.in_python = make_vectorised(env, count, **self.options)
        self._apart: VectorisedEnvs | None = None

    @property
    def id(self) -> str | None:
        """The environment's Gymnasium id, if it was given by that."""
        return self.env if isinstance(self.env, str) else None

    @property
    def _is_given(self) -> bool:
        """Whether it was made by the user, who then also closes it."""
        return isinstance(self.env, gymnasium.Env | VectorEnv)

    @property
    def label(self) -> str:
        """What to call it: its id, or the name of its class."""
        if isinstance(self.env, str):
            return self.env
        return getattr(self.env, "__name__", type(self.env).__name__)

    def copied(self) -> GivenEnvironment:
        """Return what another agent can be made with; environment objects are copied."""
        return copy.deepcopy(self.env) if self._is_given else self.env

    @property
    def saved(self) -> tuple[str | None, Keywords]:
        """The environment's id and options as a file holds them.

        There is no id if the environment was given as an object or made by a function, or if an
        option is nothing that JSON can hold: then a file is loaded with ``env=``.
        """
        options = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.options.items()
        }
        try:
            json.dumps(options, allow_nan=False)
        except (TypeError, ValueError):
            return None, {}
        return self.id, options

    @property
    def task(self) -> Task:
        """What an agent must know of it."""
        if self.in_python is None:
            return task_in_jax(self.in_jax)
        encoder = self.in_python.encoder
        return Task(encoder.shape, encoder.is_image, self.in_python.num_actions)

    def components(self, wanted: Wanted) -> Bools | None:
        """Return which components of an observation are to be normalised; ``None`` for none."""
        bounds = bounds_in_jax(self.in_jax) if self.in_python is None else self.in_python.bounds
        return normalisation.components(bounds, wanted, is_image=self.task.is_image)

    @property
    def offset(self) -> int:
        """The environment's number for our action 0."""
        return 0 if self.in_python is None else self.in_python.first_action

    def for_evaluation(self, count: int) -> VectorisedEnvs:
        """Return environments apart from those of the training."""
        if self._apart is None:
            self.check_evaluation()
            self._apart = make_vectorised(self.env, count, **self.options)
        if self.in_python is not None:
            share_statistics(self.in_python, self._apart)
        return self._apart

    def warn_of_statistics(self) -> None:
        """Say that a file does not hold what the environment's own wrappers have learned."""
        found = [] if self.in_python is None else learning_in(self.in_python)
        if found:
            warnings.warn(
                f"The statistics of {found[0]} belong to the environment and are not in the file; "
                "with normalise_observations=True in its place, the agent keeps its own.",
                UserWarning,
                stacklevel=3,
            )

    def close(self) -> None:
        """Close the environments that were made here."""
        for lanes in (None if self._is_given else self.in_python, self._apart):
            if lanes is not None:
                lanes.close()

    def check_evaluation(self) -> None:
        """Refuse an evaluation where there is no second environment to be had."""
        if self.in_jax is None and self._is_given:
            raise ValueError(
                "An evaluation needs an environment of its own; make the agent with an id or "
                "a function that makes environments."
            )

    def encode(self, observation: Observation) -> tuple[NDArray, bool]:
        """Return observations as a batch of arrays, and whether it was a single one.

        A batch is a list of observations, or what a vector environment returns. A list of numbers
        that fits is one observation.
        """
        if self.in_python is None:
            return _encode_array(observation, ObservationSpec.of_env(self.in_jax))
        inputs = self.in_python.encoder
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


def _encode_array(observation: Observation, spec: ObservationSpec) -> tuple[NDArray, bool]:
    """Encode observations of an environment in JAX; their dtype is kept."""
    shape = spec.shape
    try:
        array = np.asarray(observation)
        array = array.astype(np.float32) if array.dtype.kind not in "biu" else array
    except (TypeError, ValueError) as error:
        kind = type(observation).__name__
        raise ValueError(f"An observation is an array of shape {shape}, not a {kind}.") from error
    _refuse_empty(array.shape)
    single = array.shape == shape
    if not single and array.shape[1:] != shape:
        raise ValueError(
            f"An observation has the shape {shape}, a batch of n of them ('n', *{shape}); "
            f"this has {array.shape}."
        )
    if not np.isfinite(array).all():
        raise ValueError("The observation holds a NaN or an infinity.")
    array = converted(array, spec.dtype, "The observation")
    return (array[None] if single else array), single


def task_in_jax(env: GivenEnvironment) -> Task:
    """Return what an agent must know of an environment in JAX."""
    spec = ObservationSpec.of_env(env)
    return Task(spec.shape, spec.is_image, int(env.num_actions))


def only_in_jax(env: GivenEnvironment) -> bool:
    """Return whether an environment in JAX has no twin that runs in Python."""
    return not isinstance(env, str) or env not in gymnasium.registry


def find_in_jax(
    env: GivenEnvironment, options: Mapping[str, Any], backend: Backend
) -> GivenEnvironment:
    """Return the environment in JAX if there is one and it is wanted."""
    if backend not in get_args(Backend):
        raise ValueError(f"backend is one of {', '.join(get_args(Backend))}, not {backend!r}.")
    if hasattr(env, "reset_uniforms"):
        if backend == "host":
            raise ValueError("An environment written in JAX takes the compiled trainer.")
        return env() if isinstance(env, type) else env
    build = find(env) if isinstance(env, str) else None
    if backend == "host" and build is not None and only_in_jax(env):
        raise ValueError("An environment written in JAX takes the compiled trainer.")
    if backend != "host" and build is not None:
        try:
            return build(**options)
        except TypeError as error:
            raise ValueError(
                f'{env} cannot be made in JAX: {error}; backend="host" takes Gymnasium\'s options.'
            ) from error
    if backend == "compiled":
        raise ValueError(
            f"{env!r} does not exist in JAX; the compiled trainer has {', '.join(ids_in_jax())}."
        )
    return None


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
