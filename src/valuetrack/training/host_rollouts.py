"""The same as :mod:`~valuetrack.training.rollouts`, in Python: each lane is a seed's environment.

A vector environment cannot be told to draw other numbers from some step on, so that there no state
is visited twice; nor is it where an environment does not come back to the same state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from valuetrack.envs.gym.vectorised import VectorisedEnvs
from valuetrack.training.evaluation import Choose
from valuetrack.training.rollouts import Rollout
from valuetrack.types import Bools, NDArray


@dataclass
class HostEpisode:
    """An episode with all rewards and actions, and few observations.

    Each of several sequences gives every step a random number. The step with the smallest among the
    first c is a uniform draw from these, whatever c will be. Only a step that is the smallest so
    far can become that, and just these are remembered: about log(length) of them.
    """

    seed: int
    smallest: NDArray
    """The smallest random number so far, one per sequence."""
    records: list[list[tuple[int, NDArray, int, float]]]
    """For each sequence: the steps, with what was seen, done and expected."""
    rewards: list[float] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    terminated: bool = False

    def note(self, drawn: NDArray, observation: NDArray, action: int, value: float) -> None:
        """Remember a step where a random number is the smallest so far."""
        for sequence in np.flatnonzero(drawn < self.smallest):
            self.records[sequence].append((len(self.rewards), observation.copy(), action, value))
        self.smallest = np.minimum(self.smallest, drawn)

    def seen_from(self, sequence: int, before: int, discount: float) -> Rollout:
        """Return the episode from a uniform draw from its first ``before`` steps."""
        record = [one for one in self.records[sequence] if one[0] < before][-1]
        returns = discounted(self.rewards[record[0] :], discount)
        return Rollout(len(self.rewards), self.terminated, *record, returns)


def discounted(rewards: Sequence[float], discount: float) -> float:
    """Return the discounted sum of rewards."""
    return float(np.asarray(rewards, np.float64) @ discount ** np.arange(len(rewards)))


def play_on_host(
    choose: Choose,
    lanes: VectorisedEnvs,
    seeds: Sequence[int],
    sequences: int,
    generator: np.random.Generator,
    *,
    limit: int,
) -> list[HostEpisode]:
    """Play one episode in every lane; ``sequences`` steps can be drawn from each."""
    episodes = [
        HostEpisode(int(seed), np.ones(sequences), [[] for _ in range(sequences)]) for seed in seeds
    ]
    over = np.zeros(lanes.count, bool)
    places, length = lanes.reset(seeds), 0
    while not over.all() and length < limit:
        action, value = choose(places)
        drawn = generator.random((lanes.count, sequences))
        arrived = lanes.step(action)
        for lane in np.flatnonzero(~over).tolist():
            one = episodes[lane]
            one.note(drawn[lane], places.observation[lane], int(action[lane]), float(value[lane]))
            one.rewards.append(float(arrived.reward[lane]))
            one.actions.append(int(action[lane]))
            one.terminated = bool(arrived.terminated[lane])
        over |= arrived.terminated | arrived.truncated
        places, length = arrived.current, length + 1
    return episodes


def visit_again(
    choose: Choose,
    lanes: VectorisedEnvs,
    episodes: Sequence[HostEpisode],
    first: Sequence[Rollout],
    branches: Sequence[int],
    *,
    limit: int,
    discount: float,
) -> tuple[list[Rollout], Bools]:
    """Come to a step of each lane's episode again, and go on from there with other numbers.

    Returns the second rollouts, and in which lanes they are from the same state as the first.
    """
    same, ended, over = np.zeros((3, lanes.count), bool)
    steps = np.array([one.step for one in first])
    rewards: list[list[float]] = [[] for _ in episodes]
    places, length = lanes.reset([one.seed for one in episodes]), 0
    while not over.all() and length < limit:
        for lane in np.flatnonzero(~over & (steps == length)).tolist():
            is_there = np.array_equal(places.observation[lane], first[lane].observation)
            same[lane] = is_there and lanes.draw_anew(lane, branches[lane])
            over[lane] = not same[lane]
        action = np.array(choose(places)[0])
        for lane in np.flatnonzero(~over & (length < steps)).tolist():
            action[lane] = episodes[lane].actions[length]
        arrived = lanes.step(action)
        for lane in np.flatnonzero(~over).tolist():
            rewards[lane].append(float(arrived.reward[lane]))
        ended |= arrived.terminated & ~over
        over |= arrived.terminated | arrived.truncated
        places, length = arrived.current, length + 1
    again = [
        one._replace(
            length=len(paid),
            terminated=bool(end),
            returns=discounted(paid[one.step :], discount),
        )
        for one, paid, end in zip(first, rewards, ended, strict=True)
    ]
    return again, same
