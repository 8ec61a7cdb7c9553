r"""Deep sea: one path among :math:`2^N` leads to the treasure, and every step of it costs.

The grid, its costs and its noise are those of bsuite's ``deep_sea`` and ``deep_sea_stochastic``;
with the same ``mapping_seed``, so are the actions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from valuetrack.envs.base import Shape, Step, standard_normal
from valuetrack.envs.finite import FiniteTask, Outcomes, whole_number
from valuetrack.envs.registry import register
from valuetrack.types import Array, NDArray

DEEP_SEA_ID = "valuetrack/DeepSea-v0"
TREASURE = 1.0


class DeepSeaState(NamedTuple):
    """Where the diver is, and what the episode has been so far; all scalars.

    ``place`` is row * size + column, and size * size at the end. ``is_bad`` says whether the diver
    has gone left while on the diagonal, which ends every hope of the treasure; ``found`` whether
    the treasure was paid, which is what bsuite calls the denoised return.
    """

    place: Array
    steps: Array
    is_bad: Array
    found: Array


@register(DEEP_SEA_ID)
@dataclass(frozen=True)
class DeepSea(FiniteTask[DeepSeaState]):
    r"""The deep sea: a :class:`~valuetrack.envs.finite.FiniteTask` of size * size places.

    The diver begins in the upper left corner of an N x N grid and sinks by one row with every step,
    to the left or to the right. A step to the right costs 0.01 / N; one in the lower right corner
    also pays 1. The episode terminates after N steps.

    Parameters
    ----------
    size
        N, at least 2.
    stochastic
        A step to the right then stays in its column with probability 1 / N, and costs the same; a
        step in the lower left or lower right corner pays N(0, 1) on top.
    move_cost
        What N steps to the right cost.
    mapping_seed
        Which of the two actions is right is drawn for each place with this seed, as bsuite does;
        its experiments have 42. With ``None``, 1 is right everywhere.

    Notes
    -----
    The observation is a one-hot vector of the N * N places, a row of the grid after the other. At
    the end it is zero. bsuite has the same bits in an (N, N) array.

    Without a discount an optimal episode pays 1 - ``move_cost``. With the wind, whoever is blown
    off the diagonal has lost the treasure and goes left from then on. With n = N - row steps left
    on the diagonal, :math:`p = 1 - 1/N` (1 without the wind), :math:`c` = ``move_cost`` / N and a
    discount :math:`\gamma`, going right is worth

    .. math:: Q^*(\text{right}) = (\gamma p)^{n-1} - c \sum_{k<n} (\gamma p)^k,

    as long as all such values below it are positive; elsewhere :math:`Q^*` is :math:`-c` for right
    and 0 for left.

    References
    ----------
    Osband et al. (2019), Deep exploration via randomized value functions, JMLR 20,
    arXiv:1703.07608. Osband et al. (2020), Behaviour suite for reinforcement learning, ICLR,
    arXiv:1908.03568; its source, bsuite/environments/deep_sea.py.

    Examples
    --------
    >>> env = DeepSea(size=3, mapping_seed=None)
    >>> state = env.reset(jnp.zeros(env.reset_uniforms))
    >>> for _ in range(3):
    ...     result = env.step(state, jnp.int32(1), jnp.zeros(env.step_uniforms))
    ...     state = result.state
    >>> round(float(result.reward), 4), bool(result.terminated), bool(state.is_bad)
    (0.9967, True, False)
    """

    num_actions: ClassVar[int] = 2

    size: int = 10
    stochastic: bool = False
    move_cost: float = 0.01
    mapping_seed: int | None = 42

    def __post_init__(self) -> None:
        """Refuse options that make no environment."""
        object.__setattr__(self, "size", whole_number("size", self.size, 2))
        if self.mapping_seed is not None:
            seed = whole_number("mapping_seed", self.mapping_seed, 0)
            object.__setattr__(self, "mapping_seed", seed)
        if not math.isfinite(self.move_cost):
            raise ValueError(f"move_cost must be finite, but is {self.move_cost}.")

    @property
    def observation_shape(self) -> Shape:
        """One bit for each place."""
        return (self.size * self.size,)

    @property
    def steps_at_most(self) -> int:
        """As many as there are rows."""
        return self.size

    @property
    def step_uniforms(self) -> int:
        """One for the wind and one for the noise, if there are."""
        return 2 if self.stochastic else 0

    @property
    def right(self) -> NDArray:
        """The action that is right in each place of the grid, (size, size)."""
        if self.mapping_seed is None:
            return np.ones((self.size, self.size), int)
        # The old generator, whose numbers never change, is the one of bsuite.
        draws = np.random.RandomState(self.mapping_seed)
        return draws.binomial(1, 0.5, (self.size, self.size))

    def make_outcomes(self) -> Outcomes:
        """Make the table; the wind, if there is one, is the first outcome."""
        n, cells = self.size, self.size * self.size
        row, column = np.divmod(np.arange(cells), n)
        goes_right = self.right.reshape(cells, 1) == np.arange(2)

        def below(column: NDArray) -> NDArray:
            there = (row + 1) * n + np.clip(column, 0, n - 1)
            return np.where(row == n - 1, cells, there)[:, None]

        moves = [np.where(goes_right, below(column + 1), below(column - 1))]
        chances = [1.0]
        if self.stochastic:
            moves.insert(0, np.where(goes_right, below(column), below(column - 1)))
            chances = [1 / n, 1 - 1 / n]
        paid = TREASURE * (column == n - 1)[:, None] - self.move_cost / n
        reward = np.where(goes_right, paid, 0.0)[..., None]
        shape = (cells, 2, len(moves))
        last = ((0, 1), (0, 0), (0, 0))  # the end, a place of its own
        following = np.pad(np.stack(moves, axis=-1), last, constant_values=cells)
        place = np.arange(cells + 1)
        return Outcomes(
            np.pad(np.broadcast_to(chances, shape), last, mode="edge"),
            following,
            np.pad(np.broadcast_to(reward, shape), last),
            (place == 0).astype(float),
            place == cells,
        )

    def begin(self, place: Array) -> DeepSeaState:
        """Return the state in which an episode begins."""
        return DeepSeaState(place, jnp.int32(0), jnp.asarray(False), jnp.asarray(False))

    def step(self, state: DeepSeaState, action: Array, uniforms: Array) -> Step[DeepSeaState]:
        """Sink by one row; ``uniforms`` are one for the wind and one for the noise."""
        result = super().step(state, action, uniforms)
        row, column = jnp.divmod(state.place, self.size)
        goes_right = jnp.asarray(self.right)[row, column] == action
        found = state.found | (goes_right & (column == self.size - 1))
        is_bad = state.is_bad | (~goes_right & (row == column))
        result = result._replace(state=result.state._replace(is_bad=is_bad, found=found))
        if not self.stochastic:
            return result
        corner = (row == self.size - 1) & ((column == 0) | (column == self.size - 1))
        noise = jnp.where(corner, standard_normal(uniforms[1]), 0.0)
        return result._replace(reward=result.reward + noise)


def episodes_to_solve(
    is_bad: npt.ArrayLike, *, stochastic: bool = False, episodes: int = 10_000
) -> int | None:
    r"""Return after how many episodes bsuite counts a deep sea as solved; ``None`` if never.

    An episode is bad if the diver went left while on the diagonal. The sea is solved with the first
    episode k at which the share of bad ones among all so far is small enough:

    .. math:: \frac1k \sum_{i \le k} b_i < 0.9, \qquad k \le 10\,000;

    the stochastic one with a share below 0.8, and not before the 100th episode, for the wind makes
    some episodes good by luck.

    Parameters
    ----------
    is_bad
        Whether each episode was bad, in their order: ``state.is_bad`` at its end. Without
        ``stochastic`` this says the return too, for only episodes that are not bad pay more than 0.
    stochastic
        Which of the two rules.
    episodes
        How many episodes count.

    Notes
    -----
    These are ``find_solution`` of bsuite's ``experiments/deep_sea/analysis.py`` and of
    ``experiments/deep_sea_stochastic/analysis.py``. They look at the episodes that bsuite logs (1,
    2, 3, ..., 10, 12, 14, 17, 20, 25, 30, ...), this at every one. An algorithm beats dithering in
    bsuite's score if it solves a sea of size N within :math:`2^N + 100` episodes.

    Examples
    --------
    >>> episodes_to_solve([True] * 9 + [False] * 2)  # 9 of 10 is not below 0.9, and 9 of 11 is
    11
    """
    bad = np.asarray(is_bad, float)[:episodes]
    count = np.arange(1, len(bad) + 1)
    threshold, first = (0.8, 100) if stochastic else (0.9, 1)
    solved = np.flatnonzero((np.cumsum(bad) / count < threshold) & (count >= first))
    return int(count[solved[0]]) if len(solved) else None
