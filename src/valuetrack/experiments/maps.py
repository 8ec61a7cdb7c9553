"""Maps of a grid's values while an agent learns: a few frames per unit, for whoever follows it.

``grid.json`` says what the grid is, and the exact values where they are known. ``maps.jsonl`` has
one line per frame, at most about :data:`MOST_FRAMES` of at most :data:`MOST_SEEDS` seeds: the mean
of the values, the width of their interval and the probability of every action.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack import posterior
from valuetrack.api.agent import AnyAgent
from valuetrack.api.learning import TRACKED_TRANSITIONS
from valuetrack.envs.indoor_escape import (
    ACTION_NAMES,
    IndoorEscape,
    QValues,
    TieRule,
    observations,
    optimal_q,
)
from valuetrack.learner import LearnerState
from valuetrack.training.evaluation import values_key
from valuetrack.types import Array, Bools, Floats, Json, NDArray, Params

MOST_FRAMES = 24
MOST_SEEDS = 10
SAMPLES = 100
"""From how many samples of an experiment's pool of values a frame is made."""
STEPS_PER_FRAME, LEAST_FRAMES = 6_000, 8
"""Trainings have a frame per this many steps of all seeds together, which keeps the time that
frames take to about a hundredth; but always a few."""
PARAMETER_SAMPLES = posterior.samples_needed(0.95)
"""From how many samples of the parameters a training's frame is made: each is a network to call."""
LEVEL = 0.95
"""Of the intervals whose widths are shown."""


def describe_grid(env: IndoorEscape, exact: QValues, seeds: tuple[int, ...]) -> Json:
    """Return what ``grid.json`` says; the truth is null where an action is not legal."""
    return {
        "width": env.width,
        "height": env.height,
        "walls": [list(cell) for cell in env.walls],
        "start": list(env.start),
        "goal": list(env.goal_position),
        "actions": list(ACTION_NAMES),
        "level": LEVEL,
        "seeds": list(seeds[:MOST_SEEDS]),
        "truth": rounded(exact.values, 5),
    }


def is_due(before: float, now: float, end: float, frames: int = MOST_FRAMES) -> bool:
    """Return whether a frame falls between two moments of a training that ends at ``end``."""
    return now * frames // end > before * frames // end


def frame_of(samples: NDArray, legal: Bools) -> Json:
    """Return a frame from samples of the values, (samples, seeds, states, actions)."""
    samples = samples[:, :MOST_SEEDS]
    pool = posterior.from_samples(samples)
    width = np.full(samples.shape[1:], np.nan)
    if len(samples) >= posterior.samples_needed(LEVEL):
        low, high = posterior.credible_interval(pool, LEVEL)
        width = high - low
    mask = np.broadcast_to(legal, samples.shape[1:])
    chosen = posterior.policy_probabilities(pool, mask)
    return {
        "mean": rounded(np.where(mask, posterior.mean(pool), np.nan), 4),
        "width": rounded(np.where(mask, width, np.nan), 3),
        "probability": rounded(np.where(mask, chosen, np.nan), 3),
    }


def rounded(values: Floats, digits: int) -> list[object]:
    """Return an array as lists of numbers with few digits; NaN and infinity are ``None``."""
    flat = [
        float(f"{x:.{digits}g}") if math.isfinite(x) else None for x in np.ravel(values).tolist()
    ]
    for size in reversed(np.shape(values)[1:]):
        flat = [flat[i : i + size] for i in range(0, len(flat), size)]  # type: ignore[misc]
    return list(flat)


class TrainingMaps:
    """The frames of a training on a grid.

    Parameters
    ----------
    agent
        Who trains.
    steps
        When the training ends.
    intervals_every
        After how many updates intervals for the value are solved as well, at the next frame.
    """

    def __init__(self, agent: AnyAgent, steps: int, intervals_every: int | None) -> None:
        env = agent.env.in_jax
        assert isinstance(env, IndoorEscape)
        self.agent, self.steps, self.every = agent, steps, intervals_every
        if intervals_every is not None and agent.trainer.settings.replay_capacity is None:
            raise ValueError(
                "On-policy training keeps no replay memory to solve intervals from; leave out "
                "--track-intervals-every."
            )
        # Q-learning learns the values of the greedy policy, SARSA those of the one that explores.
        is_greedy = agent.learner.following == "greedy"
        exact = exact_values(agent, env, 0.0 if is_greedy else agent.options.exploration_final)
        self.grid, self.legal = describe_grid(env, exact, agent.seeds), exact.legal
        self.observations, _ = agent.env.encode(observations(env))
        self._seen = jnp.asarray(self.observations)
        self.members = min(len(agent.seeds), MOST_SEEDS)
        wanted = steps * len(agent.seeds) // (STEPS_PER_FRAME * self.members)
        self.count = max(LEAST_FRAMES, min(MOST_FRAMES, wanted))
        self._ask = jax.jit(self._values)
        self._before, self._solved = agent.num_timesteps, agent.trainer.clock.updates

    def frame(self) -> Json | None:
        """Return a frame if one is due."""
        now = self.agent.num_timesteps
        if not is_due(self._before, now, self.steps, self.count):
            return None
        self._before, updates = now, self.agent.trainer.clock.updates
        found = {"steps": now, "updates": updates, **frame_of(self._samples(), self.legal)}
        if self.every is not None and updates - self._solved >= self.every:
            self._solved = updates
            found |= self._solve()
        return found

    def _samples(self) -> NDArray:
        """Return some samples of the values, (samples, seeds, states, actions)."""
        trainer = self.agent.trainer
        each, count = [], 1
        for member in range(self.members):  # which all have as many
            state, samples, count = trainer.some_samples(member, PARAMETER_SAMPLES)
            each.append(np.asarray(self._ask(state, samples))[:count])
        values = np.stack(each, axis=2)  # (samples, heads, seeds, states, actions)
        return values.reshape(-1, *values.shape[2:])  # heads count as samples

    def _values(self, state: LearnerState, samples: Params) -> Array:
        """Return the values of some samples of a seed, (samples, heads, states, actions)."""

        def of_one(params: Params) -> Array:
            one = state._replace(sampler=state.sampler._replace(params=params))
            return self.agent.learner.values(values_key(), one, self._seen)

        values: Array = jax.lax.map(of_one, samples)
        return values

    def _solve(self) -> Json:
        """Return the values solved from the replay memory, and the width of their intervals."""
        found = [
            self.agent.solve_values(self.observations, member, TRACKED_TRANSITIONS)
            for member in range(self.members)
        ]
        mean = np.stack([values.mean for values in found])
        width = np.stack([np.subtract(*values.interval(LEVEL)[::-1]) for values in found])
        return {
            "solved": rounded(np.where(self.legal, mean, np.nan), 4),
            "solved_width": rounded(np.where(self.legal, width, np.nan), 3),
        }


def exact_values(
    agent: AnyAgent, env: IndoorEscape, epsilon: float, ties: TieRule = "uniform"
) -> QValues:
    """Return the exact values of the policy that an agent should learn."""
    return optimal_q(env, epsilon=epsilon, discount=agent.options.discount, ties=ties)
