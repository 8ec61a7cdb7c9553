"""SB3's replay buffer as a memory to solve values from."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
from stable_baselines3.common.buffers import ReplayBuffer

from valuetrack.api.solving import OTHERWISE
from valuetrack.learner import Learner
from valuetrack.posterior import Pool
from valuetrack.replay import host_transitions
from valuetrack.training.update import Learned
from valuetrack.types import NDArray, Transition
from valuetrack.values import turnover

if TYPE_CHECKING:
    from valuetrack.sb3.base import SamplingAlgorithm


class ModelSource:
    """What a model has learned, and the transitions in its replay buffer.

    They are single steps, whatever ``n_steps`` is, as the buffer stores them.
    """

    def __init__(self, model: SamplingAlgorithm) -> None:
        self.model = model

    @property
    def learner(self) -> Learner:
        """The learner."""
        return self.model.learner.functions.learner

    @property
    def moment(self) -> Hashable:
        """What differs whenever the buffer, or what was learned, does."""
        model, buffer = self.model, self.model.replay_buffer
        filled = None if buffer is None else (id(buffer), buffer.pos, buffer.full)
        return model.num_timesteps, model.learner.updates, filled

    @property
    def epsilon(self) -> float:
        """How often it explores now."""
        return float(self.model.exploration_rate)

    def member(self, index: int) -> Learned:
        """Return what the model has learned; there is one seed."""
        return self.model.learner.state.learned

    def memory(self, index: int) -> Transition:
        """Return all transitions in the buffer, or refuse."""
        if not self.model.learner.updates:
            raise ValueError(
                "Values are solved from the replay buffer of a model that has made updates; call "
                f"learn first, {OTHERWISE}"
            )
        buffer = self.model.replay_buffer
        if not isinstance(buffer, ReplayBuffer) or not buffer.size():
            raise ValueError(
                "The replay buffer is empty, and values are solved from it: load it with "
                f"model.load_replay_buffer, let the model learn on, {OTHERWISE}"
            )
        return _transitions(self.model, buffer)

    def seen(self, index: int, pool: Pool) -> float:
        """Return how much the mean of a pool has seen, in buffers."""
        model, buffer = self.model, self.model.replay_buffer
        if not isinstance(buffer, ReplayBuffer) or getattr(buffer, "n_steps", 1) > 1:
            return 1.0  # of n steps, the mean solves another equation than the buffer's single ones
        steps_per_update = model.num_timesteps / max(model.learner.updates, 1)
        window = int(pool.filled) * model.learner.functions.thinning * steps_per_update
        size = buffer.size() * buffer.n_envs
        return turnover.seen(window, size, model.num_timesteps if buffer.full else size)


def _transitions(model: SamplingAlgorithm, buffer: ReplayBuffer) -> Transition:
    """Return all transitions of all environments, (n, ...)."""
    rows, normaliser = np.arange(buffer.size()), model.get_vec_normalize_env()
    if buffer.optimize_memory_usage:
        if buffer.full:  # the oldest transition has lost its first observation
            rows = np.delete(rows, buffer.pos)
        following, next_rows = buffer.observations, (rows + 1) % buffer.buffer_size
    else:
        following, next_rows = buffer.next_observations, rows

    def encoded(stored: Any, of: NDArray) -> NDArray:
        def flat(array: NDArray) -> NDArray:
            return array[of].reshape(-1, *array.shape[2:])

        parts = (
            {k: flat(v) for k, v in stored.items()} if isinstance(stored, dict) else flat(stored)
        )
        normal = buffer._normalize_obs(parts, normaliser)
        if isinstance(normal, dict):
            return model.policy.encode({k: buffer.to_torch(v) for k, v in normal.items()})
        return model.policy.encode(buffer.to_torch(normal))

    action = buffer.actions[rows].reshape(-1).astype(np.int32) - model.policy.first_action
    ended = (buffer.dones[rows] * (1 - buffer.timeouts[rows])).reshape(-1)
    return host_transitions(
        observation=encoded(buffer.observations, rows),
        action=action,
        reward=buffer._normalize_reward(buffer.rewards[rows].reshape(-1), normaliser),
        discount=np.asarray(model.gamma * (1 - ended), np.float32),
        next_observation=encoded(following, next_rows),
        next_action=action,  # SB3 does not keep it, and Q-learning does not use it
        next_mask=np.ones((len(action), model.policy.task.actions), bool),
    )
