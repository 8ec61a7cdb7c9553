"""The contract of environments written in JAX: pure functions whose randomness is handed in.

An environment draws nothing itself. It says how many uniforms a reset and a step consume and
receives them as arrays, so that a trainer can draw the randomness of a whole block of steps in one
large call: splitting keys inside a scan costs more than a small environment's dynamics.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar

from valuetrack.types import Array

State = TypeVar("State")


class Step(NamedTuple, Generic[State]):
    """What one step leaves behind.

    Attributes
    ----------
    state : State
        The state s' after the step; the final one when the episode is over, never a fresh start.
    observation : Array
        The observation of s', shape ``observation_shape``.
    reward : Array
        The reward r, a float32 scalar.
    terminated : Array
        Whether s' is terminal, so that its value is zero; a boolean scalar.
    truncated : Array
        Whether the episode is cut here although s' still has a value, so that a learner bootstraps
        through it; a boolean scalar, never true together with ``terminated``.
    """

    state: State
    observation: Array
    reward: Array
    terminated: Array
    truncated: Array


class Environment(Protocol[State]):
    """An environment as a set of pure functions that work under ``jit``, ``vmap`` and ``scan``.

    Implementations are immutable and hashable, so that an environment can be closed over or passed
    as a static argument. All methods are written for one environment; the caller maps them over
    many. A state is a pytree of arrays.
    """

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of one observation."""
        ...

    @property
    def num_actions(self) -> int:
        """Number of actions; they are the integers 0, ..., ``num_actions`` - 1."""
        ...

    @property
    def reset_uniforms(self) -> int:
        """How many uniforms in [0, 1) a reset consumes; may be zero."""
        ...

    @property
    def step_uniforms(self) -> int:
        """How many uniforms in [0, 1) a step consumes; may be zero."""
        ...

    def reset(self, uniforms: Array) -> State:
        """Start an episode.

        Parameters
        ----------
        uniforms : Array
            Independent draws from [0, 1), shape (``reset_uniforms``,).
        """
        ...

    def step(self, state: State, action: Array, uniforms: Array) -> Step[State]:
        """Take one step, without starting a new episode when this one ends.

        Parameters
        ----------
        state : State
            The state s.
        action : Array
            The action a, an integer scalar; it is not checked, for it may be traced.
        uniforms : Array
            Independent draws from [0, 1), shape (``step_uniforms``,).
        """
        ...

    def observe(self, state: State) -> Array:
        """Return the observation of a state, shape ``observation_shape``."""
        ...

    def action_mask(self, state: State) -> Array:
        """Return which actions are legal in a state: booleans of shape (``num_actions``,).

        The mask of a terminal state may be empty (all false).
        """
        ...
