"""Gymnasium environments side by side, stepped together, whatever holds them.

Each environment starts a new episode by itself when one ends. A step therefore returns two
observations per environment: ``next``, that of the state s' to which the step led, which the
transition needs; and ``current``, in which the next action is chosen. They differ where an episode
is over: ``next`` is its last observation, ``current`` the first of the new one.

::

    envs = make_vectorised("CartPole-v1", 4)
    current = envs.reset(seeds=[0, 1, 2, 3])
    result = envs.step(choose(current.observation, current.mask))
    # the transitions (current, action, result.reward, result.next) where result.is_transition
    current = result.current
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from valuetrack.envs.gym import guards
from valuetrack.envs.gym.encoders import Encoder
from valuetrack.envs.gym.spaces import action_count, action_mask, action_offset, encoder

NDArray = npt.NDArray[Any]
Seen = tuple[Any, Mapping[str, Any]]
"""An observation as an environment returns it, and its info."""


class Observed(NamedTuple):
    """Encoded observations and masks of legal actions, one row per environment.

    Attributes
    ----------
    observation, mask
        Arrays whose first axis is that of the environments.
    given : (index) -> observation
        The observation as an environment returned it, for policies that are written for these.
    """

    observation: NDArray
    mask: NDArray
    given: Callable[[int], Any]


class StepResult(NamedTuple):
    """The result of a step of all environments, one row per environment.

    Attributes
    ----------
    next
        What is observed in the state s' of the transition, the last of its episode where that ends.
    reward, terminated, truncated
        As Gymnasium has them; never both terminated and truncated.
    current
        What is observed now, after a reset where the episode is over.
    is_transition
        False where the step did nothing but reset the environment.
    """

    next: Observed
    reward: NDArray
    terminated: NDArray
    truncated: NDArray
    current: Observed
    is_transition: NDArray


class VectorisedEnvs(Protocol):
    """Environments that are stepped together.

    Attributes
    ----------
    count
        How many there are.
    encoder
        How their observations become arrays.
    num_actions
        How many actions each has; ours are 0, ..., ``num_actions`` - 1.
    first_action
        The environments' own number for our action 0.
    """

    count: int
    encoder: Encoder
    num_actions: int
    first_action: int

    def reset(self, seeds: Sequence[int]) -> Observed:
        """Start an episode in every environment, each with its own seed."""
        ...

    def step(self, actions: NDArray) -> StepResult:
        """Take an action in every environment; where an episode ends, start the next."""
        ...

    def close(self) -> None:
        """Close the environments."""
        ...


class SequentialEnvs:
    """Separate environments, stepped one after the other; implements `VectorisedEnvs`.

    Examples
    --------
    >>> import gymnasium
    >>> envs = SequentialEnvs([gymnasium.make("CartPole-v1") for _ in range(2)])
    >>> envs.reset(seeds=[0, 1]).observation.shape
    (2, 4)
    >>> envs.step(np.array([0, 1])).reward.tolist()
    [1.0, 1.0]
    """

    def __init__(self, envs: Sequence[gymnasium.Env[Any, Any]]) -> None:
        self.envs = list(envs)
        self.count = len(self.envs)
        first = self.envs[0]
        self.encoder = encoder(guards.get_space(first, "observation_space"))
        choices = guards.get_space(first, "action_space")
        self.num_actions, self.first_action = action_count(choices), action_offset(choices)

    def reset(self, seeds: Sequence[int]) -> Observed:
        """Start an episode in every environment, each with its own seed."""
        return self._observed(
            [guards.reset(env, seed=int(seed)) for env, seed in zip(self.envs, seeds, strict=True)]
        )

    def step(self, actions: NDArray) -> StepResult:
        """Take an action in every environment; where an episode ends, start the next."""
        after: list[Seen] = []
        now: list[Seen] = []
        reward = np.zeros(self.count)
        terminated, truncated = np.zeros((2, self.count), bool)
        for i, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            observation, paid, ended, cut, info = guards.step(env, int(action) + self.first_action)
            reward[i] = guards.checked_reward(env, paid)
            terminated[i] = guards.checked_flag(env, ended)
            truncated[i] = guards.checked_flag(env, cut)
            after.append((observation, info))
            over = terminated[i] or truncated[i]
            now.append(guards.reset(env) if over else (observation, info))
        following = self._observed(after, terminated)
        current = self._observed(now) if (terminated | truncated).any() else following
        return StepResult(
            following,
            reward.astype(np.float32),
            terminated,
            truncated & ~terminated,
            current,
            np.ones(self.count, bool),
        )

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()

    def _observed(self, seen: Sequence[Seen], terminal: NDArray | None = None) -> Observed:
        observation = np.empty((len(seen), *self.encoder.shape), self.encoder.dtype)
        mask = np.ones((len(seen), self.num_actions), bool)
        for i, (seen_here, info) in enumerate(seen):
            observation[i] = self.encoder.encode(seen_here)
            if "action_mask" in info:
                end = terminal is not None and bool(terminal[i])
                mask[i] = _mask(info, self.num_actions, terminal=end)
        return Observed(observation, mask, lambda index: seen[index][0])


class WrappedVectorEnv:
    """A Gymnasium vector environment, in any of its autoreset modes; `VectorisedEnvs`.

    Examples
    --------
    >>> import gymnasium
    >>> envs = WrappedVectorEnv(gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync"))
    >>> envs.reset(seeds=[0, 1]).mask.tolist()
    [[True, True], [True, True]]
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self.envs = envs
        self.count = envs.num_envs
        self.encoder = encoder(guards.get_space(envs, "single_observation_space"))
        choices = guards.get_space(envs, "single_action_space")
        self.num_actions, self.first_action = action_count(choices), action_offset(choices)
        self.mode = AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self._was_over = np.zeros(self.count, bool)

    def reset(self, seeds: Sequence[int]) -> Observed:
        """Start an episode in every environment, each with its own seed."""
        each: Any = [int(seed) for seed in seeds]
        try:
            observation, info = guards.reset(self.envs, seed=each)
        except guards.EnvironmentFailedError as error:
            if not isinstance(error.__cause__, gymnasium.error.Error):
                raise
            # Some that are written as vectors take one seed for all.
            observation, info = guards.reset(self.envs, seed=each[0])
        self._was_over = np.zeros(self.count, bool)
        return self._observed(observation, info)

    def step(self, actions: NDArray) -> StepResult:
        """Take an action in every environment; where an episode ends, start the next."""
        chosen = np.asarray(actions) + self.first_action
        observation, reward, terminated, truncated, info = guards.step(self.envs, chosen)
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        following, current = self._after_step((observation, info), terminated, truncated)
        # With NEXT_STEP, the step after an end only resets: its action is ignored.
        is_transition = ~self._was_over
        if self.mode is AutoresetMode.NEXT_STEP:
            self._was_over = terminated | truncated
        return StepResult(
            following,
            guards.checked_rewards(self.envs, reward, self.count),
            terminated,
            truncated & ~terminated,
            current,
            is_transition,
        )

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def _after_step(
        self, seen: Seen, terminated: NDArray, truncated: NDArray
    ) -> tuple[Observed, Observed]:
        """Return what is observed in s', and what is observed now."""
        over = terminated | truncated
        if self.mode is AutoresetMode.SAME_STEP:
            current = self._observed(*seen)
            return self._final(current, seen[1], over, terminated), current
        following = self._observed(*seen, terminated)
        if self.mode is AutoresetMode.NEXT_STEP or not over.any():
            return following, following
        # The mask is a copy, for it is theirs to change; the others' rows hold nothing new.
        fresh = guards.reset(self.envs, options={"reset_mask": over.copy()})
        return following, _choose_rows(over, self._observed(*fresh), following)

    def _observed(
        self, observation: Any, info: Mapping[str, Any], terminal: NDArray | None = None
    ) -> Observed:
        encoded = self.encoder.encode_batch(observation, self.count)
        masks = self._masks(info, terminal)
        return Observed(encoded, masks, lambda index: self.encoder.row(observation, index))

    def _final(
        self, current: Observed, info: Mapping[str, Any], over: NDArray, terminated: NDArray
    ) -> Observed:
        """Return s' where SAME_STEP has put the first observation of an episode in its place."""
        if not over.any():
            return current
        if "final_obs" not in info:
            raise ValueError(
                f"The environment {guards.name_of(self.envs)} starts anew in the step that ends an "
                'episode, but does not tell where that ended; give it in info["final_obs"].'
            )
        observation, mask = current.observation.copy(), current.mask.copy()
        masks = self._masks(info.get("final_info", {}), terminated)
        for i in np.flatnonzero(over):
            observation[i] = self.encoder.encode(info["final_obs"][i])
            mask[i] = masks[i]
        last = info["final_obs"]
        return Observed(observation, mask, lambda i: last[i] if over[i] else current.given(i))

    def _masks(self, info: Mapping[str, Any], terminal: NDArray | None = None) -> NDArray:
        """Return all masks; ``_action_mask`` says which environments gave one in this step."""
        masks = np.ones((self.count, self.num_actions), bool)
        if "action_mask" not in info:
            return masks
        given = info.get("_action_mask", np.ones(self.count, bool))
        for i in np.flatnonzero(given):
            end = terminal is not None and bool(terminal[i])
            masks[i] = _mask({"action_mask": info["action_mask"][i]}, self.num_actions, end)
        return masks


def _mask(info: Mapping[str, Any], count: int, terminal: bool = False) -> NDArray:
    mask = action_mask(info, count, terminal=terminal)
    return np.ones(count, bool) if mask is None else mask


def _choose_rows(which: NDArray, chosen: Observed, other: Observed) -> Observed:
    """Return the rows ``which`` of the one, and the remaining rows of the other."""
    observation, mask = other.observation.copy(), other.mask.copy()
    observation[which], mask[which] = chosen.observation[which], chosen.mask[which]
    return Observed(observation, mask, lambda i: chosen.given(i) if which[i] else other.given(i))
