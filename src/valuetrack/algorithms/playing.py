"""Greedy episodes, in whatever environment an agent is in."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from valuetrack import rng
from valuetrack.algorithms.views import EPISODE_LIMIT, Views
from valuetrack.training.evaluation import Episodes, evaluate_on_host

NDArray = npt.NDArray[Any]


def play(agent: Any, views: Views, episodes: int, seed: int) -> Episodes:
    """Play so many episodes with each seed's current parameters."""
    count, states = len(agent.seeds), agent.trainer.states
    discount = agent.options.discount
    if agent.place.in_jax is not None:
        keys = jax.random.split(jax.random.fold_in(rng.key(seed), 1), count)
        played = views.play(states, keys, episodes, discount)
        return Episodes(*(np.asarray(part, np.float64) for part in played))

    def choose(observation: NDArray, mask: NDArray) -> tuple[NDArray, NDArray]:
        chosen = views.choose_for_all(states, observation[:, None], mask[:, None])
        action, value = (np.asarray(part)[:, 0] for part in chosen)
        return action, value

    lanes = agent.place.evaluation_lanes(count)
    starts = np.random.SeedSequence([seed, 1]).generate_state(lanes.count) >> 1
    return evaluate_on_host(choose, lanes, starts, episodes, limit=EPISODE_LIMIT, discount=discount)
