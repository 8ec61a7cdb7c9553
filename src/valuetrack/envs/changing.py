"""Worlds that change: several environments in JAX, one after the other, in one training.

::

    world = ChangingWorld((IndoorEscape(), IndoorEscape(goal=(9, 0))), changes=(50_000,))

From step 50,000 on, counted over all episodes, the goal is in another corner. An episode that is
under way goes on in the new world. :meth:`ChangingWorld.at` returns the world of a step, whose
values are exact where it is a table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack.envs.base import JaxEnvironment, Shape, Step, bounds_in_jax
from valuetrack.envs.finite import whole_number
from valuetrack.envs.indoor_escape import ESCAPE_ID
from valuetrack.envs.registry import find, register
from valuetrack.types import Array, DType, Json, Tree

CHANGING_ID = "valuetrack/Changing-v0"
PIECES = 10
"""In how many equal steps a world drifts, unless told otherwise."""


class WorldState(NamedTuple):
    """The state of the present world (``inside``), and all steps so far (``clock``, int32)."""

    inside: Tree
    clock: Array


@dataclass(frozen=True)
class ChangingWorld:
    r"""Environments of one shape that follow each other; implements the protocol of all.

    The step with number t = 0, 1, ..., counted over all episodes, is made in world number
    :math:`\#\{k : c_k \le t\}`, where :math:`c_1 < c_2 < \ldots` are the ``changes``. What is
    observed after the last step in a world, and which actions are legal there, is told by the next
    one.

    Parameters
    ----------
    worlds : sequence of Environment
        With the same states, observations and actions.
    changes : sequence of int
        The steps with which all worlds but the first begin, rising; those of each environment,
        where several are side by side.

    Notes
    -----
    *Episodes.* A new episode goes on counting, see :meth:`restart`. If a world has a method
    ``carried(state)``, an episode that is under way goes on in that state: the indoor escape puts
    those back to the start who stand where no action is legal any more.

    *Evaluations* are played in the world as it is at that moment, which does not change meanwhile.

    Examples
    --------
    >>> from valuetrack.envs import CartPole
    >>> world = ChangingWorld((CartPole(), CartPole(pole_mass=1.0)), changes=(2,))
    >>> world.at(1).pole_mass, world.at(2).pole_mass
    (0.1, 1.0)
    >>> state = world.reset(jnp.full(world.reset_uniforms, 0.5))
    >>> int(world.step(state, jnp.int32(1), jnp.zeros(world.step_uniforms)).state.clock)
    1
    """

    worlds: tuple[JaxEnvironment, ...]
    changes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Bring both into one form, and refuse worlds that do not follow each other."""
        object.__setattr__(self, "worlds", tuple(self.worlds))
        steps = tuple(whole_number("each of changes", step, 1) for step in self.changes)
        object.__setattr__(self, "changes", steps)
        if len(self.worlds) != len(steps) + 1:
            raise ValueError(
                f"There is one world more than there are changes; {len(self.worlds)} and "
                f"{len(steps)} do not fit."
            )
        if any(later <= earlier for earlier, later in itertools.pairwise(steps)):
            raise ValueError(f"changes must rise, but are {steps}.")
        if len({_form(world) for world in self.worlds}) > 1:
            raise ValueError("All worlds must have the same observations, actions and states.")

    @property
    def observation_shape(self) -> Shape:
        """Shape of one observation."""
        return self.worlds[0].observation_shape

    @property
    def observation_dtype(self) -> DType:
        """Dtype of one observation."""
        return self.worlds[0].observation_dtype

    @property
    def observation_bounds(self) -> tuple[Any, Any]:
        """The lowest and the highest observation of all worlds."""
        low, high = np.stack([bounds_in_jax(world) for world in self.worlds], axis=1)
        return low.min(axis=0), high.max(axis=0)

    @property
    def one_hot(self) -> bool:
        """Whether observations are one-hot vectors."""
        return all(getattr(world, "one_hot", False) for world in self.worlds)

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return self.worlds[0].num_actions

    @property
    def reset_uniforms(self) -> int:
        """As many as the world that consumes the most."""
        return max(world.reset_uniforms for world in self.worlds)

    @property
    def step_uniforms(self) -> int:
        """As many as the world that consumes the most."""
        return max(world.step_uniforms for world in self.worlds)

    def at(self, clock: int) -> JaxEnvironment:
        """Return the world in which the step with this number is made."""
        return self.worlds[int(np.searchsorted(self.changes, clock, side="right"))]

    def present(self, states: WorldState) -> JaxEnvironment:
        """Return the world of some states, all of which have made as many steps."""
        return self.at(int(np.asarray(states.clock).flat[0]))

    def reset(self, uniforms: Array) -> WorldState:
        """Start the first episode."""
        return self._begin(jnp.int32(0), uniforms)

    def restart(self, state: WorldState, uniforms: Array) -> WorldState:
        """Start another episode after the one that was left in a state."""
        return self._begin(state.clock, uniforms)

    def step(self, state: WorldState, action: Array, uniforms: Array) -> Step[WorldState]:
        """Take one step in the world as it is, then let the next world begin if it is due."""

        def step_in(world: JaxEnvironment, inside: Tree) -> Step[Tree]:
            return world.step(inside, action, uniforms[: world.step_uniforms])

        result: Step[Tree] = self._in_world(state.clock, step_in, state.inside)
        clock = state.clock + jnp.int32(1)
        changes = jnp.any(clock == jnp.asarray(self.changes, jnp.int32))
        carried = self._in_world(clock, _carried, result.state)
        goes_on = changes & ~result.terminated & ~result.truncated
        inside = jax.tree.map(lambda new, old: jnp.where(goes_on, new, old), carried, result.state)
        after = WorldState(inside, clock)
        return result._replace(state=after, observation=self.observe(after))

    def observe(self, state: WorldState) -> Array:
        """Return what is observed in the present world."""
        seen: Array = self._in_world(state.clock, lambda w, s: w.observe(s), state.inside)
        return seen

    def action_mask(self, state: WorldState) -> Array:
        """Return which actions are legal in the present world."""
        legal: Array = self._in_world(state.clock, lambda w, s: w.action_mask(s), state.inside)
        return legal

    def _begin(self, clock: Array, uniforms: Array) -> WorldState:
        def reset_in(world: JaxEnvironment, drawn: Array) -> Tree:
            return world.reset(drawn[: world.reset_uniforms])

        return WorldState(self._in_world(clock, reset_in, uniforms), clock)

    def _in_world(self, clock: Array, function: Any, argument: Tree) -> Tree:
        """Call (world, argument) with the world of a step."""
        number = jnp.sum(clock >= jnp.asarray(self.changes, jnp.int32), dtype=jnp.int32)
        branches = [lambda given, world=world: function(world, given) for world in self.worlds]
        return jax.lax.switch(number, branches, argument)


@register(CHANGING_ID)
def changing(
    *, of: str = ESCAPE_ID, changes: Sequence[Mapping[str, Any]] = (), **options: Any
) -> ChangingWorld:
    """Make a world of which some options change at given steps.

    Parameters
    ----------
    of, options
        The id of an environment in JAX, and its options at the beginning.
    changes
        Each has the step ``at`` which it happens and the options that change then; all others stay
        as they were. With ``over`` a number of steps, numbers among them drift there, in ten equal
        ``pieces`` unless told otherwise.

    Examples
    --------
    >>> moves = changing(changes=[{"at": 50_000, "goal": (9, 0)}])
    >>> moves.at(49_999).goal_position, moves.at(50_000).goal_position
    ((9, 9), (9, 0))
    >>> drifts = changing(changes=[{"at": 100, "over": 100, "pieces": 4, "reward_mean": -2.0}])
    >>> [drifts.at(step).reward_mean for step in (99, 100, 125, 150, 175)]
    [-1.0, -1.25, -1.5, -1.75, -2.0]
    """
    build = find(of)
    if build is None or of == CHANGING_ID:
        raise ValueError(f"of must be the id of an environment in JAX, but is {of!r}.")
    worlds, steps = [build(**options)], []
    for change in changes:
        for step, changed in _pieces(change, worlds[-1]):
            options = {**options, **changed}
            worlds.append(build(**options))
            steps.append(step)
    return ChangingWorld(tuple(worlds), tuple(steps))


def _pieces(change: Mapping[str, Any], before: JaxEnvironment) -> Iterator[tuple[int, Json]]:
    """Yield the steps at which a change happens, and the options from there on."""
    given = dict(change)
    if "at" not in given:
        raise ValueError(f"Each change says at which step it happens, as at=50_000; {given} not.")
    at = whole_number("at", given.pop("at"), 1)
    over, pieces = given.pop("over", None), given.pop("pieces", PIECES)
    if not given:
        raise ValueError(f"The change at step {at} changes nothing; name an option of the world.")
    if over is None:
        yield at, given
        return
    over, pieces = whole_number("over", over, 1), whole_number("pieces", pieces, 1)
    if pieces > over:
        raise ValueError(f"A drift over {over} steps cannot have {pieces} pieces.")
    begins = {name: getattr(before, name, None) for name in given}
    for name, number in [*begins.items(), *given.items()]:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError(f"Only numbers drift, which {name} is not; leave out over.")
    for piece in range(1, pieces + 1):
        share = piece / pieces
        drifted = {name: start + share * (given[name] - start) for name, start in begins.items()}
        yield at + over * (piece - 1) // pieces, drifted


def _form(world: JaxEnvironment) -> Tree:
    """Return what all worlds must have in common."""
    begun = jax.eval_shape(world.reset, np.zeros(world.reset_uniforms, np.float32))
    leaves, structure = jax.tree.flatten(begun)
    states = tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves), structure
    seen = tuple(world.observation_shape), str(np.dtype(world.observation_dtype))
    return seen, int(world.num_actions), states


def _carried(world: JaxEnvironment, state: Tree) -> Tree:
    """Return the state in which an episode of another world goes on in this one."""
    carry = getattr(world, "carried", None)
    return state if carry is None else carry(state)
