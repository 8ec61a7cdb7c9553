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

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from valuetrack.envs.gym import guards
from valuetrack.envs.gym.actions import Actions
from valuetrack.envs.gym.spaces import action_mask, bounds, encoder, factors
from valuetrack.types import Bools, Floats, NDArray

Info = Mapping[str, Any]
Seen = tuple[object, Info]
"""An observation as an environment returns it, and its info."""


class Observed(NamedTuple):
    """Encoded observations and masks of legal actions, one row per environment."""

    observation: NDArray
    mask: Bools
    given: Callable[[int], object]
    """(index) -> the observation as the environment returned it, for policies written for these."""


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
    reward: Floats
    terminated: Bools
    truncated: Bools
    current: Observed
    is_transition: Bools


class VectorisedEnvs(abc.ABC):
    """Environments that are stepped together.

    Attributes
    ----------
    count
        How many there are.
    observation_space, action_space
        Gymnasium's spaces of a single one.
    encoder, bounds, factors
        How their observations become arrays, the lowest and highest of these, (2, *shape), and what
        brings one-hot vectors to the scale of other numbers.
    num_actions
        How many actions each has; ours are 0, ..., ``num_actions`` - 1.
    actions
        How ours become theirs.
    """

    def __init__(self, env: guards.GymEnv, count: int, prefix: str = "") -> None:
        self.count = count
        self.observation_space = space = guards.get_space(env, f"{prefix}observation_space")
        self.encoder, self.bounds, self.factors = encoder(space), bounds(space), factors(space)
        self.action_space = choices = guards.get_space(env, f"{prefix}action_space")
        self.actions = Actions.of(choices)
        self.num_actions = self.actions.count
        self._steps = 0
        """How many steps each has taken, for messages."""
        self._nowhere = np.zeros(count, bool)
        self._everywhere = np.ones(count, bool)
        self._all_legal = np.ones((count, self.num_actions), bool)
        for shared in (self._nowhere, self._everywhere, self._all_legal):
            shared.flags.writeable = False

    @abc.abstractmethod
    def reset(self, seeds: Sequence[int]) -> Observed:
        """Start an episode in every environment, each with its own seed."""

    @abc.abstractmethod
    def step(self, actions: NDArray) -> StepResult:
        """Take an action in every environment; where an episode ends, start the next."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the environments."""

    def draw_anew(self, index: int, seed: int) -> bool:
        """Let one of them draw other numbers from now on; return whether that can be done."""
        del index, seed
        return False

    def _misfit(self, env: guards.GymEnv, error: ValueError) -> ValueError:
        """Return the error about what an environment returned, with its name and the step."""
        where = f"step {self._steps:,}" if self._steps else "reset"
        text = str(error)
        text = text[0].lower() + text[1:] if text.startswith("The ") else text
        return ValueError(f"What {guards.name_of(env)} returned in {where} is wrong: {text}")

    def _masks(self, infos: Sequence[tuple[int, Info]], terminal: Bools) -> Bools:
        """Return all masks, given the infos that hold one; elsewhere every action is legal."""
        if not infos:
            return self._all_legal
        masks = self._all_legal.copy()
        for i, info in infos:
            flat = {"action_mask": self.actions.flat_mask(info["action_mask"])}
            legal = action_mask(flat, self.num_actions, terminal=bool(terminal[i]))
            masks[i] = True if legal is None else legal
        return masks


class SequentialEnvs(VectorisedEnvs):
    """Separate environments, stepped one after the other.

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
        super().__init__(self.envs[0], len(self.envs))

    def reset(self, seeds: Sequence[int]) -> Observed:
        """Start an episode in every environment, each with its own seed."""
        each = zip(self.envs, seeds, strict=True)
        seen = [guards.call(env, "reset", seed=int(seed)) for env, seed in each]
        return self._observed(seen, self._nowhere)

    def step(self, actions: NDArray) -> StepResult:
        """Take an action in every environment; where an episode ends, start the next."""
        after: list[Seen] = []
        now: list[Seen] = []
        any_over = False
        self._steps += 1
        reward = np.zeros(self.count, np.float32)
        terminated, truncated = np.zeros((2, self.count), bool)
        for i, (env, action) in enumerate(zip(self.envs, actions.tolist(), strict=True)):
            chosen = self.actions.given(action)
            observation, paid, ended, cut, info = guards.call(env, "step", chosen)
            reward[i] = guards.checked_reward(env, paid)
            ended, cut = guards.checked_flag(env, ended), guards.checked_flag(env, cut)
            after.append((observation, info))
            now.append(guards.call(env, "reset") if ended or cut else (observation, info))
            if ended or cut:
                any_over, terminated[i], truncated[i] = True, ended, cut and not ended
        following = self._observed(after, terminated)
        return StepResult(
            following,
            reward,
            terminated,
            truncated,
            self._observed(now, self._nowhere) if any_over else following,
            self._everywhere,
        )

    def draw_anew(self, index: int, seed: int) -> bool:
        """Replace the generator that Gymnasium gives an environment, ``np_random``."""
        try:
            self.envs[index].unwrapped.np_random = np.random.default_rng(seed)
        except AttributeError:  # of one that has its own ways
            return False
        return True

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()

    def _observed(self, seen: Sequence[Seen], terminal: Bools) -> Observed:
        observation = np.empty((self.count, *self.encoder.shape), self.encoder.dtype)
        infos, i = [], 0
        try:
            for i, (raw, info) in enumerate(seen):
                observation[i] = self.encoder.encode(raw)
                if "action_mask" in info:
                    infos.append((i, info))
            masks = self._masks(infos, terminal)
        except ValueError as error:
            raise self._misfit(self.envs[i], error) from error
        return Observed(observation, masks, lambda i: seen[i][0])


class WrappedVectorEnv(VectorisedEnvs):
    """A Gymnasium vector environment, in any of its autoreset modes.

    Examples
    --------
    >>> import gymnasium
    >>> envs = WrappedVectorEnv(gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync"))
    >>> envs.reset(seeds=[0, 1]).mask.tolist()
    [[True, True], [True, True]]
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self.envs = envs
        super().__init__(envs, envs.num_envs, "single_")
        self.mode = AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self._was_over = self._nowhere

    def reset(self, seeds: Sequence[int]) -> Observed:
        """Start an episode in every environment, each with its own seed."""
        each = [int(seed) for seed in seeds]
        try:
            seen = guards.call(self.envs, "reset", seed=each)
        except guards.EnvironmentFailedError as error:
            if not isinstance(error.__cause__, gymnasium.error.Error):
                raise
            # Some that are written as vectors take one seed for all.
            seen = guards.call(self.envs, "reset", seed=each[0])
        self._was_over = self._nowhere
        return self._observed(seen, self._nowhere)

    def step(self, actions: NDArray) -> StepResult:
        """Take an action in every environment; where an episode ends, start the next."""
        chosen = self.actions.given(np.asarray(actions))
        self._steps += 1
        observation, reward, ended, cut, info = guards.call(self.envs, "step", chosen)
        terminated, truncated = np.array(ended, bool), np.array(cut, bool)
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
        self, seen: Seen, terminated: Bools, truncated: Bools
    ) -> tuple[Observed, Observed]:
        """Return what is observed in s', and what is observed now."""
        over = terminated | truncated
        if self.mode is AutoresetMode.SAME_STEP:
            current = self._observed(seen, self._nowhere)
            return self._final(current, seen[1], over, terminated), current
        following = self._observed(seen, terminated)
        if self.mode is AutoresetMode.NEXT_STEP or not over.any():
            return following, following
        # The mask is a copy, for it is theirs to change; the others' rows hold nothing new.
        fresh = guards.call(self.envs, "reset", options={"reset_mask": over.copy()})
        return following, _choose_rows(over, self._observed(fresh, self._nowhere), following)

    def _final(self, current: Observed, info: Info, over: Bools, terminated: Bools) -> Observed:
        """Return s' where SAME_STEP has put the first observation of an episode in its place."""
        if not over.any():
            return current
        if "final_obs" not in info:
            raise ValueError(
                f"The environment {guards.name_of(self.envs)} starts anew in the step that ends an "
                'episode, but does not tell where that ended; give it in info["final_obs"].'
            )
        last, given = np.empty_like(current.observation), info["final_obs"]
        for i in np.flatnonzero(over):
            last[i] = self.encoder.encode(given[i])
        masks = self._masks(self._infos(info.get("final_info", {})), terminated)
        return _choose_rows(over, Observed(last, masks, lambda i: given[i]), current)

    def _observed(self, seen: Seen, terminal: Bools) -> Observed:
        observation, info = seen
        try:
            encoded = self.encoder.encode_batch(observation, self.count)
            masks = self._masks(self._infos(info), terminal)
        except ValueError as error:
            raise self._misfit(self.envs, error) from error
        return Observed(encoded, masks, lambda i: self.encoder.row(observation, i))

    def _infos(self, info: Info) -> Sequence[tuple[int, Info]]:
        """Return the infos that hold a mask; ``_action_mask`` says in which environments."""
        if "action_mask" not in info:
            return []
        given = np.flatnonzero(info.get("_action_mask", ~self._nowhere))
        return [(i, {"action_mask": info["action_mask"][i]}) for i in given.tolist()]


def _choose_rows(which: Bools, chosen: Observed, other: Observed) -> Observed:
    """Return the rows ``which`` of the one, and the remaining rows of the other."""
    observation, mask = other.observation.copy(), other.mask.copy()
    observation[which], mask[which] = chosen.observation[which], chosen.mask[which]
    return Observed(observation, mask, lambda i: (chosen if which[i] else other).given(i))
