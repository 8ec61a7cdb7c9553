"""Tasks with finitely many places, given as a table: what exact values are computed from.

A subclass says in one table where each action leads, with which chance and for which reward. Steps,
Gymnasium's ``P`` and :class:`~valuetrack.envs.gym.tabular.TransitionTable` all follow from it::

    q = optimal_values(env.table, discount=0.99)  # Q*, (places, actions)
    q = table_values(env.table, policy, discount=0.99)  # those of a policy
    q = values_to_go(env.table, steps=20)  # with 1, ..., 20 steps left, without a discount
"""

from __future__ import annotations

import abc
import operator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, SupportsIndex, TypeVar

import jax.numpy as jnp
import numpy as np

from valuetrack.envs.base import Shape, Step
from valuetrack.envs.gym.tabular import Entries, TransitionTable, tabulated, values_to_go
from valuetrack.types import AnyArray, Array, Bools, DType, Floats, NDArray

Placed = TypeVar("Placed", bound="PlacedState")


class PlaceState(NamedTuple):
    """Where the agent is (``place``, a number) and how many ``steps`` it has taken; both int32."""

    place: Array
    steps: Array


class PlacedState(Protocol):
    """A NamedTuple of scalars, among them those of :class:`PlaceState`."""

    @property
    def place(self) -> Array:
        """The number of the place, int32."""

    @property
    def steps(self) -> Array:
        """The steps taken so far, int32."""


class Outcomes(NamedTuple):
    """What may come of each action in each place.

    Attributes
    ----------
    chance
        The probabilities of the outcomes, (places, actions, outcomes); they sum to one.
    following
        The places to which they lead, of the same shape.
    reward
        What they pay, of the same shape; the mean of it, if it is noisy.
    starts
        The probability that an episode begins there, (places,).
    ends
        Which places are terminal, (places,). They lead to themselves and pay nothing.
    """

    chance: Floats
    following: NDArray
    reward: Floats
    starts: Floats
    ends: Bools


@dataclass(frozen=True)
class FiniteTask(abc.ABC, Generic[Placed]):
    """A task whose transitions are a table; implements `valuetrack.envs.base.Environment`.

    All actions are legal. Observations are bits, of which the replay memory keeps one byte each: a
    one-hot vector of the places, unless a subclass says otherwise.
    """

    observation_dtype: ClassVar[DType] = np.dtype(bool)
    observation_bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    @property
    @abc.abstractmethod
    def observation_shape(self) -> Shape:
        """How many bits an observation has, in a tuple."""

    @property
    @abc.abstractmethod
    def steps_at_most(self) -> int | None:
        """After how many steps an episode is over at the latest; ``None`` for no limit."""

    @abc.abstractmethod
    def make_outcomes(self) -> Outcomes:
        """Make the table."""

    @abc.abstractmethod
    def begin(self, place: Array) -> Placed:
        """Return the state in which an episode begins."""

    @property
    def one_hot(self) -> bool:
        """Whether observations are one-hot vectors, which learners bring to the mean square 1."""
        return True

    @property
    def limit_terminates(self) -> bool:
        """Whether an episode that is out of time terminates; it is truncated otherwise."""
        return False

    @cached_property
    def outcomes(self) -> Outcomes:
        """The table."""
        return self.make_outcomes()

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return int(self.outcomes.chance.shape[1])

    @property
    def reset_uniforms(self) -> int:
        """One uniform if an episode may begin in several places."""
        return int((self.outcomes.starts > 0).sum() > 1)

    @property
    def step_uniforms(self) -> int:
        """One uniform if an action may have several outcomes."""
        return int(self.outcomes.chance.shape[2] > 1)

    def reset(self, uniforms: Array) -> Placed:
        """Start an episode."""
        starts = np.cumsum(self.outcomes.starts).astype(np.float32)
        if self.reset_uniforms == 0:
            return self.begin(jnp.int32(np.argmax(self.outcomes.starts)))
        return self.begin(jnp.sum(uniforms[0] >= jnp.asarray(starts[:-1]), dtype=jnp.int32))

    def step(self, state: Placed, action: Array, uniforms: Array) -> Step[Placed]:
        """Take one step; the first of the ``uniforms`` decides which outcome comes."""
        before: Any = state  # a NamedTuple, which protocols cannot say
        table, at = self.outcomes, (state.place, action)
        which: int | Array = 0
        if table.chance.shape[2] > 1:
            borders = np.cumsum(table.chance, axis=2)[..., :-1].astype(np.float32)
            which = jnp.sum(uniforms[0] >= jnp.asarray(borders)[at], dtype=jnp.int32)
        place = jnp.asarray(table.following, jnp.int32)[*at, which]
        reward = jnp.asarray(table.reward, jnp.float32)[*at, which]
        after = before._replace(place=place, steps=state.steps + jnp.int32(1))
        ended, out = jnp.asarray(table.ends)[place], self._is_out_of_time(after)
        if self.limit_terminates:
            ended, out = ended | out, jnp.zeros_like(out)
        return Step(after, self.observe(after), reward, ended, out & ~ended)

    def observe(self, state: Placed) -> Array:
        """Return the bits of the state's place."""
        return jnp.asarray(self.encode(state.place))

    def action_mask(self, state: Placed) -> Array:
        """Return that all actions are always legal."""
        del state
        return jnp.ones(self.num_actions, bool)

    def encode(self, places: AnyArray) -> AnyArray:
        """Return what is observed in some places, (..., bits); nothing is set where there is none.

        Examples
        --------
        >>> from valuetrack.envs import RiverSwim
        >>> RiverSwim(size=4).encode(np.array([2])).astype(int)
        array([[0, 0, 1, 0]])
        """
        bits: AnyArray = np.arange(*self.observation_shape) == places[..., None]
        return bits

    def observations(self) -> Bools:
        """Return what is observed in each place, (places, bits)."""
        return np.asarray(self.encode(np.arange(len(self.outcomes.ends))), bool)

    @property
    def P(self) -> Entries:  # noqa: N802
        """The table as Gymnasium's toy texts tell it: place -> action -> what may come of it.

        That is a list of (probability, next place, reward, whether it terminates). An
        ``AttributeError`` if the time limit terminates, for then values depend on the steps left.
        """
        if self.limit_terminates:
            raise AttributeError("A time limit that terminates makes values depend on the time.")
        table, ends = self.outcomes, self.outcomes.ends.tolist()
        parts = (table.chance.tolist(), table.following.tolist(), table.reward.tolist())
        return {
            place: {
                action: [(p, at, r, ends[at]) for p, at, r in zip(*row, strict=True) if p > 0]
                for action, row in enumerate(zip(*rows, strict=True))
            }
            for place, rows in enumerate(zip(*parts, strict=True))
        }

    @property
    def initial_state_distrib(self) -> Floats:
        """The probability that an episode begins in each place, by Gymnasium's name for it."""
        return self.outcomes.starts

    @cached_property
    def table(self) -> TransitionTable:
        """The table as functions of :mod:`valuetrack.envs.gym.tabular` take it.

        Where an episode is truncated, the values of its places go on: a time limit plays no part.
        """
        legal = np.ones(self.outcomes.chance.shape[:2], bool)
        return tabulated(self.P, self.outcomes.starts, self.observations(), legal)

    def optimal_return(self) -> float:
        """Return what an episode pays in the mean, without a discount, if every action is the best.

        By backward recursion over the steps that are left, which the best policy may count.

        Examples
        --------
        >>> from valuetrack.envs import DeepSea, NChain
        >>> round(DeepSea(size=20).optimal_return(), 6), NChain(size=50).optimal_return()
        (0.99, 10.0)
        """
        if self.steps_at_most is None:
            raise ValueError("Episodes without a time limit pay without end; give a horizon.")
        values = values_to_go(self._endless.table, self.steps_at_most)[-1].max(axis=1)
        begins = self.outcomes.starts > 0
        return float(self.outcomes.starts[begins] @ values[begins])

    @property
    def _endless(self) -> FiniteTask[Any]:
        """The same transitions without a limit that terminates."""
        return self

    def _is_out_of_time(self, after: Placed) -> Array:
        most = self.steps_at_most
        return jnp.asarray(False if most is None else after.steps >= most)


def whole_number(name: str, value: SupportsIndex, least: int) -> int:
    """Return an option as an integer, and refuse one below the least."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, but is {value!r}.") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, but is {number}.")
    return number
