"""The transitions of one cycle of the host trainer, on their way to the replay memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from valuetrack.envs.gym.vectorised import Observed, StepResult
from valuetrack.replay import HostRing, Layout, host_transitions
from valuetrack.types import NDArray


class _Rows(NamedTuple):
    """What a cycle collects, (steps, environments of all seeds, ...)."""

    observation: NDArray
    action: NDArray
    reward: NDArray
    terminated: NDArray
    next_observation: NDArray
    next_action: NDArray
    next_mask: NDArray
    is_transition: NDArray
    over: NDArray


class Collection:
    """What all seeds collect in a cycle.

    It goes into the replay memory once per cycle, which costs a fraction of what a write per step
    does.
    """

    def __init__(self, layout: Layout, seeds: int, steps: int, environments: int) -> None:
        flags = dict.fromkeys(("terminated", "is_transition", "over"), ((), bool))
        fields = {**layout.fields, **flags}
        lead = (steps, seeds * environments)
        self._rows = _Rows(
            *(np.zeros((*lead, *fields[name][0]), fields[name][1]) for name in _Rows._fields)
        )
        self._by_seed = (steps, seeds, environments)
        self._owner = np.repeat(np.arange(seeds), steps * environments)

    @property
    def gained(self) -> NDArray:
        """The rewards of a full cycle, summed up for each seed."""
        paid = self._rows.reward * self._rows.is_transition
        return np.asarray(paid.reshape(self._by_seed).sum(axis=(0, 2), dtype=np.float64))

    @property
    def seen(self) -> tuple[NDArray, NDArray]:
        """The observations of a full cycle and which of them count, (seeds, n, ...).

        They are copies: a program that is given them may still be running in the next cycle.
        """
        seeds = self._by_seed[1]
        parts = (self._flat(self._rows.observation), self._flat(self._rows.is_transition))
        observations, counts = (part.reshape(seeds, -1, *part.shape[1:]).copy() for part in parts)
        return observations, counts

    def add(
        self,
        step: int,
        observed: Observed,
        action: NDArray,
        arrived: StepResult,
        next_action: NDArray,
    ) -> None:
        """Take in one step of all environments, the one with this number in its cycle."""
        rows, following = self._rows, arrived.next
        rows.observation[step] = observed.observation
        rows.action[step] = action
        rows.reward[step] = arrived.reward
        rows.terminated[step] = arrived.terminated
        rows.next_observation[step] = following.observation
        rows.next_action[step] = next_action
        rows.next_mask[step] = following.mask
        rows.is_transition[step] = arrived.is_transition
        rows.over[step] = arrived.terminated | arrived.truncated

    def write(self, ring: HostRing, discount: float) -> None:
        """Write a full cycle into the replay memory, each seed's in the order of time."""
        flat = _Rows(*map(self._flat, self._rows))
        transitions = host_transitions(
            observation=flat.observation,
            action=flat.action,
            reward=flat.reward,
            discount=np.where(flat.terminated, np.float32(0), np.float32(discount)),
            next_observation=flat.next_observation,
            next_action=flat.next_action,
            next_mask=flat.next_mask,
        )
        if ring.links is not None:
            seeds, (steps, _, environments) = len(ring.written), self._by_seed
            shape = (seeds, steps, environments)
            parts = (flat.is_transition.reshape(shape), flat.over.reshape(shape))
            ring.links.write(ring.written, *parts)
        if flat.is_transition.all() and ring.append(transitions):
            return
        ring.write(np.flatnonzero(flat.is_transition), self._owner, transitions)

    def _flat(self, rows: NDArray) -> NDArray:
        """Return rows one after the other: a seed's side by side, in the order of time."""
        own = rows.shape[2:]
        return rows.reshape(*self._by_seed, *own).swapaxes(0, 1).reshape(-1, *own)
