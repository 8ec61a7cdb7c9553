r"""The exact values of a policy in an environment that tells its transition table.

Gymnasium's toy texts do, as ``env.unwrapped.P``: state -> action -> (probability, next state,
reward, whether it terminates); and so do the :class:`~valuetrack.envs.finite.FiniteTask` of the
house, in JAX and behind Gymnasium's interface. A time limit plays no part: truncation bootstraps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.wrappers import TransformReward
from scipy import sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import spsolve

from valuetrack.types import Bools, NDArray

Values = npt.NDArray[np.float64]
Outcome = tuple[float, int, float, bool]
"""A probability, the next state, the reward, and whether it terminates."""
Entries = Mapping[int, Mapping[int, Sequence[Outcome]]]
"""state -> action -> what may come of it."""

TIE = 1e-9
"""Values that differ by less count as the same."""


class TransitionTable(NamedTuple):
    """A finite environment.

    Attributes
    ----------
    following
        The probabilities of the next state unless the step terminates, sparse, with a row for
        state * actions + action and a column for each state.
    reward
        The expected reward, (states, actions).
    legal
        Which actions are, (states, actions): none in a state that no episode can act in.
    starts
        The probability that an episode begins there, (states,).
    observations
        What is observed in each state, (states, ...): its number, unless the environment says
        otherwise.
    """

    following: sparse.csr_matrix
    reward: Values
    legal: Bools
    starts: Values
    observations: NDArray


def has_table(env: gymnasium.Env[Any, Any]) -> bool:
    """Return whether an environment tells its transition table, and where episodes begin."""
    return all(hasattr(env.unwrapped, name) for name in ("P", "initial_state_distrib"))


def transition_table(env: gymnasium.Env[Any, Any]) -> TransitionTable:
    """Read the transition table of an environment; ``TransformReward`` around it counts.

    Examples
    --------
    >>> table = transition_table(gymnasium.make("FrozenLake-v1", is_slippery=False))
    >>> table.reward.shape, float(table.reward[14, 2]), table.legal[5].any()
    ((16, 4), 1.0, np.False_)
    """
    told: Any = env.unwrapped
    entries = told.P
    states, actions = len(entries), len(entries[0])
    seen = told.observations() if hasattr(told, "observations") else np.arange(states)
    masks = _masks(told, states, actions)
    return tabulated(entries, told.initial_state_distrib, seen, masks, _reward_functions(env))


def tabulated(
    entries: Entries,
    starts: npt.ArrayLike,
    observations: NDArray,
    legal: Bools,
    changed: Sequence[Callable[[Any], Any]] = (),
) -> TransitionTable:
    """Make a table of entries as ``P`` has them; ``changed`` are functions of the rewards."""
    states, actions = legal.shape
    pairs, nexts, chances = [], [], []
    reward = np.zeros(states * actions)
    for pair, chance, following, paid, terminates in _listed(entries, actions):
        reward[pair] += chance * functools.reduce(lambda r, f: f(r), changed, paid)
        if not terminates:
            pairs.append(pair)
            nexts.append(following)
            chances.append(chance)
    shape = (states * actions, states)
    moves = sparse.csr_matrix((chances, (pairs, nexts)), shape)  # which adds up what repeats
    begins = np.asarray(starts, np.float64)
    legal = legal & _reachable(moves, legal, begins > 0)[:, None]
    return TransitionTable(moves, reward.reshape(states, actions), legal, begins, observations)


def table_values(table: TransitionTable, policy: npt.ArrayLike, discount: float) -> Values:
    r"""Return Q, the exact action values of a policy, (states, actions); NaN where not legal.

    .. math:: Q(s, a) = r(s, a) + \gamma \sum_{s'} p(s' | s, a) V(s'), \qquad
              V(s) = \sum_a \pi(a | s) Q(s, a)

    V solves one sparse linear system; terminal states count zero.

    Parameters
    ----------
    table
        The environment.
    policy
        The probabilities of the actions, (states, actions); rows without a legal action are not
        read.
    discount
        gamma, in [0, 1); a policy may walk in circles for ever.

    Examples
    --------
    >>> table = transition_table(gymnasium.make("CliffWalking-v1"))
    >>> up = np.tile([1.0, 0.0, 0.0, 0.0], (48, 1))
    >>> round(float(table_values(table, up, 0.9)[36, 1]), 6)  # off the cliff, then up for ever
    -109.0
    """
    if not 0.0 <= discount < 1.0:
        raise ValueError(f"discount must lie in [0, 1), but is {discount}.")
    states, actions = table.legal.shape
    chosen = np.where(table.legal, np.asarray(policy, np.float64), 0.0)
    acting = table.legal.any(axis=1)
    if not np.allclose(chosen.sum(axis=1)[acting], 1.0):
        raise ValueError("The policy's probabilities must sum to one over the legal actions.")
    picks = sparse.csr_matrix(
        (chosen.ravel(), (np.repeat(np.arange(states), actions), np.arange(states * actions))),
        (states, states * actions),
    )
    system = sparse.eye(states, format="csc") - discount * (picks @ table.following).tocsc()
    v = spsolve(system, picks @ table.reward.ravel())
    q = table.reward + discount * (table.following @ v).reshape(states, actions)
    return np.where(table.legal, q, np.nan)


def optimal_values(table: TransitionTable, discount: float) -> Values:
    """Return Q*, the exact action values of the best policy, by policy iteration.

    Examples
    --------
    >>> table = transition_table(gymnasium.make("CliffWalking-v1"))
    >>> best = optimal_values(table, 0.9).max(axis=1)[36]  # thirteen steps along the cliff
    >>> round(float(best), 6) == round(-sum(0.9**k for k in range(13)), 6)
    True
    """
    chosen = np.argmax(np.where(table.legal, table.reward, -np.inf), axis=1)
    while True:
        found = table_values(table, np.eye(table.legal.shape[1])[chosen], discount)
        q = np.where(table.legal, found, -np.inf)
        # Rounding may break a tie either way, for ever.
        improves = q.max(axis=1) > q[np.arange(len(q)), chosen] + TIE
        if not improves.any():
            return found
        chosen = np.where(improves, np.argmax(q, axis=1), chosen)


def values_to_go(
    table: TransitionTable, steps: int, discount: float = 1.0, policy: npt.ArrayLike | None = None
) -> Values:
    r"""Return the values with 1, ..., ``steps`` steps left, (steps, states, actions).

    .. math:: Q_k(s, a) = r(s, a) + \gamma \sum_{s'} p(s' | s, a) V_{k-1}(s'), \qquad V_0 = 0

    NaN where an action is not legal.

    Parameters
    ----------
    table
        The environment.
    steps
        How many steps there are at the most.
    discount
        gamma, in [0, 1].
    policy
        The probabilities of the actions, (states, actions), whatever is left. Without one, V is
        that of the best action: the values are those of the policy that counts its steps.

    Examples
    --------
    >>> from valuetrack.envs import NChain
    >>> values_to_go(NChain(size=3).table, steps=4)[:, 1].max(axis=1).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    if not 0.0 <= discount <= 1.0:
        raise ValueError(f"discount must lie in [0, 1], but is {discount}.")
    acting = table.legal.any(axis=1)
    v, found = np.zeros(len(table.legal)), []
    for _ in range(steps):
        q = table.reward + discount * (table.following @ v).reshape(table.legal.shape)
        if policy is None:
            v = np.where(table.legal, q, -np.inf).max(axis=1)
        else:
            v = np.where(table.legal, np.asarray(policy, np.float64) * q, 0.0).sum(axis=1)
        v = np.where(acting, v, 0.0)
        found.append(np.where(table.legal, q, np.nan))
    return np.stack(found)


def _reward_functions(env: gymnasium.Env[Any, Any]) -> list[Callable[[Any], Any]]:
    """Return what wrappers around an environment make of a reward, the innermost first."""
    found: list[Callable[[Any], Any]] = []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TransformReward):
            found.append(env.func)
        env = env.env
    return found[::-1]


def _listed(table: Entries, actions: int) -> Iterator[tuple[int, float, int, float, bool]]:
    """Yield (state * actions + action, probability, next state, reward, terminates)."""
    for state, choices in table.items():
        for action, ends in choices.items():
            for chance, following, paid, terminates in ends:
                yield state * actions + action, chance, int(following), paid, bool(terminates)


def _masks(told: Any, states: int, actions: int) -> Bools:
    """Return which actions an environment with masks, such as Taxi, allows in each state."""
    if not hasattr(told, "action_mask"):
        return np.ones((states, actions), bool)
    return np.stack([np.asarray(told.action_mask(state), bool) for state in range(states)])


def _reachable(following: sparse.csr_matrix, legal: Bools, begins: Bools) -> Bools:
    """Return the states in which an episode can act: those with a way from where it begins."""
    states, actions = legal.shape
    pairs, nexts = following.nonzero()
    used = legal.ravel()[pairs]
    # One more node, from which episodes begin.
    source = np.concatenate([pairs[used] // actions, np.full(begins.sum(), states)])
    target = np.concatenate([nexts[used], np.flatnonzero(begins)])
    graph = sparse.csr_matrix((np.ones(len(source)), (source, target)), (states + 1, states + 1))
    found = np.zeros(states + 1, bool)
    found[csgraph.breadth_first_order(graph, states, return_predecessors=False)] = True
    return found[:-1]
