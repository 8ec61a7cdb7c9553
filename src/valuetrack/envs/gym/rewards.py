"""Any Gymnasium environment with its rewards in other units: ``valuetrack/ChangedRewards-v0``."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.wrappers import TransformReward

from valuetrack.envs.gym.make import make_by_id

CHANGED_REWARDS_ID = "valuetrack/ChangedRewards-v0"


def make(
    *, of: str, scale: float = 1.0, shift: float = 0.0, **options: Any
) -> gymnasium.Env[Any, Any]:
    """Make an environment in which each reward r is ``scale * r + shift``.

    A scale above zero leaves the task as it is. A shift changes it wherever episodes may end at
    different times: with a large one it pays to go on for ever, or to end at once.

    Parameters
    ----------
    of, options
        The id of the environment, and what ``gymnasium.make`` takes besides.
    scale, shift
        What becomes of its rewards.

    Examples
    --------
    >>> import gymnasium, valuetrack.envs
    >>> made = gymnasium.make(CHANGED_REWARDS_ID, of="CartPole-v1", scale=1000.0)
    >>> _ = made.reset(seed=0)
    >>> made.step(0)[1]
    1000.0
    """

    def changed(reward: Any) -> float:
        return scale * float(reward) + shift

    return TransformReward(make_by_id(of, options), changed)
