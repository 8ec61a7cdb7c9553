"""Episodes of every seed of an agent, seen from random states; see ``training/rollouts.py``."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from valuetrack import rng
from valuetrack.api.queries import EPISODE_LIMIT
from valuetrack.training.host_rollouts import HostEpisode, play_on_host, visit_again
from valuetrack.training.rollouts import Rollout, usable_steps
from valuetrack.types import Array, Bools, NDArray

if TYPE_CHECKING:
    from valuetrack.api.playing import Player

STATES = 8
"""From how many states an episode is seen."""
AGAIN, AGAIN_ON_HOST = 63, 3
"""How often one of these states is left once more: in Python, where it takes longer, less often."""
STREAM = 1_000_003
"""Keeps the random numbers of these episodes apart from all others with the same seed."""


class Witnesses(NamedTuple):
    """The episodes of one seed of an agent.

    Attributes
    ----------
    first
        Seen from random steps, (episodes, states, ...).
    again
        Independent continuations from the first of these steps, (episodes, continuations, ...).
    same
        Whether these are all from the same state, (episodes,).
    """

    first: Rollout
    again: Rollout
    same: Bools


class CutOff(NamedTuple):
    """Episodes that do not show their returns, since some were cut off too early."""

    episodes: int
    """How many were."""
    shortest: int
    """After how many steps the first of these was."""


def witnesses(
    player: Player, episodes: int, seed: int, stream: int, *, once: bool = False
) -> list[Witnesses | CutOff]:
    """Play episodes with every seed; another ``stream`` of the same seed plays others.

    With ``once``, no state is left again.
    """
    if player.env.in_jax is None:
        return _on_host(player, episodes, seed, stream, 0 if once else AGAIN_ON_HOST)
    states = [player.actor.member(member) for member in range(len(player.seeds))]
    run = player.actor.queries.rollout
    found: list[Witnesses | CutOff] = []
    for member, state in enumerate(states):
        keys, branches = _keys(seed, stream, member, episodes)
        length, terminated, *_ = run(state, keys, keys, np.zeros(episodes), player._discount)
        usable = usable_steps(length, terminated, player._discount)
        if not usable:
            found.append(_cut_off(length, terminated))
            continue
        random = _generator(seed, stream, member).random((STATES, episodes))
        at = (random * np.minimum(length, usable)).astype(int)
        seen = [run(state, keys, keys, steps, player._discount) for steps in at]
        others = branches[:0] if once else branches
        again = [run(state, keys, other, at[0], player._discount) for other in others]
        same = np.ones(episodes, bool)
        first = _stacked(seen, axis=1)
        found.append(Witnesses(first, _stacked(again, axis=1) if again else _none(first), same))
    return found


def _on_host(
    player: Player, episodes: int, seed: int, stream: int, again: int
) -> list[Witnesses | CutOff]:
    lanes = player.env.for_evaluation(len(player.seeds))
    choose, limit = player._choice(player.actor.states, seed, player.env), EPISODE_LIMIT
    generator = _generator(seed, stream, 0)
    starts = generator.integers(2**31, size=(episodes, lanes.count)).tolist()
    rounds = [
        play_on_host(choose, lanes, seeds, STATES, generator, limit=limit) for seeds in starts
    ]
    lengths = np.array([[len(one.rewards) for one in each] for each in rounds]).T
    ended = np.array([[one.terminated for one in each] for each in rounds]).T
    pairs = list(zip(lengths, ended, strict=True))
    usable = [usable_steps(length, terminated, player._discount) for length, terminated in pairs]
    found: list[Witnesses | CutOff] = [_cut_off(*pair) for pair in pairs]
    if any(usable):
        seen = _seen_on_host(player, rounds, usable, generator, again)
        found = [
            one if most else other for one, most, other in zip(seen, usable, found, strict=True)
        ]
    return found


def _seen_on_host(
    player: Player,
    rounds: list[list[HostEpisode]],
    usable: list[int],
    generator: np.random.Generator,
    visits: int,
) -> list[Witnesses]:
    """See the episodes of all lanes from usable steps.

    A seed without any plays along, from its first step.
    """
    lanes, discount = player.env.for_evaluation(len(player.seeds)), player._discount
    drawn = int(generator.integers(2**31))
    choose = player._choice(player.actor.states, drawn, player.env)
    first, again, same = [], [], []
    for episodes in rounds:
        each = [(episode, max(1, most)) for episode, most in zip(episodes, usable, strict=True)]
        seen = [[e.seen_from(k, most, discount) for e, most in each] for k in range(STATES)]
        first.append(_stacked([_stacked(of_lane) for of_lane in zip(*seen, strict=True)]))
        second, is_same = _none(first[-1]), np.ones(lanes.count, bool)
        for branches in generator.integers(2**31, size=(visits, lanes.count)).tolist():
            rollouts, met = visit_again(
                choose, lanes, episodes, seen[0], branches, limit=EPISODE_LIMIT, discount=discount
            )
            second, is_same = _added(second, _stacked(rollouts)), is_same & met
        again.append(second)
        same.append(is_same)
    of_lanes = _stacked(first, axis=1), _stacked(again, axis=1), np.stack(same, axis=1)
    return [Witnesses(*jax.tree.map(operator.itemgetter(i), of_lanes)) for i in range(lanes.count)]


def _cut_off(length: NDArray, terminated: Bools) -> CutOff:
    cut = length[~terminated]
    return CutOff(len(cut), int(cut.min(initial=EPISODE_LIMIT)))


def _stacked(rows: list[Rollout] | tuple[Rollout, ...], axis: int = 0) -> Rollout:
    return Rollout(*(np.stack(part, axis=axis) for part in zip(*rows, strict=True)))


def _none(rows: Rollout) -> Rollout:
    """Return the rows without any continuation."""
    return Rollout(*(part[:, :0] for part in rows))


def _added(rows: Rollout, one: Rollout) -> Rollout:
    """Return the rows with one more continuation."""
    pairs = zip(rows, one, strict=True)
    return Rollout(*(np.concatenate([part, new[:, None]], axis=1) for part, new in pairs))


def _keys(seed: int, stream: int, member: int, episodes: int) -> tuple[Array, Array]:
    """Return keys for episodes, and for going on in other ways."""
    key = rng.key(seed)
    for part in (STREAM, stream, member):
        key = jax.random.fold_in(key, part)
    keys = jax.random.split(key, (1 + AGAIN, episodes))
    return keys[0], keys[1:]


def _generator(seed: int, stream: int, member: int) -> np.random.Generator:
    sequence = np.random.SeedSequence(seed, spawn_key=(STREAM, stream, member))
    return np.random.default_rng(sequence)
