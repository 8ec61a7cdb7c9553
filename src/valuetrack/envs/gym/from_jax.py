"""Environments written in JAX for Gymnasium: pure functions behind its stateful interface."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, SupportsIndex

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.error import InvalidAction, ResetNeeded

from valuetrack.envs.base import JaxEnvironment, restarted
from valuetrack.envs.changing import ChangingWorld
from valuetrack.envs.finite import FiniteTask
from valuetrack.envs.gym.spaces import space_in_jax
from valuetrack.envs.gym.tabular import Entries
from valuetrack.envs.gym.vectorised import SequentialEnvs, VectorisedEnvs
from valuetrack.envs.registry import find
from valuetrack.types import Array, Bools, Floats, Json, NDArray

Packed = tuple[Any, Array, Array]


@lru_cache(maxsize=64)
def _compile(task: Hashable) -> tuple[Callable[..., Packed], ...]:
    """Compile reset, step and restart, once for all environments with equal options.

    All return the next state, its observation and, in one float32 vector, all else that the caller
    sees: action mask, reward, terminated, truncated. Two small transfers take less than five.
    """
    env: Any = task

    def pack(state: Any, observation: Array, *rest: Array) -> Packed:
        mask = env.action_mask(state).astype(jnp.float32)
        return state, observation, jnp.concatenate([mask, jnp.stack(rest).astype(jnp.float32)])

    def reset(uniforms: Array) -> Packed:
        return begun(env.reset(uniforms))

    def restart(state: Any, uniforms: Array) -> Packed:
        return begun(restarted(env, state, uniforms))

    def begun(state: Any) -> Packed:
        return pack(state, env.observe(state), *jnp.zeros(3))

    def step(state: Any, action: Array, uniforms: Array) -> Packed:
        result = env.step(state, action, uniforms)
        ends = result.terminated.astype(jnp.float32), result.truncated.astype(jnp.float32)
        return pack(result.state, result.observation, result.reward, *ends)

    return jax.jit(reset), jax.jit(step), jax.jit(restart)


class JaxEnv(gymnasium.Env[NDArray, np.int64]):
    """Any environment written in JAX behind Gymnasium's interface.

    Parameters
    ----------
    task : str or Environment
        The environment, or the id under which it is registered.
    render_mode : str, optional
        One of ``metadata["render_modes"]``; there is none, unless a subclass draws.
    **options
        The options of an environment given by its id.

    Notes
    -----
    ``info["action_mask"]`` holds ones where an action is legal, in the form that
    ``action_space.sample(mask)`` takes. An illegal action is not an error: the environment says
    what it does. It counts its steps itself, so that it needs no time-limit wrapper. All randomness
    comes from ``np_random``, which ``reset(seed=...)`` seeds. ``state`` is the environment's own.
    A world that changes goes on from one episode to the next, also where a reset has a seed; only a
    new environment begins it anew.

    Examples
    --------
    >>> env = JaxEnv("CartPole-v1", horizon=50)
    >>> observation, info = env.reset(seed=1)
    >>> observation, reward, terminated, truncated, info = env.step(1)
    >>> reward, int(env.state.steps)
    (1.0, 1)
    """

    # Gymnasium declares it so.
    metadata: Json = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self, task: str | JaxEnvironment, *, render_mode: str | None = None, **options: Any
    ) -> None:
        modes = self.metadata["render_modes"]
        if render_mode is not None and render_mode not in modes:
            allowed = f"None or one of {modes}" if modes else "None"
            raise ValueError(f"render_mode must be {allowed}, but is {render_mode!r}.")
        made: Any = _made(task, options) if isinstance(task, str) else task
        self.render_mode = render_mode
        self.become(made)
        self.observation_space = space_in_jax(self.task)
        self.action_space = spaces.Discrete(self.task.num_actions)

    def become(self, task: Any) -> None:
        """Be another environment with the same observations and actions from the next reset on."""
        self.task = task
        self._reset, self._step, self._restart = _compile(task)
        self.state: Any = None
        self._over = False

    def reset(
        self, *, seed: int | None = None, options: Json | None = None
    ) -> tuple[NDArray, Json]:
        """Start an episode; ``options`` is ignored."""
        super().reset(seed=seed, options=options)
        uniforms = self._uniforms(self.task.reset_uniforms)
        if self.state is not None and hasattr(self.task, "restart"):
            packed = self._restart(self.state, uniforms)
        else:
            packed = self._reset(uniforms)
        observation, info, _ = self._arrive(packed)
        return observation, info

    def step(self, action: SupportsIndex) -> tuple[NDArray, float, bool, bool, Json]:
        """Take one step."""
        if self.state is None or self._over:
            why = "No episode has begun" if self.state is None else "The episode has ended"
            raise ResetNeeded(f"{why}; call reset() before step().")
        # Checked first: an action that is refused must not use up randomness.
        checked = self._checked(action)
        uniforms = self._uniforms(self.task.step_uniforms)
        arrived = self._arrive(self._step(self.state, checked, uniforms))
        observation, info, (reward, terminated, truncated) = arrived
        return observation, reward, bool(terminated), bool(truncated), info

    def _arrive(self, packed: Packed) -> tuple[NDArray, Json, list[float]]:
        """Keep the state; return the observation, the info, and reward, terminated, truncated."""
        self.state, observation, vector = packed
        rest = np.asarray(vector)
        self._over = bool(rest[-2:].any())
        return np.array(observation), {"action_mask": rest[:-3].astype(np.int8)}, rest[-3:].tolist()

    def _uniforms(self, count: int) -> NDArray:
        return self.np_random.random(count, dtype=np.float32)

    def _checked(self, action: SupportsIndex) -> np.int32:
        try:
            number = operator.index(action)
        except TypeError:
            raise InvalidAction(f"The action must be an integer, but is {action!r}.") from None
        if not 0 <= number < self.task.num_actions:
            last = self.task.num_actions - 1
            raise InvalidAction(f"The action must lie between 0 and {last}, but is {number}.")
        return np.int32(number)


class FiniteEnv(JaxEnv):
    """A :class:`~valuetrack.envs.finite.FiniteTask`, which tells its table as toy texts do.

    Examples
    --------
    >>> import gymnasium, valuetrack.envs
    >>> env = gymnasium.make("valuetrack/RiverSwim-v0", variant="osband")
    >>> env.unwrapped.P[5][1]
    [(0.4, 4, 1.0, False), (0.6, 5, 1.0, False)]
    """

    task: FiniteTask[Any]

    @property
    def P(self) -> Entries:  # noqa: N802
        """Place -> action -> a list of (probability, next place, reward, whether it terminates)."""
        return self.task.P

    @property
    def initial_state_distrib(self) -> Floats:
        """The probability that an episode begins in each place."""
        return self.task.initial_state_distrib

    def observations(self) -> Bools:
        """Return what is observed in each place, (places, bits)."""
        return self.task.observations()


def share_world(training: VectorisedEnvs, evaluation: VectorisedEnvs) -> None:
    """Let environments for an evaluation be what a changing world of the training is now."""
    if not isinstance(training, SequentialEnvs) or not isinstance(evaluation, SequentialEnvs):
        return
    source: Any = training.envs[0].unwrapped
    if not isinstance(source, JaxEnv) or source.state is None:
        return
    if not isinstance(source.task, ChangingWorld):
        return
    present = source.task.present(source.state)
    for env in evaluation.envs:
        own: Any = env.unwrapped
        if own.task != present:
            own.become(present)


def _made(env_id: str, options: Json) -> JaxEnvironment:
    build = find(env_id)
    if build is None:
        raise ValueError(f"There is no environment {env_id!r} in JAX.")
    return build(**options)
