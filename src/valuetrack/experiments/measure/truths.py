"""What the values of an agent really are: exact where the world is a table, rollouts elsewhere.

========================  ====================================================================
task                      truth
========================  ====================================================================
indoor escape             one linear system: Q of the policy that the values are of
a table in ``env.P``      the same (:mod:`valuetrack.envs.gym.tabular`), in JAX or in Python
any other                 the mean return of rollouts (:mod:`~.rollouts`)
========================  ====================================================================

Agents that learn from the maximum estimate the values of their own greedy policy, the one of
``predict``; SARSA and expected SARSA those of their epsilon-greedy one. On the indoor escape these
two may be compared with Q*_eps instead, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from valuetrack.api.agent import AnyAgent
from valuetrack.envs.base import JaxEnvironment
from valuetrack.envs.changing import ChangingWorld
from valuetrack.envs.gym.make import make_vectorised
from valuetrack.envs.gym.tabular import (
    TransitionTable,
    has_table,
    table_values,
    transition_table,
)
from valuetrack.envs.gym.vectorised import SequentialEnvs
from valuetrack.envs.indoor_escape import IndoorEscape, observations, optimal_q
from valuetrack.envs.policy_evaluation import action_values
from valuetrack.experiments.measure.rollouts import HostRollouts, JaxRollouts
from valuetrack.types import Bools, Floats, NDArray

SarsaTruth = Literal["optimal", "own"]


class Truth(NamedTuple):
    """The true values of one seed's agent.

    Attributes
    ----------
    states
        A number for each state: its index in a table, else its place in this list.
    observations
        What is observed there, as ``agent.posterior`` takes it.
    values, se
        The values and their standard errors, (states, actions); NaN where an action is not legal.
    finite
        Whether the world is a table, whose states come again and can be counted.
    """

    states: NDArray
    observations: NDArray
    values: Floats
    se: Floats
    finite: bool


FindTruth = Callable[[int], Truth]
"""(member) -> the truth of one of the seeds."""


class RolloutSizes(NamedTuple):
    """How many rollouts are made where there is no table.

    Attributes
    ----------
    states
        From how many visited states, in an environment in JAX.
    replayed_states
        The same in an environment in Python, where every rollout replays the way to its state.
    rollouts
        From each state and action; one if nothing is random.
    tail
        A rollout goes on until the discount of what follows is below it.
    """

    states: int
    replayed_states: int
    rollouts: int
    tail: float


def truth_finder(agent: AnyAgent, sizes: RolloutSizes, sarsa: SarsaTruth) -> FindTruth:
    """Return what finds the true values of an agent's seeds as they are now.

    Raises
    ------
    ValueError
        If there is no truth for such an agent.
    """
    if (exact := exact_finder(agent, sarsa)) is not None:
        return exact
    if agent.learner.following != "greedy":
        raise ValueError(
            f"Rollouts follow the greedy policy, whose values {agent.options.form!r} does not "
            "learn; take form = 'q_learning', or a task with exact values."
        )
    return _by_rollouts(agent, sizes)


def exact_finder(agent: AnyAgent, sarsa: SarsaTruth = "own") -> FindTruth | None:
    """Return what finds the exact values of an agent's seeds; ``None`` if the world is no table."""
    if isinstance(agent.env.in_jax, ChangingWorld):
        return _in_changing(agent, agent.env.in_jax, sarsa)
    return _exact_in(agent, agent.env.in_jax, sarsa)


def _in_changing(agent: AnyAgent, env: ChangingWorld, sarsa: SarsaTruth) -> FindTruth | None:
    finders = [(world, _exact_in(agent, world, sarsa)) for world in env.worlds]

    def find(member: int) -> Truth:
        now = agent.trainer.present_env
        chosen = next(finder for world, finder in finders if world is now)
        assert chosen is not None
        return chosen(member)

    return find if all(finder for _, finder in finders) else None


def _exact_in(agent: AnyAgent, env: JaxEnvironment | None, sarsa: SarsaTruth) -> FindTruth | None:
    if isinstance(env, IndoorEscape):
        return _in_escape(agent, env, sarsa)
    table = table_of(agent) if env is None else getattr(env, "table", None)
    return None if table is None else _in_table(agent, table)


def table_of(agent: AnyAgent) -> TransitionTable | None:
    """Return the transition table of an agent's environment, if that tells it."""
    if agent.env.in_jax is not None:
        return getattr(agent.env.in_jax, "table", None)
    made = make_vectorised(agent.env.env, 1, **agent.env.options)
    known = isinstance(made, SequentialEnvs) and has_table(made.envs[0])
    table = transition_table(made.envs[0]) if known else None  # type: ignore[attr-defined]
    made.close()
    return table


def _in_escape(agent: AnyAgent, env: IndoorEscape, sarsa: SarsaTruth) -> FindTruth:
    options, legal = agent.options, optimal_q(env).legal
    cells = np.flatnonzero(legal.any(axis=1))
    seen = observations(env)[cells]

    def find(member: int) -> Truth:
        if agent.learner.following != "greedy" and sarsa == "optimal":
            epsilon, discount = options.exploration_final, options.discount
            q = optimal_q(env, epsilon=epsilon, discount=discount, ties="reference").values
        else:
            policy = own_policy(agent, member, seen, legal[cells])
            q = action_values(env, _placed(policy, cells, legal), options.discount)
        return Truth(cells, seen, q[cells], np.zeros_like(q[cells]), finite=True)

    return find


def _in_table(agent: AnyAgent, table: TransitionTable) -> FindTruth:
    states = np.flatnonzero(table.legal.any(axis=1))
    seen = table.observations[states]

    def find(member: int) -> Truth:
        policy = own_policy(agent, member, seen, table.legal[states])
        placed = _placed(policy, states, table.legal)
        q = table_values(table, placed, agent.options.discount)[states]
        return Truth(states, seen, q, np.zeros_like(q), finite=True)

    return find


def _by_rollouts(agent: AnyAgent, sizes: RolloutSizes) -> FindTruth:
    if isinstance(agent.env.in_jax, ChangingWorld):
        raise ValueError("In a world that changes, only tables have known values.")
    rollouts: JaxRollouts | HostRollouts
    if agent.env.in_jax is None:
        rollouts = HostRollouts(agent, sizes.replayed_states, sizes.rollouts, sizes.tail)
    else:
        rollouts = JaxRollouts(agent, sizes.states, sizes.rollouts, sizes.tail)

    def find(member: int) -> Truth:
        seen, values, se = rollouts(member)
        return Truth(np.arange(len(seen)), seen, values, se, finite=False)

    return find


def own_policy(agent: AnyAgent, member: int, seen: Any, legal: Bools) -> Floats:
    """Return the policy that an agent's values are of, as probabilities (states, actions).

    That is the greedy one of ``predict``; of SARSA and expected SARSA, with the present epsilon.
    """
    chosen, _ = agent.predict(seen, action_mask=legal, member=member)
    greedy: Floats = np.eye(legal.shape[1])[np.asarray(chosen) - agent.env.actions.first]
    if agent.learner.following == "greedy":
        return greedy
    epsilon = float(agent.trainer.settings.exploration(agent.num_timesteps))
    even = legal / legal.sum(axis=1, keepdims=True)
    return np.asarray((1 - epsilon) * greedy + epsilon * even)


def _placed(policy: Floats, states: NDArray, legal: Bools) -> Floats:
    """Return the policy of some states among all."""
    whole = np.zeros(legal.shape)
    whole[states] = policy
    return whole


def visits(agent: AnyAgent, member: int, truth: Truth) -> NDArray:
    """Count how often the replay memory holds each state with each action, (states, actions).

    Where states do not come again it is -1.
    """
    counts = np.full(truth.values.shape, -1)
    if not truth.finite:
        return counts
    encoded, _ = agent.env.encode(truth.observations)
    places = {np.asarray(row, encoded.dtype).tobytes(): i for i, row in enumerate(encoded)}
    memory = agent.trainer.memory(member)
    seen = np.ascontiguousarray(memory.observation, encoded.dtype)
    found = np.array([places.get(row.tobytes(), -1) for row in seen], int)
    counts[:] = 0
    known = found >= 0
    np.add.at(counts, (found[known], np.asarray(memory.action)[known]), 1)
    return counts
