"""Indoor escape: a grid to leave by the shortest way, whose values are known exactly.

The agent walks a ``width`` x ``height`` grid from the start to the goal. Every step, the one into
the goal included, pays a reward drawn from N(``reward_mean``, ``reward_sd``^2), so the optimal
policy is a shortest path. Cells are (x, y) pairs, x growing to the east and y to the north; the
index of a cell is y * width + x.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple, SupportsIndex, get_args

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from valuetrack.envs.base import FLOAT32, Shape, Step, standard_normal
from valuetrack.envs.policy_evaluation import action_values
from valuetrack.envs.registry import register
from valuetrack.types import Array, DType

ESCAPE_ID = "valuetrack/IndoorEscape-v0"

Cell = tuple[int, int]
TieRule = Literal["uniform", "reference"]

EAST, NORTH, WEST, SOUTH = range(4)
NUM_ACTIONS = 4
ACTION_NAMES = ("E", "N", "W", "S")
"""East, north, west, south: the actions 0 to 3."""
_DX = np.array([1, 0, -1, 0])
_DY = np.array([0, 1, 0, -1])


class EscapeState(NamedTuple):
    """Where the agent is (``cell``, an index) and how many ``steps`` it has taken; both int32."""

    cell: Array
    steps: Array


class QValues(NamedTuple):
    """Action values Q(s, a) of all cells in index order, shape (cells, 4); NaN where not ``legal``.

    No action is legal in the goal, in a wall, or in a cell that no walk from the start reaches.
    """

    values: NDArray[np.float64]
    legal: NDArray[np.bool_]


class _Tables(NamedTuple):
    """The grid as arrays over cells in index order."""

    next_cell: NDArray[np.int32]  # (cells, 4): where an action leads, here if it is blocked
    legal: NDArray[np.bool_]  # (cells, 4)
    distance: NDArray[np.int32]  # (cells,): steps to the goal, -1 where there is no way
    reachable: NDArray[np.bool_]  # (cells,): on some walk from the start that ends at the goal


@register(ESCAPE_ID)
@dataclass(frozen=True)
class IndoorEscape:
    """The indoor escape environment; implements `valuetrack.envs.base.Environment`.

    Parameters
    ----------
    width, height : int
        Size of the grid.
    walls : iterable of (x, y)
        Blocked cells; kept as a sorted tuple without duplicates.
    start : (x, y)
        Where every episode begins.
    goal : (x, y), optional
        The absorbing cell; the far corner (width - 1, height - 1) unless given.
    reward_mean, reward_sd : float
        The reward of each step is N(reward_mean, reward_sd^2). The mean must be negative, or
        leaving would not be worth the while.
    horizon : int
        An episode is truncated after this many steps. A goal reached with the last of them
        terminates the episode instead.
    masked : bool
        If true, only moves into a free cell are legal. If false, every action is, and one that
        runs into a wall or the edge leaves the agent where it is. The dynamics do not depend on
        this option: a masked action that is taken all the same also leaves the agent where it is,
        counts as a step and pays the usual reward. So does any action in the goal, where none is
        legal in either case.

    Notes
    -----
    The observation is ((x + 1/2) / width, (y + 1/2) / height), the centre of the cell in the unit
    square. Actions are E (+x), N (+y), W (-x), S (-y), in this order.

    Examples
    --------
    >>> env = IndoorEscape(width=3, height=2, walls=((1, 0),), reward_sd=0.0)
    >>> state = env.reset(jnp.zeros(env.reset_uniforms))
    >>> [bool(legal) for legal in env.action_mask(state)]
    [False, True, False, False]
    >>> float(env.step(state, jnp.int32(NORTH), jnp.array([0.5])).reward)
    -1.0
    """

    observation_shape: ClassVar[Shape] = (2,)
    observation_dtype: ClassVar[DType] = FLOAT32
    observation_bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    num_actions: ClassVar[int] = NUM_ACTIONS
    reset_uniforms: ClassVar[int] = 0  # the start is fixed
    step_uniforms: ClassVar[int] = 1  # becomes the noise of the reward

    width: int = 10
    height: int = 10
    walls: tuple[Cell, ...] = ()
    start: Cell = (0, 0)
    goal: Cell | None = None
    reward_mean: float = -1.0
    reward_sd: float = 0.1
    horizon: int = 200
    masked: bool = True

    def __post_init__(self) -> None:
        """Bring the options into one form, and refuse those that make no environment."""
        for name, form in _FORMS.items():
            if (value := getattr(self, name)) is not None or name != "goal":
                object.__setattr__(self, name, form(name, value))
        _validate(self)

    @property
    def goal_position(self) -> Cell:
        """The goal as (x, y), also where the option was left to its default."""
        return (self.width - 1, self.height - 1) if self.goal is None else self.goal

    def index(self, cell: Cell) -> int:
        """Return the index y * width + x of a cell."""
        x, y = cell
        return y * self.width + x

    def reset(self, uniforms: Array) -> EscapeState:
        """Put the agent at the start; ``uniforms`` is empty."""
        del uniforms
        return EscapeState(jnp.int32(self.index(self.start)), jnp.int32(0))

    def step(self, state: EscapeState, action: Array, uniforms: Array) -> Step[EscapeState]:
        """Move the agent and pay r = reward_mean + reward_sd * Phi^{-1}(u)."""
        cell = jnp.asarray(self._tables.next_cell)[state.cell, action]
        after = EscapeState(cell, state.steps + jnp.int32(1))
        terminated = cell == self.index(self.goal_position)
        truncated = (after.steps >= self.horizon) & ~terminated
        return Step(after, self.observe(after), self._reward(uniforms[0]), terminated, truncated)

    def observe(self, state: EscapeState) -> Array:
        """Return the centre of the agent's cell in the unit square, float32."""
        # Looked up rather than computed, to agree to the last bit with `observations`.
        return jnp.asarray(observations(self))[state.cell]

    def action_mask(self, state: EscapeState) -> Array:
        """Return which of E, N, W, S are legal; none is in the goal."""
        return jnp.asarray(self._tables.legal)[state.cell]

    def carried(self, state: EscapeState) -> EscapeState:
        """Return where an episode that began in another grid goes on in this one.

        Whoever stands where no action is legal, as in a new wall, is put back to the start.
        """
        stuck = ~jnp.any(jnp.asarray(self._tables.legal)[state.cell])
        return state._replace(cell=jnp.where(stuck, self.index(self.start), state.cell))

    def _reward(self, uniform: Array) -> Array:
        return self.reward_mean + self.reward_sd * standard_normal(uniform)

    @cached_property
    def _tables(self) -> _Tables:
        goal = self.index(self.goal_position)
        floor_plan = _neighbours(self)
        distance = _distances(floor_plan, goal)
        # Nobody walks on from the goal, so what lies behind it alone is out of reach.
        next_cell = floor_plan.copy()
        next_cell[goal] = goal
        reachable = _distances(next_cell, self.index(self.start)) >= 0
        here = np.arange(len(next_cell), dtype=np.int32)
        next_cell = np.where(reachable[:, None], next_cell, here[:, None])
        active = (reachable & (here != goal))[:, None]
        legal = active & ((next_cell != here[:, None]) | (not self.masked))
        return _Tables(next_cell, legal, distance, reachable)


def observations(env: IndoorEscape) -> NDArray[np.float32]:
    """Return the observations of all cells in index order (y * width + x), walls included.

    Row i is ((x + 1/2) / width, (y + 1/2) / height) of the cell with index i.
    """
    y, x = np.divmod(np.arange(env.width * env.height), env.width)
    centres = np.stack([(x + 0.5) / env.width, (y + 0.5) / env.height], axis=-1)
    return centres.astype(np.float32)


def optimal_policy_probabilities(
    env: IndoorEscape, ties: TieRule = "uniform"
) -> NDArray[np.float64]:
    """Return the probabilities of an optimal policy's actions, shape (cells, 4).

    Rows sum to one, except those of cells without a legal action, which are zero. An action is
    optimal where it leads one step closer to the goal: with a negative mean reward a shortest path
    is optimal for every discount in (0, 1].

    Parameters
    ----------
    env : IndoorEscape
        The environment.
    ties : {"uniform", "reference"}
        ``"uniform"`` splits the probability evenly among the optimal actions. ``"reference"`` takes
        the axis with the smaller coordinate wherever E and N are both optimal: E if x <= y and N
        otherwise, so that on the diagonal it is E; all other ties are split evenly.
    """
    if ties not in get_args(TieRule):
        raise ValueError(f"ties must be one of {get_args(TieRule)}, but is {ties!r}.")
    tables = env._tables
    closer = tables.distance[tables.next_cell] == tables.distance[:, None] - 1
    optimal = tables.legal & closer
    if ties == "reference":
        y, x = np.divmod(np.arange(len(optimal)), env.width)
        tied = optimal[:, EAST] & optimal[:, NORTH]
        optimal[tied] = False
        optimal[tied & (x <= y), EAST] = True
        optimal[tied & (x > y), NORTH] = True
    return _spread(optimal)


def optimal_q(
    env: IndoorEscape, epsilon: float = 0.01, discount: float = 0.9, ties: TieRule = "uniform"
) -> QValues:
    r"""Return Q*_eps, the exact action values of the epsilon-greedy optimal policy.

    With m the mean reward, s' the cell to which a leads from s, and V = 0 in the goal,

    .. math::

        \pi(a|s) &= (1 - \epsilon) \pi^*(a|s) + \epsilon / |A(s)|, \\
        V(s) &= m + \gamma \sum_a \pi(a|s) V(s'), \qquad Q(s, a) = m + \gamma V(s'),

    where A(s) are the legal actions, the greedy one included. V solves one linear system; nothing
    is sampled and nothing is iterated. The horizon plays no part, for truncation bootstraps.

    Parameters
    ----------
    env : IndoorEscape
        The environment.
    epsilon : float
        The probability of an action drawn evenly from the legal ones, in [0, 1].
    discount : float
        The discount gamma, in [0, 1].
    ties : {"uniform", "reference"}
        How pi* breaks ties; see `optimal_policy_probabilities`.

    Notes
    -----
    pi* is optimal for epsilon = 0: it is a shortest path, and the random actions are laid over it.
    This is not the best among all epsilon-greedy policies, which would also weigh where a random
    action may lead. For epsilon > 0 the tied actions differ slightly in value, hence ``ties``.
    """
    if not 0.0 <= epsilon <= 1.0:
        raise ValueError(f"epsilon must lie in [0, 1], but is {epsilon}.")
    legal = env._tables.legal
    greedy = optimal_policy_probabilities(env, ties)
    policy = (1.0 - epsilon) * greedy + epsilon * _spread(legal)
    return QValues(action_values(env, policy, discount), legal.copy())


def _spread(chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Turn each row of a mask into the uniform distribution over it, or zeros if it is empty."""
    counts: NDArray[np.int64] = chosen.sum(axis=1, keepdims=True)
    return chosen / np.maximum(counts, 1)


def _neighbours(env: IndoorEscape) -> NDArray[np.int32]:
    """Return where each action leads from each cell: the cell itself if the way is blocked."""
    here = np.arange(env.width * env.height, dtype=np.int32)[:, None]
    y, x = np.divmod(here, env.width)
    x, y = x + _DX, y + _DY
    inside = (x >= 0) & (x < env.width) & (y >= 0) & (y < env.height)
    there = np.where(inside, y * env.width + x, here)
    wall = np.zeros(len(here), dtype=bool)
    wall[[env.index(cell) for cell in env.walls]] = True
    return np.where(wall[there] | wall[here], here, there).astype(np.int32)


def _distances(next_cell: NDArray[np.int32], source: int) -> NDArray[np.int32]:
    """Return the fewest steps from a cell to every other, -1 where there is no way."""
    distance = np.full(len(next_cell), -1, dtype=np.int32)
    frontier, steps = np.array([source]), 0
    while frontier.size:
        distance[frontier] = steps
        around = np.unique(next_cell[frontier])
        frontier, steps = around[distance[around] < 0], steps + 1
    return distance


def _positive(name: str, value: SupportsIndex) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, but is {value!r}.") from None
    if number < 1:
        raise ValueError(f"{name} must be at least 1, but is {number}.")
    return number


def _finite(name: str, value: object) -> float:
    if not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{name} must be a number, but is {value!r}.")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, but is {value}.")
    return float(value)


def _cell(name: str, value: Iterable[SupportsIndex]) -> Cell:
    try:
        x, y = map(operator.index, value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be an (x, y) pair of integers, but is {value!r}.") from None
    return x, y


def _cells(name: str, values: object) -> tuple[Cell, ...]:
    if not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a sequence of (x, y) pairs, but is {values!r}.")
    return tuple(sorted({_cell(f"each cell of {name}", value) for value in values}))


_FORMS: dict[str, Callable[..., object]] = {
    **dict.fromkeys(("width", "height", "horizon"), _positive),
    **dict.fromkeys(("reward_mean", "reward_sd"), _finite),
    **dict.fromkeys(("start", "goal"), _cell),
    "walls": _cells,
}


def _validate(env: IndoorEscape) -> None:
    """Refuse options that are well-formed one by one but make no environment together."""
    if not isinstance(env.masked, bool):
        raise TypeError(f"masked must be True or False, but is {env.masked!r}.")
    if env.reward_mean >= 0.0:
        raise ValueError(f"reward_mean must be negative, but is {env.reward_mean}.")
    if env.reward_sd < 0.0:
        raise ValueError(f"reward_sd must not be negative, but is {env.reward_sd}.")
    size = f"the {env.width} x {env.height} grid"
    named = [("start", env.start), ("goal", env.goal_position)]
    for name, (x, y) in [*named, *(("wall", wall) for wall in env.walls)]:
        if not (0 <= x < env.width and 0 <= y < env.height):
            raise ValueError(f"{name} ({x}, {y}) lies outside {size}.")
    for name, cell in named:
        if cell in env.walls:
            raise ValueError(f"{name} {cell} is a wall.")
    if env.start == env.goal_position:
        raise ValueError(f"start and goal are both {env.start}, so there is nowhere to go.")
    if not env._tables.reachable[env.index(env.goal_position)]:
        raise ValueError(f"goal {env.goal_position} cannot be reached from start {env.start}.")
