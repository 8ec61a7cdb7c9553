"""Gymnasium environments side by side, seen the same way whatever they are.

A *lane* is one environment that starts a new episode by itself when one ends. A step of all lanes
returns both the state s' that the step led to, which the transition needs, and the observation
from which the lane goes on, which is that of a fresh start if the episode is over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from valuetrack.envs import calls
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
        self.inputs = encoder(calls.space(first, "observation_space"))
        choices = calls.space(first, "action_space")
        self.actions, self.offset = action_count(choices), action_offset(choices)

    def reset(self, seeds: Sequence[int]) -> Places:
        """Start an episode in every lane, each with a seed of its own."""
        return self._places(
            [calls.reset(env, seed=int(seed)) for env, seed in zip(self.envs, seeds, strict=True)]
        )

    def step(self, actions: NDArray) -> Arrivals:
        """Take an action in every lane; where an episode ends, start the next."""
        reached, going_on = [], []
        reward = np.zeros(self.count)
        terminated, truncated = np.zeros((2, self.count), bool)
        for lane, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            observation, paid, ended, cut, info = calls.step(env, int(action) + self.offset)
            reward[lane] = calls.number(env, paid)
            terminated[lane], truncated[lane] = calls.flag(env, ended), calls.flag(env, cut)
            reached.append((observation, info))
            over = terminated[lane] or truncated[lane]
            going_on.append(calls.reset(env) if over else (observation, info))
        at = self._places(reached, terminated)
        onward = self._places(going_on) if (terminated | truncated).any() else at
        return Arrivals(
            at,
            reward.astype(np.float32),
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
        self, seen: Sequence[tuple[Any, Mapping[str, Any]]], terminal: NDArray | None = None
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
        self.inputs = encoder(calls.space(envs, "single_observation_space"))
        choices = calls.space(envs, "single_action_space")
        self.actions, self.offset = action_count(choices), action_offset(choices)
        self.mode = AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self._was_over = np.zeros(self.count, bool)

    def reset(self, seeds: Sequence[int]) -> Places:
        """Start an episode in every lane, each with a seed of its own."""
        each: Any = [int(seed) for seed in seeds]
        try:
            observation, info = calls.reset(self.envs, seed=each)
        except calls.EnvironmentFailedError as error:
            if not isinstance(error.__cause__, gymnasium.error.Error):
                raise
            # Some that are written as vectors take one seed for all.
            observation, info = calls.reset(self.envs, seed=each[0])
        self._was_over = np.zeros(self.count, bool)
        return self._places(observation, info)

    def step(self, actions: NDArray) -> Arrivals:
        """Take an action in every lane; where an episode ends, start the next."""
        chosen = np.asarray(actions) + self.offset
        observation, reward, terminated, truncated, info = calls.step(self.envs, chosen)
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
                fresh, info = calls.reset(self.envs, options={"reset_mask": over.copy()})
                going_on = _where(over, self._places(fresh, info), reached)
        else:
            # The step after an end only resets that lane. Its action is ignored, and what it
            # returns leads nowhere from before.
            real = ~self._was_over
            reached = going_on = self._places(observation, info, terminated)
            self._was_over = over
        return Arrivals(
            reached,
            calls.numbers(self.envs, reward, self.count),
            terminated,
            truncated & ~terminated,
            going_on,
            real,
        )

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def _places(
        self, observation: Any, info: Mapping[str, Any], terminal: NDArray | None = None
    ) -> Places:
        encoded = self.inputs.encode_batch(observation, self.count)
        return Places(encoded, self._masks(info, terminal))

    def _final_places(
        self, going_on: Places, info: Mapping[str, Any], over: NDArray, terminated: NDArray
    ) -> Places:
        """Return s' where SAME_STEP has put the fresh start in its place."""
        if not over.any():
            return going_on
        if "final_obs" not in info:
            raise ValueError(
                f"The environment {calls.name_of(self.envs)} starts anew in the step that ends an "
                'episode, but does not tell where that ended; give it in info["final_obs"].'
            )
        observation, mask = going_on.observation.copy(), going_on.mask.copy()
        final_info = info.get("final_info", {})
        masks = self._masks(final_info, terminated)
        for lane in np.flatnonzero(over):
            observation[lane] = self.inputs.encode(info["final_obs"][lane])
            mask[lane] = masks[lane]
        return Places(observation, mask)

    def _masks(self, info: Mapping[str, Any], terminal: NDArray | None = None) -> NDArray:
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
    if isinstance(env, str):
        return _by_id(env, options)
    if not callable(env):
        raise TypeError(
            "An environment is an id, a Gymnasium environment, a vector environment or a "
            f"function that makes one, not {type(env).__name__}."
        )
    who = "The function that makes an environment"
    if isinstance(env, type):
        who = f"The constructor of the environment {env.__name__}"

    def build() -> Any:
        try:
            return env()
        except Exception as error:
            raise calls.not_made(who, error) from error

    return build


def _by_id(env: str, options: dict[str, Any]) -> Callable[[], Any]:
    """Return what makes an environment that is registered; nothing is imported for that.

    Gymnasium would import the module of ``module:Id-v0``, but an id may come from a file, which
    must not choose what code runs.
    """
    module, colon, rest = env.partition(":")
    if colon:
        raise ValueError(
            f"There is no environment {env!r}: an id imports nothing here. Import the module "
            f"{module!r} first, on the command line with --import, and give the id alone: {rest!r}."
        )
    try:
        spec = gymnasium.spec(env)
    except (gymnasium.error.Error, ValueError, ModuleNotFoundError) as error:
        raise ValueError(
            f"There is no environment {env!r}: {calls.told(error)} `valuetrack envs` "
            "lists those there are; import the package that registers your own first."
        ) from error
    is_ours = str(spec.entry_point).startswith("valuetrack.")

    def build() -> Any:
        try:
            return gymnasium.make(env, **options)
        except (gymnasium.error.Error, TypeError) as error:
            raise ValueError(f"{env} cannot be made: {calls.told(error)}") from error
        except Exception as error:
            if is_ours and isinstance(error, ValueError):
                raise  # its sentence tells which option is wrong
            raise calls.not_made(f"The constructor of the environment {env}", error) from error

    return build


def _mask(info: Mapping[str, Any], count: int, terminal: bool = False) -> NDArray:
    mask = action_mask(info, count, terminal=terminal)
    return np.ones(count, bool) if mask is None else mask


def _where(which: NDArray, there: Places, elsewhere: Places) -> Places:
    """Return the places of the lanes ``which`` from the one, those of the others from the other."""
    observation, mask = elsewhere.observation.copy(), elsewhere.mask.copy()
    observation[which], mask[which] = there.observation[which], there.mask[which]
    return Places(observation, mask)
