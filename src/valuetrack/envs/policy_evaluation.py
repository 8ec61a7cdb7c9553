"""The exact values of any policy in the indoor escape, by one linear system.

They are what a tracker of a policy's values should find; see
:class:`valuetrack.agents.value_tracker.ValueTracker`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from valuetrack.envs.indoor_escape import IndoorEscape

Values = npt.NDArray[np.float64]

TOLERANCE = 1e-6
"""How far from one the sum of a policy's probabilities may be."""


def state_values(env: IndoorEscape, policy: npt.ArrayLike, discount: float = 0.9) -> Values:
    r"""Return V, the exact state values of a policy.

    With m the mean reward, s' the cell to which a leads from s, and V = 0 in the goal,

    .. math:: V(s) = m + \gamma \sum_a \pi(a|s) V(s').

    Nothing is sampled and nothing is iterated. The horizon plays no part, for truncation
    bootstraps.

    Parameters
    ----------
    env
        The environment.
    policy
        The probabilities of the actions, (cells, 4) in index order. They sum to one over the legal
        actions of every cell where the agent acts; other rows are not read.
    discount
        The discount gamma, in [0, 1].

    Returns
    -------
    ndarray of float64, shape (cells,)
        Zero in the goal, in walls and in cells out of reach.

    Examples
    --------
    >>> from valuetrack.envs.indoor_escape import IndoorEscape
    >>> corridor = IndoorEscape(width=3, height=1)
    >>> always_east = [[1, 0, 0, 0]] * 3
    >>> state_values(corridor, always_east, discount=0.5).tolist()
    [-1.5, -1.0, 0.0]

    References
    ----------
    Sutton and Barto (2018). Reinforcement learning: an introduction, section 4.1.
    http://incompleteideas.net/book/the-book-2nd.html
    """
    if not 0.0 <= discount <= 1.0:
        raise ValueError(f"discount must lie in [0, 1], but is {discount}.")
    tables = env._tables
    cells = np.flatnonzero(tables.legal.any(axis=1))
    chosen = _probabilities(policy, tables.legal, cells)
    P = np.zeros((len(chosen), len(chosen)))
    np.add.at(P, (cells[:, None], tables.next_cell[cells]), chosen[cells])
    values = np.zeros(len(chosen))
    A = np.eye(len(cells)) - discount * P[np.ix_(cells, cells)]
    try:
        values[cells] = np.linalg.solve(A, np.full(len(cells), env.reward_mean))
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "This policy never leaves some cells, where its values without a discount are infinite."
        ) from error
    return values


def action_values(env: IndoorEscape, policy: npt.ArrayLike, discount: float = 0.9) -> Values:
    r"""Return Q, the exact action values of a policy: :math:`Q(s, a) = m + \gamma V(s')`.

    The arguments are those of :func:`state_values`; the result has the shape (cells, 4) and is NaN
    where an action is not legal.

    Examples
    --------
    >>> from valuetrack.envs.indoor_escape import WEST, IndoorEscape
    >>> corridor = IndoorEscape(width=3, height=1)
    >>> float(action_values(corridor, [[1, 0, 0, 0]] * 3, discount=0.5)[1, WEST])
    -1.75
    """
    tables = env._tables
    next_values = state_values(env, policy, discount)[tables.next_cell]
    return np.where(tables.legal, env.reward_mean + discount * next_values, np.nan)


def _probabilities(
    policy: npt.ArrayLike, legal: npt.NDArray[np.bool_], cells: npt.NDArray[np.intp]
) -> Values:
    """Return the policy as an array, and refuse one that is none in the cells of the agent."""
    given = np.asarray(policy, np.float64)
    if given.shape != legal.shape:
        raise ValueError(
            f"A policy is an array of shape {legal.shape}, a row of probabilities for each cell; "
            f"this has {given.shape}."
        )
    mass = np.where(legal, given, 0.0).sum(axis=1)[cells]
    if not (given[cells] >= 0.0).all() or not (np.abs(mass - 1.0) <= TOLERANCE).all():
        raise ValueError(
            "The policy's probabilities must not be negative, and sum to one over the legal "
            "actions of every cell."
        )
    return given
