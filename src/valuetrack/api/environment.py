"""The environment of an agent, in any of the forms that users bring."""

from __future__ import annotations

import copy
import functools
import json
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from valuetrack import normalisation
from valuetrack.api.observations import Observation, encode_in_jax, encode_on_host
from valuetrack.envs import ObservationSpec, find, ids_in_jax
from valuetrack.envs.base import bounds_in_jax, factors_in_jax
from valuetrack.envs.gym.absent import StandIn, described
from valuetrack.envs.gym.actions import Actions
from valuetrack.envs.gym.from_jax import share_world
from valuetrack.envs.gym.guards import name_of
from valuetrack.envs.gym.make import make_by_id, make_vectorised
from valuetrack.envs.gym.spaces import space_in_jax
from valuetrack.envs.gym.statistics import learning_in, share_statistics
from valuetrack.envs.gym.vectorised import SequentialEnvs, VectorisedEnvs
from valuetrack.learner import Task
from valuetrack.normalisation import Scaling, Wanted
from valuetrack.types import DType, Floats, Keywords, NDArray

DRAWN = "rgb_array"
"""How Gymnasium calls it that an environment draws pictures."""
Backend = Literal["auto", "compiled", "host"]
Space = gymnasium.Space[Any]
AnyVectorEnv = VectorEnv[Any, Any, Any]
GivenEnvironment = Any
"""What users bring: an id, an environment of Gymnasium or in JAX, a function that makes one."""


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
        if self._is_given:
            return name_of(self.env)
        made = self.env.func if isinstance(self.env, functools.partial) else self.env
        return getattr(made, "__name__", type(made).__name__)

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

    @property
    def dtype(self) -> DType:
        """The dtype of an encoded observation."""
        if self.in_python is None:
            return np.dtype(ObservationSpec.of_env(self.in_jax).dtype)
        return np.dtype(self.in_python.encoder.dtype)

    @property
    def spaces(self) -> Keywords | None:
        """The spaces of observations and actions as a file holds them, if it can."""
        found = [described(space) for space in (self.observation_space, self.action_space)]
        return None if None in found else dict(zip(("observation", "action"), found, strict=True))

    def scaling(self, wanted: Wanted) -> Scaling:
        """Return how observations are brought to a common scale."""
        if self.in_python is None:
            bounds = bounds_in_jax(self.in_jax)
            factors: Floats = factors_in_jax(self.in_jax)
        else:
            bounds, factors = self.in_python.bounds, self.in_python.factors
        return normalisation.scaling(bounds, factors, wanted, is_image=self.task.is_image)

    @property
    def actions(self) -> Actions:
        """How our actions 0, 1, ... become the environment's."""
        if self.in_python is not None:
            return self.in_python.actions
        return Actions.of(spaces.Discrete(self.task.actions))

    @property
    def observation_space(self) -> Space:
        """Gymnasium's space of the observations."""
        if self.in_python is not None:
            space: Space = self.in_python.observation_space
            return space
        return space_in_jax(self.in_jax)

    @property
    def action_space(self) -> Space:
        """Gymnasium's space of the actions."""
        if self.in_python is not None:
            actions: Space = self.in_python.action_space
            return actions
        return spaces.Discrete(self.task.actions)

    def for_evaluation(self, count: int) -> VectorisedEnvs:
        """Return environments apart from those of the training."""
        if self._apart is None:
            self.check_evaluation()
            given = (_maker(self.env) or self.env) if self._is_given else self.env
            self._apart = make_vectorised(given, count, **self.options)
        if self.in_python is not None:
            share_statistics(self.in_python, self._apart)
            share_world(self.in_python, self._apart)
        return self._apart

    def for_playing(self, count: int, trained: AgentEnvironment) -> VectorisedEnvs:
        """Return environments to play in, for an agent that was trained in ``trained``."""
        if self is trained or self.in_python is None:
            return self.for_evaluation(count)
        if trained.in_python is not None:
            share_statistics(trained.in_python, self.in_python)
        return self.in_python

    def check_like(self, task: Task) -> None:
        """Refuse an environment whose observations or actions are not those of a task."""
        here = self.task
        if (here.shape, here.actions) != (task.shape, task.actions):
            raise ValueError(
                f"The agent knows observations of shape {task.shape} and {task.actions} actions; "
                f"{self.label} has {here.shape} and {here.actions}."
            )

    def drawn(self) -> gymnasium.Env[Any, Any]:
        """Return a single one like it that draws pictures, with the training's statistics."""
        maker = _drawing(self.env, self.options)
        made = make_vectorised(maker, 1) if maker else None
        env = made.envs[0] if isinstance(made, SequentialEnvs) else None
        if made is None or env is None or env.render_mode != DRAWN:
            if made is not None:
                made.close()
            raise ValueError(
                f"{self.label} cannot be drawn: make the agent with an id of Gymnasium, with an "
                "object that gymnasium.make has made, or with a function whose environment has "
                'render_mode="rgb_array".'
            )
        made_task = Task(made.encoder.shape, made.encoder.is_image, made.num_actions)
        if made_task != self.task:
            made.close()
            raise ValueError(f"{self.label} has other observations where it is drawn.")
        if self.in_python is not None:
            share_statistics(self.in_python, made)
        return env

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

    def check_present(self) -> None:
        """Refuse to act where only the spaces are known."""
        if isinstance(self.env, StandIn):
            raise ValueError(
                "The agent was loaded without its environment, and can only be asked; "
                "valuetrack.load(path, env=...) lets it play and learn."
            )

    def check_evaluation(self) -> None:
        """Refuse an evaluation where there is no second environment to be had."""
        self.check_present()
        if self.in_jax is None and self._is_given and _maker(self.env) is None:
            raise ValueError(
                "An evaluation needs an environment of its own, and this object was not made by "
                "gymnasium.make, so that there is no copy of it: pass one, agent.evaluate(env=...) "
                "or learn(evaluation_env=...), or make the agent with a function that makes "
                "environments."
            )

    def encode(self, observation: Observation) -> tuple[NDArray, bool]:
        """Return observations as a batch of arrays, and whether it was a single one.

        A batch is a list of observations, or what a vector environment returns. A list of numbers
        that fits is one observation.
        """
        if self.in_python is None:
            spec = ObservationSpec.of_env(self.in_jax)
            return encode_in_jax(observation, spec, self.label)
        return encode_on_host(observation, self.in_python.encoder, self.label)


def _drawing(env: GivenEnvironment, options: Mapping[str, object]) -> Callable[[], object] | None:
    """Return what makes an environment that draws pictures, if it is known how."""
    if isinstance(env, str):
        if only_in_jax(env):
            return None
        return functools.partial(make_by_id, env, {**options, "render_mode": DRAWN})
    if isinstance(env, gymnasium.Env | VectorEnv):
        return _maker(env, render_mode=DRAWN)
    return env if callable(env) and not hasattr(env, "reset_uniforms") else None


def _maker(
    env: gymnasium.Env[Any, Any] | AnyVectorEnv, render_mode: str | None = None
) -> Callable[[], object] | None:
    """Return what makes an environment like a given object from its ``spec``, if it has one.

    That has the id, the options and the wrappers that ``gymnasium.make`` and Gymnasium's own
    wrappers have recorded; a window of the training is not opened twice.
    """
    if isinstance(env, VectorEnv):
        inside = getattr(env, "envs", None)  # those of a SyncVectorEnv
        return _maker(inside[0], render_mode) if inside else None
    try:
        spec = copy.deepcopy(env.spec)
    except Exception:  # of a wrapper that cannot be recorded, or of what it was given
        return None
    if spec is None or any(wrapper.kwargs is None for wrapper in spec.additional_wrappers):
        return None
    spec.kwargs.pop("render_mode", None)
    if render_mode is not None:
        spec.kwargs["render_mode"] = render_mode
    return lambda: gymnasium.make(spec)


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
