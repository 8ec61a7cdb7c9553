"""Where an agent lives: an environment in any of the forms that users bring."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from valuetrack.algorithms.build import Task
from valuetrack.envs import IN_JAX
from valuetrack.envs.lanes import Lanes, make_lanes

NDArray = npt.NDArray[Any]
Backend = Literal["auto", "compiled", "host"]
BACKENDS = ("auto", "compiled", "host")


class Place:
    """An environment, and how its observations become arrays.

    Parameters
    ----------
    env, options
        The environment as the user gave it, and keyword arguments for making it.
    backend
        ``"compiled"`` insists on an environment in JAX, ``"host"`` on stepping it in Python.
    lanes
        How many environments side by side are needed.
    """

    def __init__(self, env: Any, options: Mapping[str, Any], backend: Backend, lanes: int) -> None:
        self.env, self.options = env, dict(options)
        if self.options and not isinstance(env, str):
            raise ValueError(
                "env_options are for an environment given by its id; this one is made already, "
                "or by a function of yours."
            )
        self.in_jax = _in_jax(env, self.options, backend)
        self.lanes: Lanes | None = None
        if self.in_jax is None:
            self.lanes = make_lanes(env, lanes, **self.options)
        self._apart: Lanes | None = None

    @property
    def id(self) -> str | None:
        """The environment's Gymnasium id, if it was given by that."""
        return self.env if isinstance(self.env, str) else None

    @property
    def saved(self) -> tuple[str | None, dict[str, Any]]:
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
        if self.lanes is None:
            return Task(tuple(self.in_jax.observation_shape), False, int(self.in_jax.num_actions))
        return Task(self.lanes.inputs.shape, self.lanes.inputs.is_image, self.lanes.actions)

    @property
    def offset(self) -> int:
        """The environment's number for our action 0."""
        return 0 if self.lanes is None else self.lanes.offset

    def evaluation_lanes(self, count: int) -> Lanes:
        """Return lanes apart from those of the training."""
        if self._apart is None:
            self.check_evaluation()
            self._apart = make_lanes(self.env, count, **self.options)
        return self._apart

    def close(self) -> None:
        """Close the environments that were made here."""
        given = isinstance(self.env, gymnasium.Env | VectorEnv)
        for lanes in (None if given else self.lanes, self._apart):
            if lanes is not None:
                lanes.close()

    def check_evaluation(self) -> None:
        """Refuse an evaluation where there is no second environment to be had."""
        if self.in_jax is None and isinstance(self.env, gymnasium.Env | VectorEnv):
            raise ValueError(
                "An evaluation needs an environment of its own; make the agent with an id or "
                "a function that makes environments."
            )

    def encode(self, observation: Any) -> tuple[NDArray, bool]:
        """Return observations as a batch of arrays, and whether it was a single one.

        A batch is a list of observations, or what a vector environment returns. A list of numbers
        that fits is one observation.
        """
        if self.lanes is None:
            return _encode_vector(observation, self.task.shape)
        inputs = self.lanes.inputs
        if isinstance(observation, list):
            if not observation:
                raise ValueError("A batch holds at least one observation, and this list is empty.")
            with contextlib.suppress(ValueError):  # a single one, its numbers as a list
                return inputs.encode(np.asarray(observation))[None], True
            return np.stack([inputs.encode(one) for one in observation]), False
        try:
            return inputs.encode(observation)[None], True
        except ValueError:
            count = _batch_size(observation)
            if count is None:
                raise
            try:
                return inputs.encode_batch(observation, count), False
            except ValueError:
                pass
            raise


def _encode_vector(observation: Any, shape: tuple[int, ...]) -> tuple[NDArray, bool]:
    try:
        array = np.asarray(observation, np.float32)
    except (TypeError, ValueError) as error:
        kind = type(observation).__name__
        raise ValueError(f"An observation is an array of shape {shape}, not a {kind}.") from error
    if array.shape[-len(shape) :] != shape or array.ndim > len(shape) + 1:
        raise ValueError(
            f"An observation has the shape {shape}, a batch of n of them ('n', *{shape}); "
            f"this has {array.shape}."
        )
    if not np.isfinite(array).all():
        raise ValueError("The observation holds a NaN or an infinity.")
    single = array.ndim == len(shape)
    return (array[None] if single else array), single


def _in_jax(env: Any, options: dict[str, Any], backend: Backend) -> Any:
    """Return the environment in JAX if there is one and it is wanted."""
    if backend not in BACKENDS:
        raise ValueError(f"backend is one of {', '.join(BACKENDS)}, not {backend!r}.")
    if hasattr(env, "reset_uniforms"):
        if backend == "host":
            raise ValueError("An environment written in JAX takes the compiled trainer.")
        return env() if isinstance(env, type) else env
    if backend != "host" and isinstance(env, str) and env in IN_JAX:
        try:
            return IN_JAX[env](**options)
        except TypeError as error:
            raise ValueError(
                f'{env} cannot be made in JAX: {error}; backend="host" takes Gymnasium\'s options.'
            ) from error
    if backend == "compiled":
        raise ValueError(
            f"{env!r} does not exist in JAX; the compiled trainer has {', '.join(IN_JAX)}."
        )
    return None


def _batch_size(observation: Any) -> int | None:
    """Return the first axis of a batch, or None if this is none."""
    if isinstance(observation, Mapping):
        sizes = {_batch_size(part) for part in observation.values()}
        return sizes.pop() if len(sizes) == 1 else None
    if isinstance(observation, tuple):
        sizes = {_batch_size(part) for part in observation}
        return sizes.pop() if len(sizes) == 1 else None
    shape = np.shape(observation)
    return int(shape[0]) if shape else None
