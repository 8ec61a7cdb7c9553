"""Gymnasium environments side by side, seen the same way whatever they are.

A *lane* is one environment that starts a new episode by itself when one ends. A step of all lanes
returns both the state s' that the step led to, which the transition needs, and the observation
from which the lane goes on, which is that of a fresh start if the episode is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from valuetrack.spaces import Encoder, action_count, action_mask, action_offset, encoder

NDArray = npt.NDArray[Any]


class Places(NamedTuple):
    """Where the lanes are: encoded observations and legal actions, one row a lane."""

    observation: NDArray
    mask: NDArray


class Arrivals(NamedTuple):
    """What a step of all lanes brought, one row a lane.

    Attributes
    ----------
    reached
        The state s' of the step; the last of its episode, where that is over.
    reward, terminated, truncated
        As Gymnasium has them; never both terminated and truncated.
    going_on
        From where the lane goes on.
    real
        False where nothing happened but a reset, so that there is no transition.
    """

    reached: Places
    reward: NDArray
    terminated: NDArray
    truncated: NDArray
    going_on: Places
    real: NDArray


class Lanes(Protocol):
    """Environments side by side."""

    count: int
    inputs: Encoder
    actions: int
    offset: int
    """The environments' number for our action 0."""

    def reset(self, seeds: Sequence[int]) -> Places:
        """Start an episode in every lane, each with a seed of its own."""
        ...

    def step(self, actions: NDArray) -> Arrivals:
        """Take an action in every lane; where an episode ends, start the next."""
        ...

    def close(self) -> None:
        """Close the environments."""
        ...


class SingleLanes:
    """Separate environments, stepped one after the other."""

    def __init__(self, envs: Sequence[gymnasium.Env[Any, Any]]) -> None:
        self.envs = list(envs)
        self.count = len(self.envs)
        first = self.envs[0]
        self.inputs = encoder(first.observation_space)
        self.actions = action_count(first.action_space)
        self.offset = action_offset(first.action_space)

    def reset(self, seeds: Sequence[int]) -> Places:
        """Start an episode in every lane, each with a seed of its own."""
        return self._places(
            [env.reset(seed=int(seed)) for env, seed in zip(self.envs, seeds, strict=True)]
        )

    def step(self, actions: NDArray) -> Arrivals:
        """Take an action in every lane; where an episode ends, start the next."""
        reached, going_on = [], []
        reward = np.zeros(self.count)
        terminated, truncated = np.zeros((2, self.count), bool)
        for lane, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            observation, reward[lane], terminated[lane], truncated[lane], info = env.step(
                int(action) + self.offset
            )
            reached.append((observation, info))
            over = terminated[lane] or truncated[lane]
            going_on.append(env.reset() if over else (observation, info))
        at = self._places(reached, terminated)
        onward = self._places(going_on) if (terminated | truncated).any() else at
        return Arrivals(
            at,
            _checked(reward),
            terminated,
            truncated & ~terminated,
            onward,
            np.ones(self.count, bool),
        )

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()

    def _places(
        self, seen: Sequence[tuple[Any, dict[str, Any]]], terminal: NDArray | None = None
    ) -> Places:
        observation = np.empty((len(seen), *self.inputs.shape), self.inputs.dtype)
        mask = np.ones((len(seen), self.actions), bool)
        for lane, (seen_here, info) in enumerate(seen):
            observation[lane] = self.inputs.encode(seen_here)
            if "action_mask" in info:
                end = terminal is not None and bool(terminal[lane])
                mask[lane] = _mask(info, self.actions, terminal=end)
        return Places(observation, mask)


class VectorLanes:
    """A Gymnasium vector environment, in any of its autoreset modes."""

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self.envs = envs
        self.count = envs.num_envs
        self.inputs = encoder(envs.single_observation_space)
        self.actions = action_count(envs.single_action_space)
        self.offset = action_offset(envs.single_action_space)
        self.mode = AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self._was_over = np.zeros(self.count, bool)

    def reset(self, seeds: Sequence[int]) -> Places:
        """Start an episode in every lane, each with a seed of its own."""
        each: Any = [int(seed) for seed in seeds]
        try:
            observation, info = self.envs.reset(seed=each)
        except gymnasium.error.Error:  # some that are written as vectors take one seed for all
            observation, info = self.envs.reset(seed=each[0])
        self._was_over = np.zeros(self.count, bool)
        return self._places(observation, info)

    def step(self, actions: NDArray) -> Arrivals:
        """Take an action in every lane; where an episode ends, start the next."""
        chosen = np.asarray(actions) + self.offset
        observation, reward, terminated, truncated, info = self.envs.step(chosen)
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        over = terminated | truncated
        real = np.ones(self.count, bool)
        if self.mode is AutoresetMode.SAME_STEP:
            going_on = self._places(observation, info)
            reached = self._final_places(going_on, info, over, terminated)
        elif self.mode is AutoresetMode.DISABLED:
            reached = going_on = self._places(observation, info, terminated)
            if over.any():
                # A copy, for it is theirs to change; lanes that go on are told nothing new.
                fresh, info = self.envs.reset(options={"reset_mask": over.copy()})
                going_on = _where(over, self._places(fresh, info), reached)
        else:
            # The step after an end only resets that lane. Its action is ignored, and what it
            # returns leads nowhere from before.
            real = ~self._was_over
            reached = going_on = self._places(observation, info, terminated)
            self._was_over = over
        return Arrivals(
            reached,
            _checked(reward),
            terminated,
            truncated & ~terminated,
            going_on,
            real,
        )

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def _places(
        self, observation: Any, info: dict[str, Any], terminal: NDArray | None = None
    ) -> Places:
        encoded = self.inputs.encode_batch(observation, self.count)
        return Places(encoded, self._masks(info, terminal))

    def _final_places(
        self, going_on: Places, info: dict[str, Any], over: NDArray, terminated: NDArray
    ) -> Places:
        """Return s' where SAME_STEP has put the fresh start in its place."""
        if not over.any():
            return going_on
        observation, mask = going_on.observation.copy(), going_on.mask.copy()
        final_info = info.get("final_info", {})
        masks = self._masks(final_info, terminated)
        for lane in np.flatnonzero(over):
            observation[lane] = self.inputs.encode(info["final_obs"][lane])
            mask[lane] = masks[lane]
        return Places(observation, mask)

    def _masks(self, info: dict[str, Any], terminal: NDArray | None = None) -> NDArray:
        """Return the lanes' masks; ``_action_mask`` says which lanes have one in this step."""
        masks = np.ones((self.count, self.actions), bool)
        if "action_mask" not in info:
            return masks
        there = info.get("_action_mask", np.ones(self.count, bool))
        for lane in np.flatnonzero(there):
            end = terminal is not None and bool(terminal[lane])
            masks[lane] = _mask({"action_mask": info["action_mask"][lane]}, self.actions, end)
        return masks


def make_lanes(
    env: str | gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any] | Callable[[], Any],
    count: int,
    **options: Any,
) -> Lanes:
    """Make so many lanes from an id, a builder, an environment or a vector environment.

    Raises
    ------
    ValueError
        If there is no such environment, or if more lanes are asked for than one object can give.
    """
    if isinstance(env, VectorEnv):
        if env.num_envs != count:
            raise ValueError(
                f"The vector environment has {env.num_envs} environments, and {count} are needed: "
                "as many as `seeds` times `environments`."
            )
        return VectorLanes(env)
    if isinstance(env, gymnasium.Env):
        if count != 1:
            raise ValueError(
                f"One environment object cannot serve {count} runs side by side; "
                "pass its id or a function that makes one."
            )
        return SingleLanes([env])
    build = _builder(env, options)
    made = [build() for _ in range(count)]
    for one in made:
        if not isinstance(one, gymnasium.Env):
            raise TypeError(
                "The function that makes an environment returned no gymnasium.Env but a "
                f"{type(one).__name__}."
            )
    return SingleLanes(made)


def _builder(env: str | Callable[[], Any], options: dict[str, Any]) -> Callable[[], Any]:
    if not isinstance(env, str):
        if not callable(env):
            raise TypeError(
                "An environment is an id, a Gymnasium environment, a vector environment or a "
                f"function that makes one, not {type(env).__name__}."
            )
        return env
    try:
        gymnasium.spec(env)
    except (gymnasium.error.Error, ValueError, ModuleNotFoundError) as error:
        raise ValueError(
            f"There is no environment {env!r}: {_told(error)} `valuetrack envs` "
            "lists those there are; import the package that registers your own first."
        ) from error

    def build() -> Any:
        try:
            return gymnasium.make(env, **options)
        except (gymnasium.error.Error, TypeError) as error:
            raise ValueError(f"{env} cannot be made: {_told(error)}") from error

    return build


def _told(error: Exception) -> str:
    """Return an error's message in one line that ends with a full stop."""
    return " ".join(str(error).split()).rstrip(".") + "."


def _mask(info: dict[str, Any], count: int, terminal: bool = False) -> NDArray:
    mask = action_mask(info, count, terminal=terminal)
    return np.ones(count, bool) if mask is None else mask


def _where(which: NDArray, there: Places, elsewhere: Places) -> Places:
    """Return the places of the lanes ``which`` from the one, those of the others from the other."""
    observation, mask = elsewhere.observation.copy(), elsewhere.mask.copy()
    observation[which], mask[which] = there.observation[which], there.mask[which]
    return Places(observation, mask)


def _checked(reward: Any) -> NDArray:
    """Return the rewards as float32, if they are finite numbers."""
    rewards = np.asarray(reward, np.float32)
    if not np.isfinite(rewards).all():
        wrong = rewards[~np.isfinite(rewards)].flat[0]
        raise ValueError(f"The environment returned a reward that is no finite number: {wrong}.")
    return rewards
